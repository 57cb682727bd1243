"""Limits what one call of a pull may use: time, questions to the peer, and bytes that are hashed for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from eventd.egress.peers.questions import Asker
from eventd.runtime.clock import Clock
from federation.compare import Ids, Question, State
from federation.returned import ReturnedEvents

R = TypeVar("R", State, Ids, ReturnedEvents)

GRACE_SECONDS = 30.0
"""Seconds that a step may continue after the time of the call is over: a peer that is busy, or on a slow link, needs
some seconds."""
MOST_QUESTIONS = 500
"""Maximum number of questions in one call."""
HASHED_BYTES = 256 << 20
"""Bytes that one call hashes to check receipts before it answers: about a second of one processor."""


class CallEnded(Exception):
    """The call must end within a step: the client has left, or the time is over by more than the grace."""


class PullBudget:
    """The budget that is left of one call. `waits` returns whether the client still waits for the answer."""

    def __init__(self, clock: Clock, seconds: float, waits: Callable[[], bool]) -> None:
        self._clock = clock
        self._end = clock.monotonic() + seconds
        self._waits = waits
        self._questions = self._hashed = 0

    @property
    def is_spent(self) -> bool:
        """Return whether the call should end before its next step."""
        over = self._questions >= MOST_QUESTIONS or self._hashed >= HASHED_BYTES
        return over or self._clock.monotonic() >= self._end or not self._waits()

    def count_hashed(self, size: int) -> None:
        """Count bytes that are about to be hashed."""
        self._hashed += size

    async def ask(self, asker: Asker, question: Question, kind: type[R]) -> R:
        """Ask the peer. Raises `CallEnded` if the client has left or the time is over, and what `Asker.ask` raises."""
        left = self._end + GRACE_SECONDS - self._clock.monotonic()
        if left <= 0 or not self._waits():
            raise CallEnded
        self._questions += 1
        try:
            async with asyncio.timeout(left):
                return await asker.ask(question, kind)
        except TimeoutError:
            raise CallEnded from None
