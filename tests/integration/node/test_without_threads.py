"""A node runs on the pools and the boot that it is given, as in a simulation: it starts no thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from eventd.node.machine_access import MachineAccess
from eventd.node.node import Node
from eventd.runtime.clock import SystemClock
from eventd.settings.loading import load
from eventd.store.engine.statements import run_of_system
from eventd.store.rows.runs import RunStatus, read_runs
from eventd.testing import SeededChance, until
from tests.integration.conftest import MakeSites
from tests.support.derived import plugin, program
from tests.support.sites import Site


class LoopPool(Executor):
    """A pool whose jobs are turns of the loop, one after the other; `begin` precedes the first."""

    def __init__(self, loop: asyncio.AbstractEventLoop, begin: Callable[[], None] | None = None) -> None:
        self._loop = loop
        self._begin = begin

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        answer: Future[Any] = Future()
        self._loop.call_soon_threadsafe(self._run, answer, lambda: fn(*args, **kwargs))
        return answer

    def _run(self, answer: Future[Any], job: Callable[[], Any]) -> None:
        if not answer.set_running_or_notify_cancel():
            return
        if self._begin is not None:
            self._begin()
        self._begin = None
        try:
            answer.set_result(job())
        except BaseException as error:
            answer.set_exception(error)


@pytest.fixture
def pools() -> list[str]:
    """The names of the pools that the node has created."""
    return []


@pytest.fixture
def threads() -> set[threading.Thread]:
    """The threads before the node started."""
    return set(threading.enumerate())


@pytest.fixture
async def site(
    sites: MakeSites, pools: list[str], threads: set[threading.Thread], monkeypatch: pytest.MonkeyPatch
) -> Site:
    """A running node with pools of the loop, on a loop without threads."""
    (made,) = sites("a")
    loop = asyncio.get_running_loop()
    own = LoopPool(loop)

    def pool(threads: int, name: str, begin: Callable[[], None] | None = None, /) -> Executor:
        pools.append(name)
        return LoopPool(loop, begin)

    monkeypatch.setattr(
        loop, "run_in_executor", lambda given, fn, *args: asyncio.wrap_future((given or own).submit(fn, *args))
    )
    settings = load({"database_url": made.url, "api_listen": "127.0.0.1:0"}, {})
    machine = MachineAccess(threads=pool, boot_id="the boot")
    made.node = Node(settings, clock=SystemClock(), chance=SeededChance(1), machine=machine)
    await made.node.start()
    return made


async def test_a_node_starts_no_thread_beside_the_pools_that_it_is_given(
    site: Site, pools: list[str], threads: set[threading.Thread], tmp_path: Path
) -> None:
    await site.join()
    await site.emit("one")
    await site.holds("one")
    await site.apply(plugin(program(tmp_path, "answer([])"), triggers=[{"type": "interval", "every": "1h"}]))

    async def has_run() -> bool:
        return [run.status for run in await site.running.log.database.read(read_runs)] == [RunStatus.SUCCEEDED]

    await until(has_run, "the plugin to run by its interval")
    await site.ask("plugins.run", name="routes", dryRun=True)
    assert set(threading.enumerate()) == threads
    assert pools == ["eventd-writer", "eventd-reader", "eventd-delivery", "plugin-answers", "plugin-answers"]


async def test_a_node_takes_the_boot_that_it_is_given(site: Site) -> None:
    assert await site.running.log.database.write(run_of_system) == "the boot"
