"""Thread pools without threads: each job is one step of the loop, at a random time after it was queued.

The answer of a job arrives a random time after it ran. A process that is killed between the two has committed, and its
caller never learns of it. A job that another thread does takes a random time as well, in which nothing else runs.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, Protocol, TypeVar

from eventd.simulation.world.loop import VirtualLoop

T = TypeVar("T")


class JobTiming(Protocol):
    """The times of a machine's jobs, and the note of each."""

    def job_seconds(self) -> float:
        """Return the seconds until the next job runs, or until its answer arrives."""
        ...

    def job_done(self, name: str) -> None:
        """Note that a job of the pool `name` has run, and has not answered yet."""
        ...


class _Job:
    """A call that runs once."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.answer: Future[Any] = Future()
        self._call = call
        self._result: tuple[bool, Any] | None = None
        self._answered = False

    def run(self) -> bool:
        """Run the call, unless it ran before or its caller has given up; return whether it ran now."""
        if self._result is not None or self.answer.done() or not self.answer.set_running_or_notify_cancel():
            return False
        try:
            self._result = True, self._call()
        except BaseException as error:
            self._result = False, error
        return True

    def tell(self) -> None:
        """Pass on the result of the call, once."""
        if self._result is None or self._answered:
            return
        self._answered = True
        succeeded, result = self._result
        if succeeded:
            self.answer.set_result(result)
        else:
            self.answer.set_exception(result)


def _name_of(function: Any) -> str:
    """Return the name of what a call does: of an operation on the database, that of the function that it runs."""
    if isinstance(function, partial):
        function = function.args[0] if function.args else function.func
    return str(getattr(function, "__name__", ""))


class SimulatedPool(Executor):
    """A pool of `threads` threads of one process; `begin` precedes the first job."""

    def __init__(
        self, loop: VirtualLoop, timing: JobTiming, threads: int, name: str, begin: Callable[[], None] | None = None
    ) -> None:
        self.name = name
        self.operations: Counter[str] = Counter()
        """How often each function was called on the database or in the pool, by its name."""
        self._loop = loop
        self._timing = timing
        self._threads = threads
        self._begin = begin
        self._queue: deque[_Job] = deque()
        self._busy: dict[_Job, None] = {}
        self._is_shut = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self._is_shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        self.operations[_name_of(fn)] += 1
        job = _Job(lambda: fn(*args, **kwargs))
        self._queue.append(job)
        self._start_more()
        return job.answer

    def _start_more(self) -> None:
        while self._queue and len(self._busy) < self._threads:
            job = self._queue.popleft()
            self._busy[job] = None
            self._loop.call_later(self._timing.job_seconds(), self._run, job)

    def _run(self, job: _Job) -> None:
        if self._execute(job):
            self._timing.job_done(self.name)
        self._loop.call_later(self._timing.job_seconds(), self._tell, job)

    def run_in_loop(self, call: Callable[[], T]) -> T:
        """Run a job at once, as a part of the step that calls this."""
        self._loop.pass_time(self._timing.job_seconds())
        job = _Job(call)
        if self._execute(job):
            self._timing.job_done(self.name)
        job.tell()
        result: T = job.answer.result()
        return result

    def _execute(self, job: _Job) -> bool:
        begin, self._begin = self._begin, None
        if begin is not None:
            begin()
        return job.run()

    def _tell(self, job: _Job) -> None:
        self._busy.pop(job, None)
        job.tell()
        self._start_more()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no further jobs; with `wait`, finish those that were accepted."""
        self._is_shut = True
        if cancel_futures:
            while self._queue:
                self._queue.popleft().answer.cancel()
        if not wait:
            return
        unfinished = [*self._busy, *self._queue]
        self._queue.clear()
        for job in unfinished:
            self._execute(job)
            self._loop.call_later(self._timing.job_seconds(), job.tell)
