"""`routerctl` over the API: commands for streams send the same requests to a node and to the database beside it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Control
from tests.support.scripted_streams import ScriptedServer, scripted_server


@pytest.fixture(params=["api"])
def routerctl(routerctl: Control) -> Control:
    return routerctl


class QuicThread(threading.Thread):
    """A scripted server of streams, on a loop of its own: commands run on theirs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(name="scripted streams")
        self.server: ScriptedServer
        self._folder = folder
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._end: asyncio.Event

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with scripted_server(self._folder) as self.server:
            self._ready.set()
            await self._end.wait()

    def __enter__(self) -> QuicThread:
        self.start()
        assert self._ready.wait(20), "the server has not started"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self.join(20)

    def call(self, work: Callable[[], object]) -> None:
        """Do something on the server's loop."""

        async def run() -> None:
            work()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(20)

    def append(self, name: str, payloads: list[bytes]) -> None:
        """Store records, and send them to subscriptions."""
        self.call(lambda: self.server.append(name, payloads))

    def until(self, condition: Callable[[], object]) -> None:
        """Wait until the condition holds on the server."""
        asyncio.run_coroutine_threadsafe(self.server.until(condition), self._loop).result(20)

    @property
    def options(self) -> tuple[str, ...]:
        """The options that name this server and verify it."""
        return ("--server", self.server.address, "--ca", str(self.server.ca))


@pytest.fixture
def quic(tmp_path: Path) -> Iterator[QuicThread]:
    """A server of the streams `t1/default/orders` and `t1/default/other`."""
    pytest.importorskip("qh3")
    folder = tmp_path / "server"
    folder.mkdir()
    with QuicThread(folder) as thread:
        yield thread
