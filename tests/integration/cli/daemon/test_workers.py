"""The parent of a node's workers: a worker that hangs is killed, also before it is ready."""

from __future__ import annotations

import asyncio

import pytest

from eventd.cli.daemon import workers
from eventd.cli.daemon.workers import SILENT_SECONDS, Workers
from eventd.errors import EventdError
from eventd.settings.loading import load
from eventd.testing import ManualClock, until

HANGS = "import time\ntime.sleep(3600)\n"


async def test_a_worker_that_hangs_before_it_is_ready_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_MAIN", HANGS)
    clock = ManualClock()
    node = Workers(load(flags={"workers": 2, "api_listen": "127.0.0.1:0"}, environ={}), clock=clock)
    starting = asyncio.ensure_future(node.start())
    for _ in range(2):  # it may take twice as long to start
        await until(lambda: clock.waits.count(SILENT_SECONDS) == 2, "both to be watched")
        assert not starting.done()
        clock.advance(SILENT_SECONDS)
    with pytest.raises(EventdError, match="worker 0 hung before it was ready"):
        await asyncio.wait_for(starting, 20)
    await asyncio.get_running_loop().shutdown_default_executor()
