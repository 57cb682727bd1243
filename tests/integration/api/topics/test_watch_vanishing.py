"""Watchers whose host disappears without closing the connection are disconnected; slow ones are not."""

from __future__ import annotations

import asyncio
import ctypes
import socket
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from eventd.api.listener import vanished
from eventd.api.listener.vanished import Acknowledgements
from eventd.api.topics.client_stream import FollowerRegistry
from eventd.testing import until
from tests.support.streams import begin_session, open_unread_stream
from tests.support.v0 import Server

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is acknowledged")

_ATTACH_FILTER = 26
_DROP_ALL = struct.pack("HBBI", 0x06, 0, 0, 0)


def vanish(connection: socket.socket) -> None:
    """Have the system drop what arrives for a socket: nothing is acknowledged any more, as if its host were gone."""
    program = ctypes.create_string_buffer(_DROP_ALL)
    connection.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(program)))


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The results of all looks, which are frequent."""
    found: list[bool] = []
    look = Acknowledgements.have_ended

    def looking(acknowledgements: Acknowledgements, now: float) -> bool:
        found.append(look(acknowledgements, now))
        return found[-1]

    monkeypatch.setattr(vanished, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(vanished, "UNANSWERED_SECONDS", 0.3)
    monkeypatch.setattr(Acknowledgements, "have_ended", looking)
    return found


@asynccontextmanager
async def watcher(server: Server) -> AsyncIterator[tuple[socket.socket, asyncio.StreamReader]]:
    """A client that has opened a stream and reads nothing more than its beginning."""
    wid = (await begin_session(server, "box")).body["wid"]
    host, _, port = server.url.removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)))
    reader, writer = await asyncio.open_connection(sock=connection, limit=1024)
    try:
        writer.write(f"GET /v0/watch/{wid} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        async with asyncio.timeout(10):
            await reader.readuntil(b"caught-up")
        yield connection, reader
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


async def test_a_watcher_that_vanishes_loses_its_place(server: Server) -> None:
    await server.put("box")
    async with watcher(server) as (connection, _):
        vanish(connection)
        await server.write("box", 1)  # as a heartbeat would: something that it had to acknowledge
        await until(lambda: not server.v0.serving.concurrency.streams.taken, "its place to be free")
    counted = server.v0.serving.metrics.registry.get_sample_value(
        "routerd_eventd_listener_turned_away_total", {"group": "", "reason": "vanished"}
    )
    assert counted == 1


async def test_a_watcher_that_does_not_read_and_vanishes_loses_its_place(server: Server) -> None:
    await server.put("box")
    async with watcher(server) as (connection, _):
        await server.write("box", *["x" * 1_000_000] * 12)  # more than the buffers between the two hold
        await until(lambda: _stalls(server), "the client to have no room")
        vanish(connection)
        await until(lambda: not server.v0.serving.concurrency.streams.taken, "its place to be free", seconds=30)


async def test_a_watcher_that_does_not_read_keeps_its_place(server: Server, looks: list[bool]) -> None:
    await server.put("box")
    wid = (await begin_session(server, "box")).body["wid"]
    async with open_unread_stream(server, wid):
        await server.write("box", *["x" * 1_000_000] * 12)
        await until(lambda: _stalls(server), "the client to have no room")
        before = len(looks)
        await until(lambda: len(looks) > before + 200, "many more looks at it")
        assert server.v0.serving.concurrency.streams.taken == 1
    assert not any(looks)


async def test_a_silent_connection_is_not_taken_for_one_that_vanished(server: Server, looks: list[bool]) -> None:
    await server.put("box")
    async with watcher(server) as (_, reader):
        before = len(looks)
        await until(lambda: len(looks) > before + 50, "a silence")
        await server.write("box", 1)
        await reader.readuntil(b"event: record")
    assert not any(looks)


def _stalls(server: Server) -> bool:
    return any(follower.stream.full for follower in server.v0.part(FollowerRegistry)._followers)
