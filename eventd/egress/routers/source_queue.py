"""The turns of the sources of routers: which are read now, which wait, and which rest."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from eventd.egress.routers.state import SourceState
from eventd.runtime.clock import Clock
from eventd.runtime.supervisor import SpawnTask

LANES = 4
"""Maximum number of sources that are read concurrently."""


class SourceQueue:
    """Gives each source with work its turn. `turns` are the tasks of those that have it.

    `move` moves the routers of a source, and raises nothing. `lazy`: only sources that a reader waits for get a turn.
    """

    def __init__(
        self, clock: Clock, spawn: SpawnTask, move: Callable[[SourceState], Coroutine[Any, Any, None]], *, lazy: bool
    ) -> None:
        self.turns: dict[asyncio.Task[None], None] = {}
        self._clock = clock
        self._spawn = spawn
        self._move = move
        self._lazy = lazy
        self._waiting: deque[SourceState] = deque()
        self._rests: dict[asyncio.Future[None], None] = {}
        self._closed = False

    def put(self, source: SourceState) -> None:
        """Let a source wait for its turn, if it has work; after its rest, if no reader waits for it."""
        if source.queued or source.moving or self._closed or not source.is_due:
            return
        if self._lazy and not source.is_awaited:
            return
        rest = source.rests_until - self._clock.monotonic()
        if rest > 0 and not source.is_awaited:
            self._put_later(source, rest)
            return
        source.queued = True
        self._waiting.append(source)
        self._fill()

    def _put_later(self, source: SourceState, seconds: float) -> None:
        if source.resting:
            return
        source.resting = True
        rest = self._clock.timer(seconds)
        self._rests[rest] = None
        rest.add_done_callback(lambda rest: self._rested(rest, source))

    def _rested(self, rest: asyncio.Future[None], source: SourceState) -> None:
        self._rests.pop(rest, None)
        source.resting = False
        self.put(source)

    def _fill(self) -> None:
        while self._waiting and len(self.turns) < LANES and not self._closed:
            source = self._waiting.popleft()
            source.queued, source.moving = False, True
            task = self._spawn(self._move(source), f"routers from {source.name}")  # tries again by itself
            self.turns[task] = None
            task.add_done_callback(partial(self._ended, source))

    def _ended(self, source: SourceState, task: asyncio.Task[None]) -> None:
        self.turns.pop(task, None)
        source.moving = False
        source.moved()
        if not source.trouble:
            self.put(source)
        self._fill()

    def close(self) -> None:
        """Give no further turns; those under way continue."""
        self._closed = True
        for rest in [*self._rests]:
            rest.cancel()
