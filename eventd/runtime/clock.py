"""The only access to time. All other code takes a `Clock`, so that tests control back-offs, windows and expiry."""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple, Protocol, Self

SECOND = 1_000_000
"""Microseconds in a second. Times inside the node are whole microseconds since 1970, UTC."""


class Clock(Protocol):
    """Interface: wall time for timestamps, monotonic time for durations, steady time for stored durations, and sleep.

    The wall clock may be set, by hand or by a time server. A delay must not become longer or shorter because of it.
    """

    def now(self) -> int:
        """Return microseconds since 1970, UTC, by the wall clock."""
        ...

    def monotonic(self) -> float:
        """Return seconds on a clock that never goes back."""
        ...

    def steady(self) -> int:
        """Return microseconds since 1970, UTC, on a clock that is set once when the node starts and never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task for this number of seconds."""
        ...

    def timer(self, seconds: float) -> asyncio.Future[None]:
        """Return a future that is done after this number of seconds, to wait for it together with other futures.

        Cancel the future when it is no longer needed.
        """
        ...


def cpu_seconds() -> float:
    """Return the processor seconds that the calling thread has used."""
    return time.thread_time()


class SystemClock:
    """The machine's clock.

    Processes of one node share one `origin`, so that their steady times agree. `origin` is the time at
    which the monotonic clock was 0, in microseconds since 1970.
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
    """One point in time on two clocks, in microseconds: `Clock.now` and `Clock.steady`."""

    wall: int
    steady: int

    @classmethod
    def of(cls, clock: Clock) -> Self:
        """Return the present moment of a clock."""
        return cls(clock.now(), clock.steady())


class StartTime:
    """When something began in this process, by the wall clock as it is set now.

    A machine may start with a clock that is hours wrong, and correct it later: what others sign after the correction
    must not count as signed before the start, or the other way round.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun = clock.monotonic()

    def seconds(self) -> int:
        """Return the time in whole seconds since 1970, rounded down."""
        passed = round((self._clock.monotonic() - self._begun) * SECOND)
        return (self._clock.now() - passed) // SECOND


class Countdown:
    """A delay that is stored as two wall times, its begin and its end.

    Once this process began the delay, or first saw it, only the monotonic clock counts, so that setting the wall clock
    neither ends nor extends it. For a delay that an earlier process began, the wall clock is read once to find out how
    much has passed, at least 0 and at most all of it. The stored times are in microseconds.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wait: tuple[int, int] | None = None
        self._begun = 0

    def begin(self, since: int, until: int) -> None:
        """Begin a delay now; it is stored as the wall times `since` and `until`."""
        self._wait, self._begun = (since, until), self._elapsed()

    def passed(self, since: int, until: int) -> float:
        """Return the seconds since the stored delay began; a delay that this process has not seen yet is begun."""
        if (since, until) != self._wait:
            self.begin(since, until)
            self._begun -= max(0, min(self._clock.now() - since, until - since))
        return (self._elapsed() - self._begun) / SECOND

    def left(self, since: int, until: int) -> float:
        """Return the seconds until the stored delay ends; 0 if it has ended."""
        return max(0.0, (until - since) / SECOND - self.passed(since, until))

    def _elapsed(self) -> int:
        """Return the monotonic time in whole microseconds, so that a delay has an exact end."""
        return round(self._clock.monotonic() * SECOND)
