"""Creates all tasks, so that each has an owner, none outlives the node, and no failure goes unnoticed.

The caller decides what a failure means: `spawn` for a task that runs once, `keep` for one that is restarted, `guard`
for one that the node cannot run without. An unexpected failure is counted, and logged with the task's name; of a task
that fails in the same way each time it is restarted, once a minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import Any, Final, Protocol, TypeVar

from eventd.runtime.backoff import Backoff
from eventd.runtime.clock import Clock
from eventd.runtime.log_pause import LogPause

T = TypeVar("T")
Errors = type[Exception] | tuple[type[Exception], ...]
Chore = Callable[[], Coroutine[Any, Any, None]]
"""Starts one run of a task that is restarted when it fails."""

AGAIN: Final = Backoff(base=0.1, cap=30.0, jitter=0.0)
"""The delay before a failed task is restarted."""
STEADY_SECONDS: Final = 60.0
"""Seconds after which a restarted task counts as recovered: its next failure is again the first in a row."""

logger = logging.getLogger("eventd.tasks")


class Failure(StrEnum):
    """What happens after a task has failed; a value of a metric's label `status`."""

    ENDED = "ended"  # nothing, unless its owner starts it again
    RESTARTED = "restarted"
    FATAL = "fatal"  # the node ends


class SpawnTask(Protocol):
    """Interface of `Supervisor.spawn`, which starts a task that runs once."""

    def __call__(self, work: Coroutine[Any, Any, T], name: str, *, expects: Errors = ()) -> asyncio.Task[T]: ...


class KeepTask(Protocol):
    """Interface of `Supervisor.keep`, which starts a task that is restarted when it fails."""

    def __call__(self, make: Chore, name: str) -> asyncio.Task[None]: ...


def _uncounted(_failure: str) -> None:
    """Ignore a failure: the default of `count`."""


class Supervisor:
    """Creates every task of the node.

    `failed` gets the error of the first guarded task that ends, a RuntimeError if it returns; one that its owner
    cancels does not count. `count` is called with a `Failure` for each unexpected failure.
    """

    def __init__(self, clock: Clock, count: Callable[[str], None] = _uncounted) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._clock = clock
        self._count = count
        self._pause = LogPause(clock.monotonic)
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def spawn(self, work: Coroutine[Any, Any, T], name: str, *, expects: Errors = ()) -> asyncio.Task[T]:
        """Start a task that runs once. Errors of the types `expects` are left to its owner, not logged or counted."""
        return self._start(work, name, lambda task: self._report_ended(task, expects))

    def keep(self, make: Chore, name: str) -> asyncio.Task[None]:
        """Start a task that awaits `make()`, again after a back-off each time it fails, until it returns."""
        return self._start(self._run_again(make, name), name, lambda task: self._report_ended(task, ()))

    def guard(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task that the node cannot run without: `failed` is set when it ends, unless its owner cancels it."""

        def ended(task: asyncio.Task[None]) -> None:
            error = _failure_of(task)
            if error is not None:
                self._report(Failure.FATAL, name, error)
            if not ((task.cancelled() and error is None) or self.failed.done()):
                self.failed.set_exception(error or RuntimeError(f"the task {name!r} ended"))

        return self._start(work, name, ended)

    def _start(
        self, work: Coroutine[Any, Any, T], name: str, ended: Callable[[asyncio.Task[T]], object]
    ) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(lambda task: self._tasks.pop(task, None))
        task.add_done_callback(ended)
        return task

    async def _run_again(self, make: Chore, name: str) -> None:
        failures = 0
        while True:
            begun = self._clock.monotonic()
            try:
                return await make()
            except (Exception, asyncio.CancelledError) as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise  # cancelled by its owner
                failures = 1 if self._clock.monotonic() - begun > STEADY_SECONDS else failures + 1
                delay = AGAIN.delay(failures, 0.0)
                self._report(Failure.RESTARTED, name, error, attempts=failures, retry_seconds=delay)
            await self._clock.sleep(delay)

    def _report_ended(self, task: asyncio.Task[Any], expects: Errors) -> None:
        error = _failure_of(task)
        if error is not None and not isinstance(error, expects):
            self._report(Failure.ENDED, task.get_name(), error)

    def _report(self, failure: Failure, name: str, error: BaseException, **more: float) -> None:
        self._count(failure)
        if failure is Failure.RESTARTED and not self._pause.is_over_for(repr(error), name):
            return
        logger.error("task failed", exc_info=error, extra={"task": name, "outcome": failure.value, **more})

    async def stop(self) -> None:
        """Cancel every task and wait until all have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.failed.done() and not self.failed.cancelled():
            self.failed.exception()


def _failure_of(task: asyncio.Task[Any]) -> BaseException | None:
    """Return the error with which a task ended; None if it returned or was cancelled on request.

    A cancellation that was not requested counts as an error.
    """
    if not task.cancelled():
        return task.exception()
    return None if task.cancelling() else asyncio.CancelledError("something that it waited for was cancelled")
