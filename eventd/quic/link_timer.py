"""The timer of one QUIC connection, and its time, which never goes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from eventd.runtime.clock import Clock


class LinkTimer:
    """Calls `expire` when the library asks for it: at the time that `due` returns, or never for None."""

    def __init__(self, clock: Clock, due: Callable[[], float | None], expire: Callable[[], None]) -> None:
        self._clock = clock
        self._due = due
        self._expire = expire
        self._loop = asyncio.get_running_loop()
        self._now = clock.monotonic()
        self._handle: asyncio.TimerHandle | None = None
        self._at = 0.0

    def tick(self) -> float:
        """Return the time now (monotonic seconds), by which the library counts."""
        self._now = max(self._now, self._clock.monotonic())
        return self._now

    def arm(self) -> None:
        """Have `expire` called when the library asks for it; a timer that is early stays, and looks again."""
        at = self._due()
        if at is None or (self._handle is not None and self._at <= at):
            return
        self.cancel()
        self._at = at
        self._handle = self._loop.call_later(max(0.0, at - self._now), self._ring)

    def cancel(self) -> None:
        """Call nothing more, until the timer is armed again."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _ring(self) -> None:
        self._handle = None
        at = self._due()
        self._now = max(self._now, self._at)  # the loop's timers are coarse, and may be early by a little
        if at is None or at > self.tick():
            self.arm()
            return
        self._expire()
