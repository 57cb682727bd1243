"""Messages of WebSockets that are begun and not ended: what they hold of the memory for bodies, and for how long."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from eventd.api import messages
from eventd.testing import until
from tests.integration.v0.conftest import StartServer
from tests.support.streams import Socket, connected

MIB = 1 << 20


async def begin(socket: Socket, size: int, *, of: int, opcode: int = 1) -> None:
    """The first `size` bytes of a frame of so many, which never ends."""
    transport: Any = socket.socket._writer.transport
    transport.write(bytes([0x80 | opcode, 0xFF]) + of.to_bytes(8, "big") + bytes(4) + b" " * size)


def abort(socket: Socket) -> None:
    """End the connection without the handshake of a close, which an unfinished frame is in the way of."""
    transport: Any = socket.socket._writer.transport
    if transport is not None:
        transport.abort()


async def test_unfinished_messages_take_no_more_than_the_room_for_bodies(start_server: StartServer) -> None:
    server = await start_server(keys="greedy,other")
    greedy, other = server.with_key("greedy"), server.with_key("other")
    bodies = server.v0.occupancy.bodies
    bodies.most = 8 * MIB
    async with AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(connected(greedy)) for _ in range(10)]
        for socket in sockets:
            await begin(socket, 2 * MIB - 1, of=2 * MIB)
        refused = [asyncio.create_task(socket.next()) for socket in sockets]
        await until(lambda: sum(task.done() for task in refused) == 6, "all but four to be refused")
        told = [task.result() for task in refused if task.done()]
        assert {(each["op"], each["code"]) for each in told} == {("error", "throttled")}
        assert bodies.held == 8 * MIB
        for socket, task in zip(sockets, refused, strict=True):
            if task.done():
                assert await socket.next() is None
                assert socket.socket.close_code == 1013
        await other.put("t")
        async with connected(other) as socket:
            ack = await socket.ask("publish", topic="t", records=[{"data": "x" * 1_000_000}], request_id=1)
            assert (ack["op"], ack["request_id"]) == ("ack", 1)
        await until(lambda: sum(task.done() for task in refused) == 7, "the oldest one to give way")
        assert bodies.held == 6 * MIB
        for socket in sockets:
            abort(socket)
    await until(lambda: bodies.held == 0, "the room to be given back")
    await until(lambda: not server.v0.occupancy.streams.taken, "the places to be free")


async def test_a_message_that_does_not_end_in_time_ends_its_connection(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "BODY_SECONDS", 0.2)
    server = await start_server()
    async with connected(server) as idle, connected(server) as socket:
        assert (await idle.ask("ping"))["op"] == "pong"
        await begin(socket, 10, of=20)
        assert (await socket.next())["code"] == "slow_body"
        assert await socket.next() is None
        assert (await idle.ask("ping"))["op"] == "pong", "a client may be silent between messages"


async def test_a_client_that_reads_nothing_cannot_keep_what_it_has_begun(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection ends although the refusal cannot be delivered."""
    monkeypatch.setattr(messages, "BODY_SECONDS", 0.2)
    server = await start_server()
    async with connected(server) as socket:
        transport: Any = socket.socket._writer.transport
        transport.pause_reading()
        await begin(socket, 10, of=3 * MIB)
        await until(lambda: server.v0.occupancy.bodies.held == 3 * MIB, "the room to be taken")
        await until(lambda: server.v0.occupancy.bodies.held == 0, "the room to be given back")
        await until(lambda: not server.v0.occupancy.streams.taken, "the connection to end")
        abort(socket)
