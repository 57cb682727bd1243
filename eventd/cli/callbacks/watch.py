"""Follows the states of callbacks until Ctrl-C, or until the reader of the output is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from eventd.cli.gateway.session import Session
from eventd.cli.terminal.output import Column
from eventd.runtime.clock import SystemClock

PAUSE = 0.5
"""Seconds between two reads."""
_UNSTEADY = ("waitingSeconds", "head", "position")


async def watch_callbacks(session: Session, group: str, columns: Sequence[Column]) -> None:
    """Show each callback, and show it again when any value other than its position and lag changes, until Ctrl-C."""
    show, clock = session.out.stream_rows(columns, name=lambda row: str(row["callback"])), SystemClock()
    seen: dict[str, dict[str, Any]] = {}
    try:
        while True:
            answer = await session.call("callbacks.list", group=group)
            steady = {
                row["callback"]: {name: value for name, value in row.items() if name not in _UNSTEADY}
                for row in answer["callbacks"]
            }
            fresh = [row for row in answer["callbacks"] if seen.get(row["callback"]) != steady[row["callback"]]]
            if fresh:
                show(fresh)
            seen = steady
            await clock.sleep(PAUSE)
    except asyncio.CancelledError:
        return  # Ctrl-C is how it ends
