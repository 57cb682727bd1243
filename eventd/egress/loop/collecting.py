"""Collects records for a batch until its window closes: by count, by bytes, or by the time since they were recorded.

Times are those of the log, so a batch that is collected again after a restart closes at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from eventd.egress.loop.sink import PageBounds
from eventd.log.core.eventlog import EventLog
from eventd.runtime.clock import SECOND, Moment

LONGEST = 60 * SECOND
"""Maximum time that a window with only a debounce stays open, in microseconds."""


@dataclass(slots=True)
class Window:
    """How many records are collected, and when the batch closes. Times are in microseconds; None: not set.

    It closes `batch_window` (unset: `LONGEST`) after the first record was recorded, or `debounce` after the last one,
    whichever is first; at once if neither is set, and when it is full: at `most` records or `most_bytes` bytes.
    """

    batch_window: int | None
    debounce: int | None
    most: int
    most_bytes: int
    count: int = 0
    size: int = 0
    _first: int = 0
    _last: int = 0

    def add(self, recorded_at: int, size: int) -> None:
        """Count one more record."""
        self._last = recorded_at
        self._first = self._first if self.count else recorded_at
        self.count += 1
        self.size += size

    def replace(self, size: int) -> None:
        """Subtract a record of this size from the count, because a later record has replaced it."""
        self.count -= 1
        self.size -= size

    @property
    def room(self) -> int:
        """Return how many more records fit."""
        return self.most - self.count

    @property
    def room_bytes(self) -> int:
        """Return approximately how many more bytes fit."""
        return self.most_bytes - self.size

    @property
    def is_full(self) -> bool:
        """Return whether the window closes now, because it has reached a limit of records or bytes."""
        return self.room <= 0 or self.room_bytes <= 0

    def closes_in(self, now: int) -> int:
        """Return in how many microseconds it closes without new records; 0: at once, or nothing is collected.

        `now` is by the wall clock as it was when the window opened: see `Collector.collect`.
        """
        if not self.count or self.is_full or (self.batch_window is None and self.debounce is None):
            return 0
        # If the wall clock was set back earlier, the log's times lie in the future: the window must not wait for them.
        self._first, self._last = min(self._first, now), min(self._last, now)
        closes = self._first + (LONGEST if self.batch_window is None else self.batch_window)
        if self.debounce is not None:
            closes = min(closes, self._last + self.debounce)
        return max(0, closes - now)


class ClosingWindow(Protocol):
    """Interface of a window that a `Collector` waits for; see `Window`."""

    @property
    def is_full(self) -> bool: ...

    @property
    def quiet(self) -> int:
        """Return a number of further records of the log that need not be read before the window closes by time."""
        ...

    def closes_in(self, now: int) -> int: ...


Find = Callable[[int, int], Awaitable[PageBounds]]
"""Reads the page after a position, and adds its records to the window; the second argument is the microseconds by which
the wall clock was set back since the window opened: they are added to the times of the records."""


class Collector:
    """Waits for the windows of one sink, and can be stopped: then no window closes any more."""

    def __init__(self, log: EventLog, topic_id: int, families: frozenset[str] | None = None) -> None:
        """For `families` see `Watch`."""
        self._log = log
        self._families = families
        self._topic_id = topic_id
        self._stopping: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wind_down(self) -> None:
        """Collect nothing more."""
        if not self._stopping.done():
            self._stopping.set_result(None)

    async def collect(
        self, window: ClosingWindow, upto: int, more: bool, find: Find, is_complete: Callable[[int], bool]
    ) -> int | None:
        """Read until the window closes; return the position up to which records were read, or None when stopped.

        The window has the records up to `upto`; `more` may exist beyond. It closes at once where `is_complete`.
        """
        # A step of the wall clock must neither close nor extend the window: it counts by the present clock.
        opened, clock = Moment.of(self._log.clock), self._log.clock
        with self._log.watch((self._topic_id,), families=self._families) as watch:
            while True:
                now = opened.wall + clock.steady() - opened.steady
                if more and not (window.is_full or is_complete(upto)):
                    page = await find(upto, now - clock.now())
                    upto, more = page.upto, page.full
                    continue
                if self._stopping.done():
                    return None
                wait = 0 if is_complete(upto) else window.closes_in(now)
                if wait <= 0:
                    return upto
                more = await self._wait(watch.beyond(upto + window.quiet), wait / SECOND) or watch.head > upto

    async def _wait(self, beyond: asyncio.Future[None], seconds: float) -> bool:
        """Wait until the future is done, time is up, or the sink stops. Returns whether it was the future."""
        timer = self._log.clock.timer(seconds)
        try:
            await asyncio.wait({beyond, timer, self._stopping}, return_when=asyncio.FIRST_COMPLETED)
            return beyond.done()
        finally:
            beyond.cancel()
            timer.cancel()
