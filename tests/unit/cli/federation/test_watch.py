"""Where `event list --watch` begins, and in which order it shows the events."""

from __future__ import annotations

import asyncio
import io
from types import SimpleNamespace
from typing import Any

import pytest

from eventd.cli.federation.watch import watch_events
from eventd.cli.gateway.selecting import MOST
from eventd.cli.terminal.output import Output


class Log:
    """The events of a group, in pages as a node answers them. A list from behind the end ends the watch."""

    def __init__(self, events: int, *, page: int = MOST) -> None:
        self.asked: list[int] = []
        self._events = [{"id": str(number)} for number in range(1, events + 1)]
        self._page = page

    async def call(
        self, operation: str, *, group: str, limit: int, after: str, newest: bool = False, **filters: Any
    ) -> dict[str, Any]:
        assert (operation, group, filters) == ("events.list", "edge", {"type": ["t"]})
        assert 1 <= limit <= MOST
        self.asked.append(limit)
        end = len(self._events)
        if not newest and after == str(end):
            raise asyncio.CancelledError
        place = int(after or (end + 1 if newest else 0))
        rest = self._events[: place - 1][::-1] if newest else self._events[place:]
        shown = rest[: min(limit, self._page)]
        more = shown[-1]["id"] if len(shown) < len(rest) else None
        return {"events": shown, "next": more, "upto": str(end), "gap": None}


async def watched(log: Log, *, limit: int, after: str = "") -> list[int]:
    stream = io.StringIO()
    session: Any = SimpleNamespace(out=Output("name", headers=True, colour=False, stream=stream), call=log.call)
    await watch_events(session, ["edge"], {"type": ["t"]}, (), limit=limit, after=after)
    return [int(line) for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("limit", "first"),
    [(1, 2500), (100, 2401), (1000, 1501), (1001, 1500), (2100, 401), (2500, 1), (9999, 1), (0, 1)],
)
async def test_it_begins_with_the_newest_up_to_the_limit(limit: int, first: int) -> None:
    assert await watched(Log(2500), limit=limit) == list(range(first, 2501))


async def test_pages_may_be_shorter_than_what_is_asked_for() -> None:
    log = Log(30, page=7)
    assert await watched(log, limit=16) == list(range(15, 31))
    assert log.asked[:3] == [16, 9, 2]


async def test_a_token_has_precedence_over_the_limit() -> None:
    assert await watched(Log(2500), limit=3, after="400") == list(range(401, 2501))


@pytest.mark.parametrize("limit", [0, 5])
async def test_an_empty_log_shows_nothing(limit: int) -> None:
    class Ended(Log):
        async def call(self, operation: str, /, **params: Any) -> dict[str, Any]:
            if len(self.asked) == 2:
                raise asyncio.CancelledError
            self.asked.append(params["limit"])
            return {"events": [], "next": None, "upto": "0", "gap": None}

    assert await watched(Ended(0), limit=limit) == []
