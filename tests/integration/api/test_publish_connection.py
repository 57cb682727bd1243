"""Publishing over a WebSocket: messages and their answers, refusals, bounds, and every way in which it ends."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from socket import SO_SNDBUF, SOL_SOCKET
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientSession, WSServerHandshakeError

from eventd.api.admin.events import publish_connection, publishing
from eventd.api.admin.events.publish_connection import PublishConnection, UnansweredMessage
from eventd.api.admin.events.writer_shares import KEY_EVENTS
from eventd.api.bodies.bodies import LIGHT_BYTES, BodyReservation
from eventd.api.keys.configured_keys import parse_keys
from eventd.api.listener import messages, web_sockets
from eventd.log.core import writer
from eventd.log.core.eventlog import EventLog
from eventd.log.core.values import AppendResult
from eventd.testing import until
from tests.support.publishing import (
    PublishSocket,
    apply_group,
    connect_publisher,
    delete_group,
    event,
    stored_subjects,
)
from tests.support.v0 import Client, Server, serving

StartServer = Callable[..., Awaitable[Server]]
MIB = 1 << 20


@pytest.fixture
async def start_server(migrated_sqlite_url: str) -> AsyncIterator[StartServer]:
    async with AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.get_running_loop().shutdown_default_executor)

        async def start(**flags: Any) -> Server:
            server = await stack.enter_async_context(serving(migrated_sqlite_url, **flags))
            await apply_group(server.with_key("full"))  # type: ignore[arg-type]
            return server

        yield start


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[PublishConnection]:
    """The connections that the node has opened."""
    found: list[PublishConnection] = []
    run = PublishConnection.run

    async def noted(connection: PublishConnection) -> None:
        found.append(connection)
        await run(connection)

    monkeypatch.setattr(PublishConnection, "run", noted)
    return found


@pytest.fixture
async def server(start_server: StartServer) -> Server:
    return await start_server()


async def test_messages_are_answered_in_their_order_with_what_is_not_new(server: Server) -> None:
    async with connect_publisher(server) as socket:
        await socket.send(1, event("a", id="1"), event("b"))
        await socket.send(2, event("a", id="1"), event("c"), event("other", id="1"))
        one, two = await socket.answer(), await socket.answer()
    assert one == {"seq": 1, "counts": {"new": 2, "refreshed": 0, "duplicate": 0, "conflict": 0}, "results": []}
    assert two["counts"] == {"new": 1, "refreshed": 0, "duplicate": 1, "conflict": 1}
    first, second = two["results"]
    assert first == {"index": 0, "id": "1", "result": "duplicate"}
    assert (second["index"], second["result"], second["owner"]["sourceNode"]) == (2, "conflict", "a")
    assert await stored_subjects(server) == ["a", "b", "c"]


async def test_many_messages_share_transactions_and_keep_their_order(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    commit = writer.commit

    def counted(conn: Any, units: Any, *args: Any, **options: Any) -> Any:
        sizes.append(len(units))
        return commit(conn, units, *args, **options)

    monkeypatch.setattr(writer, "commit", counted)
    async with connect_publisher(server) as socket:
        for seq in range(300):
            await socket.send(seq, event(f"{seq:03}"))
        assert [(await socket.answer())["seq"] for _ in range(300)] == [*range(300)]
    assert await stored_subjects(server) == [f"{seq:03}" for seq in range(300)]
    assert max(sizes) > 1
    assert max(sizes) <= publish_connection.UNANSWERED


WRONG: list[tuple[dict[str, Any], int, str, str]] = [
    ({"events": [{"type": ""}, {"type": "t"}]}, 400, "invalid_events", "type is required"),
    ({"events": [{"type": "t", "payload": {"k": 1}}]}, 400, "invalid_events", "must be text"),
    ({"events": [{"type": "t", "payload": {"k": "x" * 5000}}]}, 413, "events_too_large", "over the limit of 4096"),
    ({"events": [7]}, 400, "invalid_events", "object"),
    ({"events": []}, 400, "invalid_request", ">= 1"),
    ({"events": {}}, 400, "invalid_request", "array"),
    ({}, 400, "invalid_request", "events"),
    ({"events": [{"type": "t"}], "group": "x"}, 400, "invalid_request", "group"),
    ({"events": [{"type": "t"}] * 10_001}, 400, "invalid_request", "10000"),
]


async def test_a_wrong_message_is_refused_alone_and_the_next_is_stored(server: Server) -> None:
    async with connect_publisher(server) as socket:
        for seq, (members, status, code, words) in enumerate(WRONG):
            await socket.socket.send_str(json.dumps({"seq": seq, **members}))
            answer = await socket.answer()
            assert (answer["seq"], answer["status"], answer["error"]["code"]) == (seq, status, code), words
            assert words in answer["error"]["message"]
        await socket.send(99, event("good", ttl="1h"))
        assert (await socket.answer())["counts"]["new"] == 1
    assert await stored_subjects(server) == ["good"]


@pytest.mark.parametrize("text", ["{", "[]", "7", '{"events":[]}', '{"seq":-1}', '{"seq":"1"}', "[" * 5000, "\ud7ff"])
async def test_a_message_without_a_number_ends_the_connection_after_the_answers(server: Server, text: str) -> None:
    async with connect_publisher(server) as socket:
        await socket.send(1, event("a"))
        await socket.socket.send_str(text)
        assert (await socket.answer())["seq"] == 1
        assert (await socket.heard())["error"]["code"] == "invalid_request"
        assert await socket.heard() is None
        assert socket.socket.close_code == 1008


async def test_it_needs_a_key_with_the_scope_and_the_group(start_server: StartServer) -> None:
    server = await start_server(keys="full,ro:read,t42::tenant42:")
    for key, status in (("", 401), ("none", 401), ("ro", 403), ("t42", 403)):
        with pytest.raises(WSServerHandshakeError) as refused:
            async with connect_publisher(server.with_key(key)):
                pass
        assert refused.value.status == status
    with pytest.raises(WSServerHandshakeError) as refused:
        await server.session.ws_connect(f"{server.url}/api/v1/groups/lab/publish?token=full")
    assert refused.value.status == 401, "a key in an address would stand in many a log"
    for group, status in (("lib", 404), ("lab", 101)):
        headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        headers |= {"Sec-WebSocket-Key": "c2l4dGVlbiBieXRlcyEhIQ==", "Authorization": "Bearer full"}
        async with server.session.get(f"{server.url}/api/v1/groups/{group}/publish", headers=headers) as answer:
            assert answer.status == status


async def test_a_revoked_key_ends_its_connection_and_no_other(start_server: StartServer) -> None:
    server = await start_server(keys="full,other:write")
    full, other = server.with_key("full"), server.with_key("other")
    known = server.v0.serving.callers.keys
    async with connect_publisher(full) as kept, connect_publisher(other) as cut:
        await cut.send(1, event("a"))
        assert (await cut.answer())["seq"] == 1
        known._read = lambda: parse_keys("full")
        known.reload()
        assert await cut.heard() is None
        await kept.send(1, event("b"))
        assert (await kept.answer())["seq"] == 1


async def test_a_deleted_group_ends_its_connections_also_idle_ones(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "BEAT_SECONDS", 0.02)
    await apply_group(server, "other")
    async with connect_publisher(server) as idle, connect_publisher(server, "other") as kept:
        await delete_group(server)
        assert (await idle.heard())["error"]["code"] == "not_found"
        assert await idle.heard() is None
        assert idle.socket.close_code == 1008
        await kept.send(1, event("a"))
        assert (await kept.answer())["seq"] == 1


async def test_an_unexpected_error_does_not_end_the_care_for_connections(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(publishing, "BEAT_SECONDS", 0.02)
    find = publishing.find_target

    async def fail_once(*_: Any) -> Any:
        monkeypatch.setattr(publishing, "find_target", find)
        raise ZeroDivisionError

    async with connect_publisher(server) as idle:
        monkeypatch.setattr(publishing, "find_target", fail_once)
        await delete_group(server)
        assert (await idle.heard())["error"]["code"] == "not_found"
    assert "checking publishing connections failed" in caplog.messages


async def test_a_publisher_that_is_cancelled_frees_its_memory(
    server: Server, opened: list[PublishConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = server.v0.serving.concurrency.bodies
    held = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(EventLog, "submit", lambda *_: held)
    async with connect_publisher(server) as socket:
        await socket.send(1, *[event("a")] * 1000)
        await until(lambda: bodies.held > 0, "the message to be read")
        (connection,) = opened
        running = asyncio.ensure_future(connection.run())  # a second one, which ends at once and waits for the answers
        connection.end(publish_connection.stopping(), 1001)
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait({running})
        assert (bodies.held, held.cancelled()) == (0, True)


async def test_a_message_to_a_deleted_group_is_refused_and_ends_the_connection(server: Server) -> None:
    async with connect_publisher(server) as socket:
        await socket.send(1, event("a"))
        assert (await socket.answer())["counts"]["new"] == 1
        await delete_group(server)
        await socket.send(2, event("b"))
        told = await socket.heard()
        while told is not None and "answers" in told:
            assert [(each["seq"], each["error"]["code"]) for each in told["answers"]] == [(2, "not_found")]
            told = await socket.heard()
        assert told["error"]["code"] == "not_found"
        assert await socket.heard() is None


async def test_messages_are_checked_again_if_the_declaration_changes_while_they_are_under_way(server: Server) -> None:
    """Their order stays, and what the new declaration allows is stored."""
    async with connect_publisher(server) as socket:
        await socket.send(0, event("0"))
        await socket.answer()
        await apply_group(server, most="8KiB")
        large = event("2", payload={"k": "x" * 6000})
        for seq, each in enumerate((event("1"), large, event("3")), start=1):
            await socket.send(seq, each)
        answers = [await socket.answer() for _ in range(3)]
    assert [answer["seq"] for answer in answers] == [1, 2, 3]
    assert [answer["counts"]["new"] for answer in answers] == [1, 1, 1]
    assert await stored_subjects(server) == ["0", "1", "2", "3"]


async def test_a_message_that_was_wrong_before_a_stored_one_stays_refused_when_the_declaration_changes(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stored after all, it would follow the later one."""
    find = publish_connection.find_target

    async def change_first(*args: Any) -> Any:
        monkeypatch.undo()
        await until(lambda: server.log.wakeups.head > 0, "the second to be stored")
        await apply_group(server, most="8KiB")
        return await find(*args)

    async with connect_publisher(server) as socket:
        monkeypatch.setattr(publish_connection, "find_target", change_first)
        await socket.send(1, event("1", payload={"k": "x" * 6000}))
        await socket.send(2, event("2"))
        one, two = await socket.answer(), await socket.answer()
        assert (one["status"], two["counts"]["new"]) == (413, 1)
        await socket.send(3, event("3", payload={"k": "x" * 6000}))
        assert (await socket.answer())["counts"]["new"] == 1
    assert await stored_subjects(server) == ["2", "3"]


async def test_a_stopping_node_answers_what_it_has_read_and_says_why_it_closes(migrated_sqlite_url: str) -> None:
    async with ClientSession() as session, AsyncExitStack() as clients:
        async with serving(migrated_sqlite_url) as server:
            await apply_group(server)
            client = Client(session, server.url)
            busy = await clients.enter_async_context(connect_publisher(client))
            idle = await clients.enter_async_context(connect_publisher(client))
            for seq in range(20):
                await busy.send(seq, event(f"{seq}"))
            ends = [asyncio.ensure_future(drain(each)) for each in (busy, idle)]
            await until(lambda: server.log.wakeups.head > 0, "the first to be stored")
        (answered, error), (nothing, reason) = await asyncio.gather(*ends)
    assert [each["seq"] for each in answered] == [*range(len(answered))]
    assert nothing == []
    assert error["code"] == reason["code"] == "unavailable"
    assert busy.socket.close_code == idle.socket.close_code == 1001
    async with serving(migrated_sqlite_url) as server:
        assert await stored_subjects(server) == [f"{seq}" for seq in range(len(answered))]


async def drain(socket: PublishSocket) -> tuple[list[Any], Any]:
    """Return all answers until the end of a connection, and the error before it."""
    answers: list[Any] = []
    error = None
    while (told := await socket.heard()) is not None:
        answers += told.get("answers", ())
        error = told.get("error", error)
    return answers, error


async def test_a_client_that_reads_no_answers_is_not_read_any_further(
    server: Server, opened: list[PublishConnection]
) -> None:
    async with connect_publisher(server) as socket:
        transport: Any = socket.socket._writer.transport
        transport.pause_reading()
        await until(lambda: bool(opened), "the node to serve it")
        opened[0]._stream.transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_SNDBUF, 32 << 10)
        taken = event("a", id="taken")
        sent = 0

        async def send_for_ever() -> None:
            nonlocal sent
            while True:
                await socket.send(sent, *[taken] * 200)
                sent += 1

        sending = asyncio.ensure_future(send_for_ever())
        await until(lambda: opened[0]._stream.full, "the node to wait for its client")
        sending.cancel()
        transport.resume_reading()
        seen = [await socket.answer() for _ in range(10)]
        assert [each["seq"] for each in seen] == [*range(10)]
        transport.abort()  # the end of all that is under way would take seconds


async def test_large_messages_use_the_memory_for_bodies_until_they_are_answered(start_server: StartServer) -> None:
    server = await start_server(keys="full,other:write")
    bodies = server.v0.serving.concurrency.bodies
    bodies.most = 2 * MIB
    many = [event(f"{n}", payload={"k": "x" * 3500}) for n in range(300)]
    async with connect_publisher(server.with_key("full")) as socket:
        await socket.send(1, *many)
        assert (await socket.answer())["counts"]["new"] == 300
        assert bodies.held == 0
        bodies.most = MIB // 2
        await socket.send(2, *many)
        assert (await socket.heard())["error"]["code"] == "too_large"
        assert await socket.heard() is None
        assert socket.socket.close_code == 1013
    await until(lambda: not server.v0.serving.concurrency.streams.taken, "the place to be free")


async def test_all_connections_of_a_key_share_what_the_writer_gets_and_other_keys_do_not_wait_for_them(
    start_server: StartServer, opened: list[PublishConnection]
) -> None:
    server = await start_server(keys="full,other:write")
    full, other = server.with_key("full"), server.with_key("other")
    async with connect_publisher(full) as one, connect_publisher(full) as two, connect_publisher(other) as third:
        await until(lambda: len(opened) == 3, "the node to serve them")
        shares, key = opened[0]._shares, opened[0]._memory.key
        assert shares.ask(key, KEY_EVENTS - 1).is_granted
        assert opened[1]._memory.key == key
        await one.send(1, event("a"), event("b"))
        await two.send(1, event("c"))
        await third.send(1, event("d"))
        assert (await third.answer())["counts"]["new"] == 1
        await until(lambda: len(shares._lines.get(key, ())) == 2, "both to wait unread")
        shares.give_back(key, KEY_EVENTS - 1)
        assert [(await each.answer())["counts"]["new"] for each in (one, two)] == [2, 1]
        assert shares.held == 0
    assert (await stored_subjects(full))[0] == "d"


async def test_a_message_that_waits_unread_when_the_node_stops_is_dropped(
    migrated_sqlite_url: str, opened: list[PublishConnection]
) -> None:
    async with ClientSession() as session, AsyncExitStack() as clients:
        async with serving(migrated_sqlite_url) as server:
            await apply_group(server)
            socket = await clients.enter_async_context(connect_publisher(Client(session, server.url)))
            await socket.send(1, event("a"))
            await socket.answer()
            (connection,) = opened
            key = connection._memory.key
            assert connection._shares.ask(key, KEY_EVENTS).is_granted
            await socket.send(2, event("b"))
            await until(lambda: key in connection._shares._lines, "it to wait")
            ending = asyncio.ensure_future(drain(socket))
        answered, error = await ending
    assert (answered, error["code"]) == ([], "unavailable")


async def fill(socket: PublishSocket, opened: list[PublishConnection], subject: str) -> PublishConnection:
    """Send messages, without reading their answers, until the node waits for that; return its end of the connection."""
    transport: Any = socket.socket._writer.transport
    transport.pause_reading()
    await until(lambda: bool(opened), "the node to serve it")
    (connection,) = opened
    connection._stream.transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_SNDBUF, 32 << 10)
    for seq in range(20):
        await socket.send(seq, *[event(subject, id="taken")] * 1000)
    await until(lambda: connection._end is not None, "the node to wait for its client")
    return connection


async def test_a_client_that_does_not_read_its_answers_does_not_delay_the_stop(
    server: Server, opened: list[PublishConnection]
) -> None:
    async with connect_publisher(server) as socket:
        connection = await fill(socket, opened, "a")
        connection.end(publish_connection.stopping(), 1001)
        await until(lambda: not server.v0.serving.concurrency.streams.taken, "the connection to end")


async def test_large_messages_of_a_client_that_does_not_read_give_way_to_another_key(
    server: Server, opened: list[PublishConnection]
) -> None:
    async with connect_publisher(server) as socket:
        connection = await fill(socket, opened, "a" * 100)
        bodies = server.v0.serving.concurrency.bodies
        await until(lambda: bodies.held > MIB, "messages to wait")
        connection._memory.close()  # so that only the messages themselves can give way
        bodies.most = bodies.held
        BodyReservation(bodies, b"another").grow_to(LIGHT_BYTES + 1)
        await until(lambda: not server.v0.serving.concurrency.streams.taken, "the connection to end")
    assert bodies.held == LIGHT_BYTES + 1


async def test_a_large_message_that_comes_while_its_client_does_not_read_gives_way_too(
    server: Server, opened: list[PublishConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[asyncio.Future[AppendResult]] = []

    async def never(_: PublishConnection, entry: UnansweredMessage) -> None:
        written.append(entry.done)

    monkeypatch.setattr(PublishConnection, "_write_events", never)
    bodies = server.v0.serving.concurrency.bodies
    async with connect_publisher(server) as socket:
        await until(lambda: bool(opened), "the node to serve it")
        (connection,) = opened
        connection._allow_giving_way(connection._stream.abort)
        await socket.send(1, *[event("a", payload={"text": "x" * 1000})] * 100)
        await until(lambda: bool(written), "the message to be at the writer")
        bodies.most = bodies.held
        BodyReservation(bodies, b"another").grow_to(LIGHT_BYTES + 1)
        written[0].set_exception(publish_connection.stopping())
        await until(lambda: not server.v0.serving.concurrency.streams.taken, "the connection to end")


async def test_a_request_that_asks_for_no_websocket_is_told_that_it_must(server: Server) -> None:
    async with server.session.get(f"{server.url}/api/v1/groups/lab/publish") as answer:
        error = (await answer.json())["error"]
    assert (answer.status, error["message"]) == (400, "this address is a WebSocket")


async def test_a_message_that_does_not_end_in_time_ends_its_connection(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "BODY_SECONDS", 0.2)
    async with connect_publisher(server) as socket:
        transport: Any = socket.socket._writer.transport
        transport.write(bytes([0x82, 0xFF]) + (20).to_bytes(8, "big") + bytes(4) + b" " * 10)
        assert (await socket.heard())["error"]["code"] == "slow_body"
        assert await socket.heard() is None


async def test_a_client_that_still_sends_a_message_that_is_too_large_hears_why_the_connection_ends(
    server: Server,
) -> None:
    """A connection that is closed with bytes unread is reset: the client might lose the code."""
    told = await _send_too_large(server)
    assert told[:1] == b"\x88", "one close frame, and then the end"
    assert (told[2:4], len(told)) == ((1009).to_bytes(2, "big"), 2 + told[1])
    await until(lambda: not server.v0.serving.concurrency.streams.taken, "the place to be free")


@pytest.mark.parametrize(("bound", "value"), [("LINGER_BYTES", MIB), ("LINGER_SECONDS", 0.0)])
async def test_what_a_client_sends_after_its_refusal_is_read_within_bounds(
    server: Server, monkeypatch: pytest.MonkeyPatch, bound: str, value: float
) -> None:
    monkeypatch.setattr(web_sockets, bound, value)
    with pytest.raises(ConnectionError):
        await _send_too_large(server, 64 * MIB)
    await until(lambda: not server.v0.serving.concurrency.streams.taken, "the place to be free")


async def _send_too_large(server: Server, size: int = 6 * MIB) -> bytes:
    """Send the whole of a message that is too large, without reading; return what the node has sent after it."""
    client, rest = server.with_key("full"), bytes(size)
    address = urlsplit(client.url)
    lines = {
        "Host": address.netloc,
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
        **client.headers,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())

    def send() -> bytes:
        with socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=10) as link:
            link.sendall(f"GET /api/v1/groups/lab/publish HTTP/1.1\r\n{head}\r\n".encode())
            assert link.recv(4096).startswith(b"HTTP/1.1 101")
            link.sendall(b"\x82\xff" + len(rest).to_bytes(8, "big") + bytes(4))
            link.sendall(rest)
            return b"".join(iter(lambda: link.recv(4096), b""))

    return await asyncio.to_thread(send)


@pytest.mark.parametrize(
    ("frame", "code"),
    [(b"\x82\xff" + (1 << 30).to_bytes(8, "big") + bytes(4), 1009), (b"\x82\x05hello", 1002), (b"\xf2\x80abcd", 1002)],
    ids=["too large", "not masked", "reserved bits"],
)
async def test_a_frame_that_no_client_may_send_ends_the_connection_after_the_answers(
    server: Server, caplog: pytest.LogCaptureFixture, frame: bytes, code: int
) -> None:
    async with connect_publisher(server) as socket:
        await socket.send(1, event("a"))
        assert (await socket.answer())["seq"] == 1
        transport: Any = socket.socket._writer.transport
        transport.write(frame)
        assert await socket.heard() is None
        assert socket.socket.close_code == code
    await until(lambda: not server.v0.serving.concurrency.streams.taken, "the place to be free")
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


async def test_an_internal_error_is_answered_with_its_incident_and_the_next_message_is_stored(
    server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        monkeypatch.undo()
        raise ZeroDivisionError

    async with connect_publisher(server) as socket:
        monkeypatch.setattr(publish_connection, "prepare", fail)
        await socket.send(1, event("a"))
        told = await socket.answer()
        assert (told["seq"], told["status"], told["error"]["code"]) == (1, 500, "internal")
        (line,) = [record for record in caplog.records if record.message == "message failed"]
        assert vars(line)["incident"] in told["error"]["message"]
        await socket.send(2, event("b"))
        assert (await socket.answer())["counts"]["new"] == 1


async def test_connections_count_among_the_streams_of_their_key(start_server: StartServer) -> None:
    server = await start_server(max_sse_connections_per_key=1)
    async with connect_publisher(server):
        with pytest.raises(WSServerHandshakeError) as refused:
            async with connect_publisher(server):
                pass
        assert refused.value.status == 429
    await until(lambda: not server.v0.serving.concurrency.streams.taken, "the place to be free")
    async with connect_publisher(server):
        pass


async def test_a_silent_client_gets_pings(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "BEAT_SECONDS", 0.02)
    monkeypatch.setattr(publish_connection, "SILENT_SECONDS", 0.0)
    async with connect_publisher(server, autoping=False) as socket:
        assert (await socket.socket.receive(10)).type == 9


async def test_events_are_counted_by_their_result(server: Server) -> None:
    async with connect_publisher(server) as socket:
        await socket.send(1, event("a", id="1"), event("b"))
        await socket.send(2, event("a", id="1"))
        await socket.send(3, {"type": ""})
        await socket.send(4)
        for _ in range(4):
            await socket.answer()
        text = server.v0.serving.metrics.render().decode()
    counted = {
        line.partition('result="')[2].partition('"')[0]: float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith("routerd_eventd_published_events_total{")
    }
    assert counted == {"new": 2, "duplicate": 1, "refused": 2}
    assert "routerd_eventd_publish_connections 1.0" in text
