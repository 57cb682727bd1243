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


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
