"""The only door to time. Everything else takes a `Clock`, so tests can drive back-off, windows and expiry."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

SECOND = 1_000_000
"""Microseconds in a second: times inside the node are whole microseconds since 1970, UTC."""


class Clock(Protocol):
    """Wall time for facts, monotonic time for durations, and sleep."""

    def now(self) -> int:
        """Microseconds since 1970, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task."""
        ...

    def timer(self, seconds: float) -> asyncio.Future[None]:
        """A future that is done after that time; to be waited for beside others. Cancel it when it is not needed."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def timer(self, seconds: float) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        handle = loop.call_later(seconds, lambda: None if future.done() else future.set_result(None))
        future.add_done_callback(lambda _: handle.cancel())
        return future
