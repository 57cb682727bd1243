"""Leak checks: a test fails if it leaves tasks, threads, processes, signal handlers, or objects that warn when
collected, or has started Spark without being marked as a test with Spark.

A warning is an error in this suite, so an unclosed socket, transport or database connection fails a test when it is
collected; `no_leaks` runs the collector inside the test that leaked it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.child_processes import child_processes, reap_orphans

_TURNS_TO_END = 20
_SECONDS_TO_END = 2.0
_SECONDS_BETWEEN_LOOKS = 0.01
_TESTS_BETWEEN_FULL_COLLECTIONS = 2000
"""What was in use when it was frozen is collected only then: that takes as long as a hundred tests without I/O."""
_TESTS = itertools.count(1)
_OF_LOOP = "asyncio_"
"""Threads of the loop's own pool, which end with it: `no_task_survives` waits for them."""


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail if the test started Spark or left a task, a thread, a process, a signal handler or an unclosed object."""
    before = set(threading.enumerate())
    dispositions = _dispositions()
    spark_allowed = _spark_started() or request.node.get_closest_marker("spark") is not None
    there = {child.pid for child in child_processes() if child.state != "Z"}
    if next(_TESTS) % _TESTS_BETWEEN_FULL_COLLECTIONS == 0:
        gc.unfreeze()
    gc.collect()  # the loop of the test before ends after that test's own collection
    gc.freeze()  # each collection looks at what one test made and not at the whole suite
    if request.node.get_closest_marker("asyncio") is not None:
        request.getfixturevalue("no_task_survives")
    yield
    gc.collect()
    made = [thread for thread in set(threading.enumerate()) - before if not thread.name.startswith(_OF_LOOP)]
    left = [thread.name for thread in made if _still_runs(thread)]
    survivors = _surviving_processes(there)
    changed = _put_back(dispositions)
    assert spark_allowed or not _spark_started(), "Spark was started: use its stand-in, or mark the test with `spark`"
    assert not changed, f"handlers of signals survive the test: {', '.join(changed)}"
    assert not left, f"threads survive the test, something was not closed: {', '.join(sorted(left))}"
    assert not survivors, "processes survive the test:\n" + "\n".join(survivors)


@pytest.fixture
async def no_task_survives() -> AsyncIterator[None]:
    """Fail if a task is left on the test's loop after the test and all its other fixtures."""
    yield
    await asyncio.get_running_loop().shutdown_default_executor()  # the loop's own threads end with the loop
    for _ in range(_TURNS_TO_END):  # a cancelled or finishing task needs a few turns of the loop
        if not (left := _other_tasks()):
            return
        await asyncio.sleep(0)
    told = "\n".join(f"  {task!r}" for task in left)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    pytest.fail(f"{len(left)} task(s) survive the test:\n{told}")


def open_files(prefix: Path) -> list[str]:
    """Return the files under `prefix` (a folder, or the beginning of a path) that this process has open; Linux only."""
    links = Path("/proc/self/fd")
    if not links.is_dir():
        return []
    targets = []
    for link in links.iterdir():
        try:
            targets.append(os.readlink(link))
        except OSError:
            continue  # the descriptor of the listing itself
    return sorted(target for target in targets if target.startswith(str(prefix)))


def _spark_started() -> bool:
    """Return whether this process has a Java of Spark's, which stays until it ends."""
    pyspark: Any = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.SparkContext._gateway is not None


def _dispositions() -> dict[signal.Signals, Any]:
    return {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}


def _put_back(dispositions: dict[signal.Signals, Any]) -> list[str]:
    """Restore changed signal handlers for the next test; return the signals.

    A handler of the test's loop ends with the loop, which is closed later.
    """
    of_loop = asyncio.unix_events._sighandler_noop  # type: ignore[attr-defined]
    changed = [number for number, before in dispositions.items() if signal.getsignal(number) not in (before, of_loop)]
    for number in changed:
        signal.signal(number, dispositions[number])
    return [number.name for number in changed]


def _other_tasks() -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


def _surviving_processes(there: set[int]) -> list[str]:
    """Kill the children that the test left, its own or orphans of a killed child; return them.

    An orphan that is about to exit is given the time to do so, and is reaped.
    """
    deadline = time.monotonic() + _SECONDS_TO_END
    while left := [child for child in reap_orphans() if child.pid not in there]:
        if time.monotonic() > deadline:
            for child in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGKILL)
            return [str(child) for child in left]
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    return []


def _still_runs(thread: threading.Thread) -> bool:
    thread.join(_SECONDS_TO_END)
    return thread.is_alive()
