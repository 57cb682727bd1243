"""Runs calls that may block for a long time, such as look-ups of names, in separate threads."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final, TypeVar

from eventd.runtime.threads import ThreadFactory

R = TypeVar("R")
COUNT: Final = 64
"""Maximum number of threads."""
SLOW_SECONDS: Final = 1.0
"""A call that takes longer makes its place slow; calls to all slow places together get only half of the threads."""
MOST_WAITING: Final = 4096
"""Maximum number of callers that wait for a thread."""
MOST_SLOW: Final = 4096
"""Maximum number of places that are remembered as slow."""


class BlockingCalls:
    """Runs calls in at most `COUNT` threads. Each call has a key: callers with the same key share the call under way.

    A call cannot be interrupted, so one that hangs keeps its thread although its caller gives up. Calls to places,
    such as domains or folders, that were slow last cannot take all threads, so that calls to other places still get
    threads. `name` is the prefix of the names of the threads.
    """

    def __init__(self, threads: ThreadFactory, name: str) -> None:
        self._make = threads
        self._name = name
        self._pool: Executor | None = None
        self._under_way: dict[str, asyncio.Future[Any]] = {}
        self._slow: dict[str, None] = {}  # the oldest first
        self._turns = asyncio.Semaphore(COUNT)
        self._slow_turns = asyncio.Semaphore(COUNT // 2)
        self._waiting = 0
        self._closed = False

    async def run(self, key: str, place: str, call: Callable[[], R]) -> R:
        """Return the result of a call, or raise what it raises. Cancelling leaves a call under way to the others.

        Raises OSError if too many callers wait, if no thread can be started, or after `close`.
        """
        made = self._under_way.get(key)
        if made is None:
            made = await self._begin(key, place, call)
        found: R = await asyncio.shield(made)
        return found

    async def _begin(self, key: str, place: str, call: Callable[[], R]) -> asyncio.Future[R]:
        if self._waiting >= MOST_WAITING:
            raise OSError(errno.EAGAIN, f"{MOST_WAITING} others wait")
        held = [self._turns]
        self._waiting += 1
        try:
            if place in self._slow:
                held.append(self._slow_turns)
                await self._slow_turns.acquire()
            try:
                await self._turns.acquire()
            except BaseException:
                for turn in held[1:]:
                    turn.release()
                raise
        finally:
            self._waiting -= 1
        made = self._under_way.get(key)
        if made is None:
            made = self._start(key, place, call, held)
        else:  # another caller was first
            _release(held)
        return made

    def _start(self, key: str, place: str, call: Callable[[], R], held: list[asyncio.Semaphore]) -> asyncio.Future[R]:
        loop = asyncio.get_running_loop()
        if self._closed:
            _release(held)
            raise OSError(errno.ECANCELED, "no further calls are started")
        if self._pool is None:
            self._pool = self._make(COUNT, self._name)
        try:
            made = loop.run_in_executor(self._pool, call)
        except RuntimeError as error:
            _release(held)
            raise OSError(errno.EAGAIN, str(error)) from None
        timer = loop.call_later(SLOW_SECONDS, self._note_slow, place)
        self._under_way[key] = made

        def end(done: asyncio.Future[R]) -> None:
            del self._under_way[key]
            if loop.time() < timer.when():
                self._slow.pop(place, None)
            timer.cancel()
            _release(held)
            if not done.cancelled():
                done.exception()  # perhaps no caller waits for it any more

        made.add_done_callback(end)
        return made

    def _note_slow(self, place: str) -> None:
        self._slow[place] = None
        if len(self._slow) > MOST_SLOW:
            del self._slow[next(iter(self._slow))]

    def close(self) -> None:
        """Start no further calls; calls under way continue."""
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def _release(turns: list[asyncio.Semaphore]) -> None:
    for turn in turns:
        turn.release()
