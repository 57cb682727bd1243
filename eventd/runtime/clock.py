"""The only door to time. Everything else takes a `Clock`, so tests can drive back-off, windows and expiry."""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple, Protocol, Self

SECOND = 1_000_000
"""Microseconds in a second: times inside the node are whole microseconds since 1970, UTC."""


class Clock(Protocol):
    """Wall time for facts, monotonic time for durations, steady time for durations that are stored, and sleep.

    The wall clock may be set, by hand or by a time server. What is to happen after a while must not wait for it, and
    must not happen early because of it.
    """

    def now(self) -> int:
        """Microseconds since 1970, UTC, as people and signatures mean them."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        ...

    def steady(self) -> int:
        """Microseconds since 1970, UTC, by a clock that was set once, when the node began, and never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task."""
        ...

    def timer(self, seconds: float) -> asyncio.Future[None]:
        """A future that is done after that time; to be waited for beside others. Cancel it when it is not needed."""
        ...


def cpu_seconds() -> float:
    """Processor time that the calling thread has used."""
    return time.thread_time()


class SystemClock:
    """The machine's clock. Processes of one node share the `origin` of its first: then their steady times agree.

    `origin` is where the monotonic clock would have been 0, in microseconds since 1970.
    """

    def __init__(self, origin: int | None = None) -> None:
        self.origin = self.now() - time.monotonic_ns() // 1000 if origin is None else origin

    def now(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.monotonic()

    def steady(self) -> int:
        return self.origin + time.monotonic_ns() // 1000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def timer(self, seconds: float) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        handle = loop.call_later(seconds, lambda: None if future.done() else future.set_result(None))
        future.add_done_callback(lambda _: handle.cancel())
        return future


class Moment(NamedTuple):
    """One point in time by two clocks, in microseconds: `Clock.now` and `Clock.steady`."""

    wall: int
    steady: int

    @classmethod
    def of(cls, clock: Clock) -> Self:
        """The present."""
        return cls(clock.now(), clock.steady())


class Countdown:
    """How much has passed of a wait that is stored as two wall times: when it began, and when it is over.

    From when a wait is begun here, or first seen, the monotonic clock alone decides, so that a step of the wall clock
    neither ends nor prolongs it. Of one that an earlier process began, the wall clock says once how much has passed:
    nothing at least, and all of it at most. Times in microseconds.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wait: tuple[int, int] | None = None
        self._begun = 0

    def begin(self, since: int, until: int) -> None:
        """A wait begins now, and is stored with these times."""
        self._wait, self._begun = (since, until), self._elapsed()

    def passed(self, since: int, until: int) -> float:
        """Seconds since the stored wait began."""
        if (since, until) != self._wait:
            self.begin(since, until)
            self._begun -= max(0, min(self._clock.now() - since, until - since))
        return (self._elapsed() - self._begun) / SECOND

    def left(self, since: int, until: int) -> float:
        """Seconds until the stored wait is over."""
        return max(0.0, (until - since) / SECOND - self.passed(since, until))

    def _elapsed(self) -> int:
        """Microseconds on the monotonic clock: whole ones, as the stored times are, so that a wait has an exact end."""
        return round(self._clock.monotonic() * SECOND)
