"""Limits failed sign-ins, so that a caller cannot try out many keys."""

from __future__ import annotations

from collections import deque
from typing import Final

from eventd.api.listener.connection_limiter import network_of
from eventd.runtime.clock import Clock

FAILURES_PER_ADDRESS: Final = 10
FAILURES: Final = 60
WINDOW_SECONDS: Final = 60.0
_LONGEST_ADDRESS: Final = 64
KNOWN_ADDRESSES: Final = 256
KNOWN_SECONDS: Final = 24 * 3600.0


class SignInLimiter:
    """Allows `FAILURES_PER_ADDRESS` failed sign-ins from an address in a window of time, and `FAILURES` from all
    addresses together.

    An IPv6 address counts as its network of 64 bits. The limits are those of one process. It remembers the newest
    `FAILURES` failures, which takes the same memory however many addresses try. A successful sign-in is not counted,
    and exempts its address from the common limit for `KNOWN_SECONDS`, so that failures from many other addresses do
    not lock it out. The newest `KNOWN_ADDRESSES` such addresses are remembered.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, float] = {}
        self._failures: deque[tuple[float, str]] = deque(maxlen=FAILURES)  # when, by monotonic time, and from where

    def allow(self, address: str) -> float:
        """Return the seconds to wait before a sign-in from this address may be tried; 0: now.

        Await nothing between this call and that of `failed`: sign-ins in between would not be counted yet.
        """
        now, place = self._clock.monotonic(), _place(address)
        while self._failures and self._failures[0][0] + WINDOW_SECONDS <= now:
            self._failures.popleft()
        own = [at for at, each in self._failures if each == place]
        is_known = self._known.get(place, -KNOWN_SECONDS) + KNOWN_SECONDS > now
        full = [self._failures[0][0]] if len(self._failures) == FAILURES and not is_known else []
        full += own[-FAILURES_PER_ADDRESS:][:1] if len(own) >= FAILURES_PER_ADDRESS else []
        return max((at + WINDOW_SECONDS - now for at in full), default=0.0)

    def failed(self, address: str) -> None:
        """Count a failed sign-in from this address."""
        self._failures.append((self._clock.monotonic(), _place(address)))

    def succeeded(self, address: str) -> None:
        """Note that a key was right from this address."""
        place = _place(address)
        self._known.pop(place, None)
        self._known[place] = self._clock.monotonic()
        if len(self._known) > KNOWN_ADDRESSES:
            del self._known[next(iter(self._known))]


def _place(address: str) -> str:
    return network_of(address)[:_LONGEST_ADDRESS]
