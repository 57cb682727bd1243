"""Waiting for the first of several things without a detour: who knows of one wakes the waiting task itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any


async def until_any(nudge: asyncio.Future[None], others: Iterable[asyncio.Future[Any]]) -> None:
    """Until `nudge` is done, or one of the others; it is this task's own, and cancelled at the end.

    Whoever sets the nudge has the task run in the next turn of the loop; `asyncio.wait` takes one turn more, and what
    is ready meanwhile goes first.
    """

    def pass_on(_: object) -> None:
        if not nudge.done():
            nudge.set_result(None)

    waits = [*others]
    for other in waits:
        other.add_done_callback(pass_on)
    try:
        await nudge
    finally:
        nudge.cancel()
        for other in waits:
            other.remove_done_callback(pass_on)
