"""Unfinished messages of WebSockets: how much of the memory for bodies they hold, and for how long."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from msgspec import Raw

from eventd.api.listener import messages
from eventd.api.listener.messages import IncomingMessages
from eventd.api.listener.sending import HELD_BYTES
from eventd.api.topics.client_stream import FollowerRegistry
from eventd.api.topics.websocket import Conversation
from eventd.testing import until
from tests.integration.api.topics.conftest import StartServer
from tests.support.streams import Socket, connect_socket
from tests.support.v0 import Server

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
    bodies = server.v0.serving.concurrency.bodies
    bodies.most = 8 * MIB
    async with AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(connect_socket(greedy)) for _ in range(10)]
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
        async with connect_socket(other) as socket:
            ack = await socket.ask("publish", topic="t", records=[{"data": "x" * 1_000_000}], request_id=1)
            assert (ack["op"], ack["request_id"]) == ("ack", 1)
        await until(lambda: sum(task.done() for task in refused) == 7, "the oldest one to give way")
        assert bodies.held == 6 * MIB
        for socket in sockets:
            abort(socket)
    await until(lambda: bodies.held == 0, "the room to be given back")
    await until(lambda: not server.v0.serving.concurrency.streams.taken, "the places to be free")


async def test_a_message_that_does_not_end_in_time_ends_its_connection(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "BODY_SECONDS", 0.2)
    server = await start_server()
    async with connect_socket(server) as idle, connect_socket(server) as socket:
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
    async with connect_socket(server) as socket:
        transport: Any = socket.socket._writer.transport
        transport.pause_reading()
        await begin(socket, 10, of=3 * MIB)
        await until(lambda: server.v0.serving.concurrency.bodies.held == 3 * MIB, "the room to be taken")
        await until(lambda: server.v0.serving.concurrency.bodies.held == 0, "the room to be given back")
        await until(lambda: not server.v0.serving.concurrency.streams.taken, "the connection to end")
        abort(socket)


def write_ping(socket: Socket, size: int) -> None:
    """One command with so many bytes, and an answer of about the same size."""
    text = b'{"op":"ping","request_id":"' + b"x" * size + b'"}'
    transport: Any = socket.socket._writer.transport
    transport.write(bytes([0x81, 0xFF]) + len(text).to_bytes(8, "big") + bytes(4) + text)


def count_pings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the pings that are handled from now on."""
    sizes: list[int] = []
    perform = Conversation._ping

    async def counted(conversation: Conversation, text: Any, request_id: Raw) -> None:
        sizes.append(len(text))
        await perform(conversation, text, request_id)

    monkeypatch.setattr(Conversation, "_ping", counted)
    return sizes


def collect_arrived(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the messages that have arrived whole from now on."""
    sizes: list[int] = []
    end = IncomingMessages._end_message

    def collected(messages: IncomingMessages) -> None:
        sizes.append(messages._size)
        end(messages)

    monkeypatch.setattr(IncomingMessages, "_end_message", collected)
    return sizes


def is_blocked(server: Server) -> bool:
    """Whether the node waits for a client to read."""
    followers = server.v0.part(FollowerRegistry)._followers
    return any(follower.stream.transport.get_write_buffer_size() > HELD_BYTES for follower in followers)


async def fill(server: Server, socket: Socket, pings: list[int], size: int) -> int:
    """Write pings until the node waits for their client to read, and say how many."""
    sent = 0
    while not is_blocked(server):
        write_ping(socket, size)
        sent += 1
        await _reach(pings, sent)
    return sent


async def _reach(pings: list[int], count: int) -> None:
    await until(lambda: len(pings) == count, "the command to be handled")


@pytest.mark.parametrize("filling", [60_000, 3 * MIB], ids=["a message that waits", "a message that is answered"])
async def test_a_client_that_reads_no_answers_cannot_keep_its_room(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch, filling: int
) -> None:
    server = await start_server(keys="greedy,other")
    greedy, other = server.with_key("greedy"), server.with_key("other")
    await other.put("t")
    bodies = server.v0.serving.concurrency.bodies
    bodies.most = 4 * MIB
    pings, arrived = count_pings(monkeypatch), collect_arrived(monkeypatch)
    async with connect_socket(greedy) as socket:
        transport: Any = socket.socket._writer.transport
        transport.pause_reading()
        sent = await fill(server, socket, pings, filling)
        if filling < 3 * MIB:
            write_ping(socket, 3 * MIB)
            await until(lambda: len(arrived) > sent, "the message to arrive")
        assert bodies.held > 3 * MIB
        async with connect_socket(other) as writer:
            ack = await writer.ask("publish", topic="t", records=[{"data": "x" * 1_000_000}] * 2)
            assert ack["op"] == "ack", ack
            await until(
                lambda: server.v0.serving.concurrency.streams.taken == 1, "the connection that is not read to end"
            )
        assert len(pings) == sent, "a message that gave way is not handled"
        abort(socket)
    await until(lambda: bodies.held == 0, "the room to be given back")


async def test_a_message_that_gave_way_is_not_handled(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client is asked to send it again: it would be written twice."""
    proceed = asyncio.Event()

    async def wait(*_: object) -> None:
        await proceed.wait()

    monkeypatch.setattr(Conversation, "_ping", wait)
    arrived = collect_arrived(monkeypatch)
    server = await start_server()
    await server.put("t")
    bodies = server.v0.serving.concurrency.bodies
    bodies.most = 4 * MIB
    async with connect_socket(server) as socket:
        await socket.say("ping")
        await socket.say("publish", topic="t", records=[{"data": "x" * 1_000_000}] * 3)
        await until(lambda: len(arrived) == 2, "the message to arrive")
        proceed.set()  # the next message would be taken before the connection is closed
        with bodies.hold(b"another") as held:
            held.grow_to(2 * MIB)
            assert (await socket.next())["code"] == "throttled"
            assert await socket.next() is None
            assert socket.socket.close_code == 1013
            await until(lambda: not server.v0.serving.concurrency.streams.taken, "the connection to end")
    told = await server.ask("GET", "/topics/t")
    assert told.body["head_seq"] == 0
