"""The last answers of operations that take long: a page shows them at once, with their time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from datetime import datetime
from typing import Any, Final, NamedTuple

from eventd.runtime.clock import Clock
from federation.event import from_micros

PATIENCE_SECONDS: Final = 0.1
"""How long a page waits before it shows an older answer, or none. What takes no longer is asked each time."""
SHARE: Final = 0.1
"""Maximum part of the time that is spent on one operation that takes longer."""
MOST_ANSWERS: Final = 64
"""How many answers are kept, those of other visitors and parameters included."""
Ask = Callable[[], Awaitable[Any]]
Spawn = Callable[[Coroutine[Any, Any, None], str], object]
FindRecent = Callable[[Hashable, Ask], Awaitable["RecentAnswer | None"]]
"""`RecentAnswers.find` for one visitor."""


class RecentAnswer(NamedTuple):
    """An answer, and when it was given."""

    content: Any
    at: datetime


class _Question:
    """What is known of one operation with its parameters. `rests_until`: on the monotonic clock."""

    def __init__(self) -> None:
        self.last: RecentAnswer | None = None
        self.error: Exception | None = None
        self.running: asyncio.Future[None] | None = None
        self.rests_until = 0.0


class RecentAnswers:
    """The answers of one process, by what was asked and by who may see it."""

    def __init__(self, clock: Clock, spawn: Spawn) -> None:
        self._clock = clock
        self._spawn = spawn
        self._questions: dict[Hashable, _Question] = {}

    def forget(self) -> None:
        """Forget all answers, also those under way: an action may have changed them."""
        self._questions.clear()

    async def find(
        self, whose: Hashable, question: Hashable, ask: Ask, patience: float = PATIENCE_SECONDS
    ) -> RecentAnswer | None:
        """Return the newest answer that there is after `patience` seconds; None if there is none yet.

        `whose`: what visitors share who may see the same. Asks again in the background unless the last answer is
        recent. Raises the error of `ask`.
        """
        key = (whose, question)
        asked = self._questions.pop(key, None) or _Question()
        self._questions[key] = asked  # the newest last
        if len(self._questions) > MOST_ANSWERS:
            del self._questions[next(iter(self._questions))]
        if asked.running is None and self._clock.monotonic() >= asked.rests_until:
            asked.running = asyncio.get_running_loop().create_future()
            self._spawn(self._ask(asked, ask), "console question")
        if asked.running is not None:
            await asyncio.wait({asked.running, self._clock.timer(patience)}, return_when=asyncio.FIRST_COMPLETED)
        if asked.error is not None:
            raise asked.error
        return asked.last

    async def _ask(self, question: _Question, ask: Ask) -> None:
        begun = self._clock.monotonic()
        try:
            question.last, question.error = RecentAnswer(await ask(), from_micros(self._clock.now())), None
        except Exception as error:  # the page gets it, and not the task
            question.error = error
        finally:
            took = self._clock.monotonic() - begun
            if question.error is None and took > PATIENCE_SECONDS:
                question.rests_until = self._clock.monotonic() + took * (1 / SHARE - 1)
            if question.running is not None:
                question.running.set_result(None)
            question.running = None
