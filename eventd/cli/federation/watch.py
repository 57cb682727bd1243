"""Follows the events or links of groups until Ctrl-C, or until the reader of the output is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from eventd.cli.gateway.selecting import MOST
from eventd.cli.gateway.session import Session
from eventd.cli.terminal.output import Column, note
from eventd.runtime.clock import SystemClock

PAUSE = 0.5
"""Seconds between two reads."""


async def watch_events(
    session: Session, groups: Sequence[str], asked: dict[str, Any], columns: Sequence[Column], *, limit: int, after: str
) -> None:
    """Show the newest `limit` events of each group (0: all), then new ones as they are stored, until Ctrl-C.

    With `after`, show all events after that token instead. `asked` filters the events.
    """
    show, clock = session.out.stream_rows(columns, name=lambda row: str(row["id"])), SystemClock()
    tokens: dict[str, str] = {}
    try:
        for group in groups:
            tokens[group] = after if after or not limit else await _begin(session, group, asked, show, limit)
        while True:
            for group in groups:
                tokens[group] = await _follow(session, group, asked, show, tokens[group])
            await clock.sleep(PAUSE)
    except asyncio.CancelledError:
        return  # Ctrl-C is how it ends


async def _begin(session: Session, group: str, asked: dict[str, Any], show: Any, limit: int) -> str:
    """Show the newest `limit` events of a group, oldest first. Returns the token to continue from."""
    newest: list[dict[str, Any]] = []
    upto, before = "", ""
    while before is not None and len(newest) < limit:
        most = min(limit - len(newest), MOST)
        answer = await session.call("events.list", group=group, newest=True, after=before, limit=most, **asked)
        newest += answer["events"]
        upto, before = upto or str(answer["upto"]), answer["next"]
    show(newest[::-1])
    return upto


async def _follow(session: Session, group: str, asked: dict[str, Any], show: Any, token: str) -> str:
    """Show all present events of a group after the token, and note gaps. Returns the token to continue from."""
    while True:
        answer = await session.call("events.list", group=group, after=token, limit=MOST, **asked)
        if answer["gap"]:
            note(f"gap: group {group}: {answer['gap']['message']}")
        if answer["events"]:
            show(answer["events"])
        if answer["next"] is None:
            return str(answer["upto"])
        token = answer["next"]


async def watch_links(session: Session, groups: Sequence[str], columns: Sequence[Column], peer: str) -> None:
    """Show each outbound link, and show it again when any value other than `lagSeconds`, `head` or `position` changes,
    until Ctrl-C."""
    show = session.out.stream_rows(columns, name=lambda row: f"{row['group']}/{row['peer']}")
    clock = SystemClock()
    seen: dict[tuple[str, str], dict[str, Any]] = {}
    try:
        while True:
            for group in groups:
                answer = await session.call("links.status", group=group, peer=peer)
                fresh = [row for row in answer["outbound"] if _changed(seen, row)]
                if fresh:
                    show(fresh)
            await clock.sleep(PAUSE)
    except asyncio.CancelledError:
        return  # Ctrl-C is how it ends


def _changed(seen: dict[tuple[str, str], dict[str, Any]], row: dict[str, Any]) -> bool:
    key = (row["group"], row["peer"])
    steady = {name: value for name, value in row.items() if name not in ("lagSeconds", "head", "position")}
    if seen.get(key) == steady:
        return False
    seen[key] = steady
    return True
