"""The rate of requests to a callback's endpoint."""

from __future__ import annotations

from typing import Final

from eventd.runtime.clock import Clock

RATE_LIMITED: Final = "rate_limited"
"""The reason of a running callback whose requests wait for their turn."""


class RateLimiter:
    """Limits requests to `per_second` (None: no limit), as a token bucket with the requests of one second.

    A callback and its resends share one limiter.
    """

    def __init__(self, per_second: int | None, clock: Clock) -> None:
        self.per_second = per_second
        self._clock = clock
        self._tokens = float(per_second or 0)
        self._at = clock.monotonic()

    async def wait(self) -> bool:
        """Wait until the next request may be sent; return whether it had to wait."""
        if self.per_second is None:
            return False
        now = self._clock.monotonic()
        self._tokens = min(self.per_second, self._tokens + (now - self._at) * self.per_second) - 1
        self._at = now
        if self._tokens >= 0:
            return False
        try:
            await self._clock.sleep(-self._tokens / self.per_second)
        except BaseException:  # no request is sent: the turn is free for another
            self._tokens += 1
            raise
        return True
