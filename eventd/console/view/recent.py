"""Keeps the last answers of operations that take long, so that a page can show them immediately, with their time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from datetime import datetime
from typing import Any, Final, NamedTuple

from eventd.runtime.clock import Clock
from eventd.runtime.supervisor import SpawnTask
from federation.event import from_micros

PATIENCE_SECONDS: Final = 0.1
"""Seconds that a page waits before it shows an older answer, or none. Operations that take less time are called for
each page."""
SHARE: Final = 0.1
"""Maximum part of the time that is spent on one operation that takes longer."""
MOST_ANSWERS: Final = 64
"""How many answers are kept, those of other visitors and parameters included."""
Ask = Callable[[], Awaitable[Any]]
FindRecent = Callable[[Hashable, Ask], Awaitable["RecentAnswer | None"]]
"""`RecentAnswers.find` for one visitor."""


class RecentAnswer(NamedTuple):
    """An answer, and when it was given. `is_outdated`: an action was done since."""

    content: Any
    at: datetime
    is_outdated: bool = False


class _OperationState:
    """What is known of one operation with its parameters. `rests_until`: on the monotonic clock.

    `is_stale`: an action was done after the running call of the operation began. `before`: the last answer of the time
    before an action, until there is another one.
    """

    def __init__(self) -> None:
        self.is_stale = False
        self.last: RecentAnswer | None = None
        self.before: RecentAnswer | None = None
        self.error: Exception | None = None
        self.running: asyncio.Future[None] | None = None
        self.rests_until = 0.0


class RecentAnswers:
    """The answers of one process, by what was asked and by who may see it."""

    def __init__(self, clock: Clock, spawn: SpawnTask) -> None:
        self._clock = clock
        self._spawn = spawn
        self._asked: dict[Hashable, _OperationState] = {}

    def forget(self) -> None:
        """Take all answers for outdated, because an action may have changed them.

        Operations that are running are called once more after they end.
        """
        for asked in self._asked.values():
            if asked.last is not None:
                asked.before = asked.last._replace(is_outdated=True)
            asked.last, asked.error, asked.rests_until = None, None, 0.0
            asked.is_stale = asked.running is not None

    async def find(
        self,
        whose: Hashable,
        question: Hashable,
        ask: Ask,
        patience: float = PATIENCE_SECONDS,
        then: Callable[[], None] | None = None,
    ) -> RecentAnswer | None:
        """Return the newest answer that there is after `patience` seconds, perhaps an outdated one; None without any.

        `whose`: a value that is equal for visitors who may see the same. Calls the operation again in the background
        unless the last answer is recent. `then` is called when the answer arrives that this has lacked.
        Raises the error of `ask`.
        """
        key = (whose, question)
        asked = self._asked.pop(key, None) or _OperationState()
        self._asked[key] = asked  # the newest last
        self._evict(key)
        if asked.running is None and self._clock.monotonic() >= asked.rests_until:
            asked.running = asyncio.get_running_loop().create_future()
            self._spawn(self._ask(asked, ask), "console question")
        if asked.running is not None:
            await asyncio.wait({asked.running, self._clock.timer(patience)}, return_when=asyncio.FIRST_COMPLETED)
        if asked.error is not None:
            raise asked.error
        if asked.last is None and asked.running is not None and then is not None:
            asked.running.add_done_callback(lambda _: then())
        return asked.last or asked.before

    def _evict(self, newest: Hashable) -> None:
        """Forget the oldest answers beyond `MOST_ANSWERS`.

        Entries of running operations are kept, or these would be run twice.
        """
        surplus = len(self._asked) - MOST_ANSWERS
        if surplus > 0:
            resting = [key for key, asked in self._asked.items() if asked.running is None and key != newest]
            for key in resting[:surplus]:
                del self._asked[key]

    async def _ask(self, question: _OperationState, ask: Ask) -> None:
        try:
            took = await self._ask_once(question, ask)
            while question.is_stale:
                took = await self._ask_once(question, ask)
            if question.error is None and took > PATIENCE_SECONDS:
                question.rests_until = self._clock.monotonic() + took * (1 / SHARE - 1)
        finally:
            if question.running is not None:
                question.running.set_result(None)
            question.running = None

    async def _ask_once(self, question: _OperationState, ask: Ask) -> float:
        """Ask, and keep the answer unless it became stale; return the seconds that it took."""
        question.is_stale, begun = False, self._clock.monotonic()
        try:
            answer = await ask()
        except Exception as error:  # the page gets it, and not the task
            if not question.is_stale:
                question.error = error
        else:
            if not question.is_stale:
                question.last, question.error = RecentAnswer(answer, from_micros(self._clock.now())), None
                question.before = None
        return self._clock.monotonic() - begun
