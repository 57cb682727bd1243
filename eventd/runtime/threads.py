"""Thread pools, from a factory that is passed in like the clock: a simulation passes one that starts no thread.

The loop's default executor, which `asyncio.to_thread` uses, is not made here: the loop itself provides it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, Final, Protocol, TypeVar, cast

T = TypeVar("T")


class ThreadFactory(Protocol):
    """Creates a thread pool, given the number of threads, the prefix of their names, and what each runs first."""

    def __call__(self, threads: int, name: str, begin: Callable[[], None] | None = None, /) -> Executor: ...


THREADS: Final[ThreadFactory] = ThreadPoolExecutor
"""Creates pools of real threads: the default; code inside a node uses the factory of its node."""


class RunInLoop(Protocol):
    """Runs a job in the calling thread, and returns its result."""

    def __call__(self, job: Callable[[], T], /) -> T: ...


def in_loop_runner(pool: Executor) -> RunInLoop:
    """Return the function by which the thread of the loop runs a job of an idle pool.

    A simulated pool has its own, because there a job takes simulated time and is recorded.
    """
    return cast(RunInLoop, getattr(pool, "run_in_loop", _call))


def _call(job: Callable[[], Any], /) -> Any:
    return job()
