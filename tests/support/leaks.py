"""What a test leaves behind is a failure of that test: tasks, threads, and everything that warns when it is collected.

A warning is an error in this suite, so an unclosed socket, transport or database connection fails a test as soon as
the collector meets it; `no_leaks` makes the collector meet it inside the test that lost it.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

_TURNS_TO_END = 20
_SECONDS_TO_END = 2.0


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """No task, no thread and nothing unclosed survives a test."""
    before = set(threading.enumerate())
    gc.freeze()  # the collection below looks at what this test made, not at the whole suite
    if request.node.get_closest_marker("asyncio") is not None:
        request.getfixturevalue("no_task_survives")
    yield
    gc.collect()
    gc.unfreeze()
    left = [thread.name for thread in set(threading.enumerate()) - before if _still_runs(thread)]
    assert not left, f"threads survive the test, something was not closed: {', '.join(sorted(left))}"


@pytest.fixture
async def no_task_survives() -> AsyncIterator[None]:
    """Fails when a task is left on the test's loop after the test and all its other fixtures."""
    yield
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
    """The files under `prefix` (a folder, or the beginning of a path) this process has open; Linux only."""
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


def _other_tasks() -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


def _still_runs(thread: threading.Thread) -> bool:
    thread.join(_SECONDS_TO_END)
    return thread.is_alive()
