"""Limits the memory of responses that clients have not read yet, and chooses the one to drop above the limit.

A response stays in memory until its client has read most of it, and a client may read slowly. Above the limit, the
address whose responses take most memory loses the response that is read slowest.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from eventd.api.listener.connection_limiter import address_of

MOST_BYTES = 128 << 20
"""Maximum bytes of the large unread responses of one listener, approximately."""
SMALL_BYTES = 64 << 10
"""Responses up to this size do not count."""
_LEAST_SECONDS = 1.0
"""Minimum age of a response in seconds when its speed is computed: a younger one has had no time to be slow."""


@dataclass(eq=False, slots=True)
class _Answer:
    """A large response. `size` in bytes; `begun`: when it began to be sent, in seconds of the loop's clock."""

    transport: asyncio.WriteTransport
    address: str
    size: int
    begun: float

    def speed(self, now: float) -> float:
        """Return how fast the client reads the response, in bytes per second."""
        return (self.size - self.transport.get_write_buffer_size()) / max(now - self.begun, _LEAST_SECONDS)


class UnreadAnswers:
    """The large responses that a listener is sending: together at most `most` bytes, unless one alone is larger."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._answers: dict[_Answer, None] = {}
        self.held = 0

    @contextmanager
    def hold(self, transport: asyncio.WriteTransport | None, size: int) -> Iterator[None]:
        """Count a response of `size` bytes while the block sends it, unless it is small.

        Above the limit, closes connections whose responses are read slowly.
        """
        if transport is None or size <= SMALL_BYTES:
            yield
            return
        now = asyncio.get_running_loop().time()
        while self._answers and self.held + size > self._most:
            slowest = self._find_slowest(now)
            self._give_back(slowest)
            slowest.transport.abort()
        answer = _Answer(transport, address_of(transport), size, now)
        self._answers[answer] = None
        self.held += size
        try:
            yield
        finally:
            self._give_back(answer)

    def _find_slowest(self, now: float) -> _Answer:
        by_address: Counter[str] = Counter()
        for answer in self._answers:
            by_address[answer.address] += answer.size
        (address, _), *_ = by_address.most_common(1)
        return min((each for each in self._answers if each.address == address), key=lambda each: each.speed(now))

    def _give_back(self, answer: _Answer) -> None:
        if answer in self._answers:
            del self._answers[answer]
            self.held -= answer.size
