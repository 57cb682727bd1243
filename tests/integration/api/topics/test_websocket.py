"""Topics over a WebSocket: commands and their answers, messages of followed topics, and refusals."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import WSMsgType, WSServerHandshakeError
from msgspec import Raw

from eventd.api.topics import websocket
from eventd.api.topics.client_stream import FollowerRegistry
from eventd.api.topics.websocket import AT_ONCE, Conversation
from eventd.testing import until
from tests.integration.api.topics.conftest import StartServer
from tests.support.streams import connect_socket
from tests.support.v0 import Server


async def test_a_client_publishes_follows_and_stops_following(server: Server) -> None:
    async with connect_socket(server) as socket:
        ack = await socket.ask(
            "publish", request_id={"n": 1}, topic="room", records=[{"data": {"p": 0}}], config={"cap_records": 100}
        )
        assert (ack["op"], ack["request_id"], ack["topic"], ack["created"]) == ("ack", {"n": 1}, "room", True)
        assert (ack["first_seq"], ack["last_seq"], ack["seqs"], ack["head_seq"], ack["count"]) == (1, 1, [1], 1, 1)
        assert ack["deduped"] is False
        assert ack["performance"]["server_total_ms"] > 0
        assert (await server.get("room")).body["config"]["cap_records"] == 100
        told = await socket.ask("subscribe", request_id=7, topic="room", tail=True, node="listener")
        begun = {"room": {"from_seq": 1, "head_seq": 1, "earliest_seq": 1}}
        assert told == {"op": "subscribed", "request_id": 7, "topics": begun}
        assert await socket.next() == {"op": "caught_up", "topic": "room", "head_seq": 1}
        await socket.say("publish", request_id="b", topic="room", node="speaker", records=[{"data": {"packet": 1}}])
        told = {each["op"]: each for each in await take(socket, 3)}
        assert told.keys() == {"ack", "record", "caught_up"}
        assert told["ack"]["last_seq"] == 2
        assert [*told["record"]] == ["op", "topic", "from_seq", "to_seq", "head_seq", "records"]
        assert told["record"]["records"][0]["data"] == {"packet": 1}
        assert (told["record"]["from_seq"], told["record"]["to_seq"], told["record"]["head_seq"]) == (1, 2, 2)
        told = await socket.ask("unsubscribe", request_id=None, topic="room")
        assert told == {"op": "unsubscribed", "request_id": None, "topics": ["room"]}
        ack = await socket.ask("publish", topic="room", records=[{"data": 2}], return_seqs=False)
        assert (ack["op"], ack["seqs"], ack["request_id"]) == ("ack", None, None)
        assert (await socket.ask("ping", request_id=[1]))["op"] == "pong"  # and no record before it


async def test_a_subscription_from_another_epoch_begins_anew_after_a_tombstone(server: Server) -> None:
    await server.write("jobs", 1, 2, 3)
    async with connect_socket(server) as socket:
        start = {"topic": "jobs", "from_seq": 2, "epoch": "that of a copy"}
        told = await socket.ask("subscribe", **start, include_epoch=True)
        tombstone, record, _ = await socket.take("tombstone", "record", "caught_up")
        assert (tombstone["reason"], tombstone["epoch"]) == ("recreated", told["topics"]["jobs"]["epoch"])
        assert [each["$seq"] for each in record["records"]] == [1, 2, 3]
        await socket.ask("subscribe", topics={"jobs": {"from_seq": 2, "epoch": tombstone["epoch"]}})
        assert [each["$seq"] for each in (await socket.take("record", "caught_up"))[0]["records"]] == [3]


async def take(socket: Any, count: int) -> list[Any]:
    return [await socket.next() for _ in range(count)]


async def test_several_topics_are_followed_each_from_its_own_place(server: Server) -> None:
    await server.write("a", 1, 2, 3)
    await server.write("b", 1, 2)
    await server.put("cap", cap_records=1)
    for n in range(3):
        await server.write("cap", n)
    async with connect_socket(server) as socket:
        topics = {"a": {"from_seq": 1}, "b": {"tail": True}, "ghost": {}}
        told = await socket.ask("subscribe", topic="cap", topics=topics, lenient=True)
        assert {name: each["from_seq"] for name, each in told["topics"].items()} == {"a": 1, "b": 2, "cap": 0}
        heard = {(each["op"], each["topic"]): each for each in await take(socket, 6)}
        assert [record["$seq"] for record in heard["record", "a"]["records"]] == [2, 3]
        assert heard["caught_up", "b"]["head_seq"] == 2
        assert heard["tombstone", "cap"] == {
            "op": "tombstone",
            "topic": "cap",
            "reason": "cap",
            "gap_from": 1,
            "gap_to": 2,
            "earliest_seq": 3,
            "head_seq": 3,
        }
        told = await socket.ask("subscribe", topic="a", include_data=False, include_tags=True)
        assert told["op"] == "subscribed"
        record, _ = await socket.take("record", "caught_up")
        assert [each.keys() for each in record["records"]] == [{"$seq", "$ts"}] * 3
        told = await socket.ask("unsubscribe", topics=["a", "b", "a", "nothing"])
        assert told["topics"] == ["a", "b", "nothing"]


async def test_a_deleted_topic_is_told_at_once_and_the_connection_stays(server: Server) -> None:
    await server.put("box")
    async with connect_socket(server) as socket:
        await socket.ask("subscribe", topic="box")
        await socket.take("caught_up")
        await server.delete("box")
        assert await socket.next() == {"op": "topic_deleted", "topic": "box", "head_seq": 0, "reason": "deleted"}
        await server.write("box", "of another topic")
        assert (await socket.ask("ping"))["op"] == "pong"
        await socket.ask("subscribe", topic="box")
        assert (await socket.next())["records"][0]["data"] == "of another topic"


WRONG_COMMANDS: list[tuple[str, str, str]] = [
    ("{", "invalid_json", "not valid JSON"),
    ("[" * 5000, "invalid_request", "object"),
    ("[]", "invalid_request", "object"),
    ("{}", "invalid_request", "op"),
    ('{"op":"dance"}', "invalid_request", "'dance' is not a valid op"),
    ('{"op":"subscribe"}', "invalid_request", "1 to 256"),
    ('{"op":"subscribe","topic":"ghost"}', "topic_not_found", "ghost"),
    ('{"op":"subscribe","topic":"a","from_seq":-1}', "invalid_request", "from_seq"),
    ('{"op":"subscribe","topic":"a","from_seq":18446744073709551616}', "invalid_request", "from_seq"),
    ('{"op":"unsubscribe"}', "invalid_request", "1 to 256"),
    ('{"op":"publish","topic":"a"}', "invalid_request", "records"),
    ('{"op":"publish","records":[{"data":1}]}', "invalid_request", "topic"),
    ('{"op":"publish","topic":"a","records":[]}', "invalid_request", "no records"),
    ('{"op":"publish","topic":"_a","records":[{"data":1}]}', "invalid_request", "_a"),
    ('{"op":"publish","topic":"ghost","create":false,"records":[{"data":1}]}', "topic_not_found", "ghost"),
    ('{"op":"publish","topic":"group:g","records":[{"data":1}]}', "topic_exists_incompatible", "event group"),
]


async def test_a_command_that_cannot_be_done_is_refused_and_the_connection_stays(server: Server) -> None:
    for text, code, why in WRONG_COMMANDS:
        async with connect_socket(server) as socket:
            await socket.socket.send_str(text)
            told = await socket.next()
            assert (told["op"], told["code"], told["request_id"]) == ("error", code, None), text[:60]
            assert why in told["message"], text[:60]
            assert (await socket.ask("ping"))["op"] == "pong", text[:60]


async def test_a_refusal_carries_the_id_of_its_command(server: Server) -> None:
    async with connect_socket(server) as socket:
        told = await socket.ask("subscribe", request_id=[1, {"a": None}], topic="ghost")
        assert (told["request_id"], told["detail"]) == ([1, {"a": None}], {"topic": "ghost"})


async def test_only_text_is_read(server: Server) -> None:
    async with connect_socket(server) as socket:
        await socket.socket.send_bytes(b'{"op":"ping"}')
        assert (await socket.next())["code"] == "unsupported_message"
        await socket.socket.ping()
        assert (await socket.ask("ping"))["op"] == "pong"


async def test_a_repeated_publish_is_acknowledged_as_the_first_was(server: Server) -> None:
    async with connect_socket(server) as socket:
        one = await socket.ask("publish", topic="q", records=[{"data": 1}], idempotency_key="k")
        two = await socket.ask("publish", topic="q", records=[{"data": 1}], idempotency_key="k")
        assert (one["deduped"], two["deduped"], one["seqs"], two["seqs"]) == (False, True, [1], [1])


async def test_publishes_that_come_at_once_are_written_and_acknowledged_in_their_order(server: Server) -> None:
    async with connect_socket(server) as socket:
        for n in range(300):
            await socket.say("publish", request_id=n, topic="q", records=[{"data": n}])
        await socket.say("subscribe", topic="q", tail=True)
        acks = await take(socket, 300)
        assert [ack["request_id"] for ack in acks] == [*range(300)]
        assert [ack["first_seq"] for ack in acks] == [*range(1, 301)]
        assert (await socket.next())["topics"]["q"]["from_seq"] == 300  # what came before was seen
    assert (await server.diff("q", limit=1000)).data == [*range(300)]


@pytest.mark.parametrize(
    "large", [[{"data": n} for n in range(1000)], [{"data": "x" * 500_000}] * 3], ids=["many", "big"]
)
async def test_a_small_batch_does_not_overtake_a_large_one(server: Server, large: list[dict[str, Any]]) -> None:
    async with connect_socket(server) as socket:
        for n, records in enumerate([[{"data": 0}], large, [{"data": 1}], large, [{"data": 2}]]):
            await socket.say("publish", request_id=n, topic="q", records=records, return_seqs=False)
        acks = await take(socket, 5)
    assert [ack["request_id"] for ack in acks] == [*range(5)]
    many = len(large)
    assert [ack["last_seq"] for ack in acks] == [1, 1 + many, 2 + many, 2 + 2 * many, 3 + 2 * many]


async def test_commands_need_their_scopes_and_names(start_server: StartServer) -> None:
    server = await start_server(keys="full,ro:read,wo:write,t42::tenant42:")
    await server.with_key("full").put("jobs")
    record = {"topic": "jobs", "records": [{"data": 1}]}
    async with connect_socket(server.with_key("ro")) as socket:
        told = await socket.ask("publish", **record)
        assert (told["op"], told["code"]) == ("error", "forbidden")
        assert (await socket.ask("subscribe", topic="jobs"))["op"] == "subscribed"
    async with connect_socket(server.with_key("wo")) as socket:
        assert (await socket.ask("publish", **record))["op"] == "ack"
        assert (await socket.ask("publish", config={}, **record))["code"] == "forbidden"
        assert (await socket.ask("subscribe", topic="jobs"))["code"] == "forbidden"
    async with connect_socket(server.with_key("t42")) as socket:
        assert (await socket.ask("publish", **record))["code"] == "forbidden"
        assert (await socket.ask("subscribe", topics={"jobs": {}}))["code"] == "forbidden"
        assert (await socket.ask("publish", **record | {"topic": "tenant42:jobs"}))["op"] == "ack"


async def test_a_connection_needs_a_key_where_there_are_some(start_server: StartServer) -> None:
    server = await start_server(keys="full")
    for client in (server, server.with_key("none")):
        with pytest.raises(WSServerHandshakeError) as refused:
            async with connect_socket(client):
                pass
        assert refused.value.status == 401
    with pytest.raises(WSServerHandshakeError) as refused:
        await server.session.ws_connect(f"{server.url}/v0/ws?token=full")
    assert refused.value.status == 401, "a key in an address would stand in many a log"


async def test_connections_count_among_the_streams(start_server: StartServer) -> None:
    server = await start_server(max_sse_connections=1)
    async with connect_socket(server):
        with pytest.raises(WSServerHandshakeError) as refused:
            async with connect_socket(server):
                pass
        assert (refused.value.status, refused.value.headers and refused.value.headers["Retry-After"]) == (429, "1")
    await until(lambda: not server.v0.serving.concurrency.streams.taken)
    async with connect_socket(server):
        pass


async def test_what_is_no_websocket_is_refused(server: Server) -> None:
    told = await server.ask("GET", "/ws")
    assert (told.status, told.code) == (400, "invalid_request")


async def test_a_frame_over_the_limit_ends_the_connection(start_server: StartServer) -> None:
    server = await start_server(max_body_bytes=1000)
    async with connect_socket(server) as socket:
        await socket.socket.send_str('{"op":"ping","x":"' + "x" * 2000 + '"}')
        message = await socket.socket.receive(10)
        assert (message.type, socket.socket.close_code) == (WSMsgType.CLOSE, 1009)


async def test_large_pages_arrive_whole(server: Server) -> None:
    sizes = [1, 50, 60, 65_000, 66_000, 200_000]
    async with connect_socket(server) as socket, connect_socket(server) as other:
        for size in sizes:
            await socket.ask("publish", topic="big", records=[{"data": "x" * size}])
        await other.ask("subscribe", topic="big", max_batch_bytes=1)
        found = [each for each in await take(other, len(sizes) + 1) if each["op"] == "record"]
        assert [len(each["records"][0]["data"]) for each in found] == sizes


async def test_many_clients_get_everything_in_order(server: Server) -> None:
    await server.put("room")

    async def listen() -> list[int]:
        found: list[int] = []
        async with connect_socket(server) as socket:
            await socket.ask("subscribe", topic="room")
            while len(found) < 50:
                told = await socket.next()
                found += [record["$seq"] for record in told.get("records", [])]
        return found

    listeners = [asyncio.ensure_future(listen()) for _ in range(20)]
    for n in range(50):
        await server.write("room", n)
    assert await asyncio.gather(*listeners) == [[*range(1, 51)]] * 20


async def test_a_connection_follows_so_many_topics_and_no_more(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "MOST_FOLLOWED", 2)
    for name in ("a", "b", "c"):
        await server.put(name)
    async with connect_socket(server) as socket:
        await socket.ask("subscribe", topics={"a": {}, "b": {}})
        await socket.take("caught_up", "caught_up")
        told = await socket.ask("subscribe", topic="c")
        assert (told["code"], told["detail"]) == ("throttled", {"limit": "max_topics_per_connection", "max": 2})
        assert (await socket.ask("subscribe", topic="b"))["op"] == "subscribed"


async def test_a_fault_under_a_command_is_told_by_its_number_alone(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise ValueError("geheim")

    monkeypatch.setattr(websocket, "write", fail)
    monkeypatch.setattr(websocket, "find_topics", fail)
    async with connect_socket(server) as socket:
        for command in ({"op": "publish", "records": [{"data": 1}]}, {"op": "subscribe"}):
            told = await socket.ask(**command, topic="a", request_id=1)
            assert (told["op"], told["request_id"], told["code"]) == ("error", 1, "internal")
            assert "geheim" not in told["message"]
    assert caplog.text.count("command failed") == 2


async def test_a_client_that_takes_no_answers_is_heard_no_further(server: Server) -> None:
    """Messages must not pile up in the node: a command that is not read waits in the network."""
    async with connect_socket(server) as socket:
        ping = json.dumps({"op": "ping", "request_id": "x" * 100_000})
        socket.socket._reader._protocol.pause_reading()  # type: ignore[union-attr]
        sending = asyncio.ensure_future(_send_many(socket, ping, 300))
        await until(lambda: any(size > 1 << 16 for size in _untaken(server)), "answers not to be taken")
        await asyncio.sleep(0.2)
        assert max(_untaken(server)) < 1 << 20
        assert not sending.done()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        socket.socket._reader._protocol.resume_reading()  # type: ignore[union-attr]  # or closing waits for 10 s


async def _send_many(socket: Any, text: str, count: int) -> None:
    for _ in range(count):
        await socket.socket.send_str(text)


def _untaken(server: Server) -> list[int]:
    followers = server.v0.part(FollowerRegistry)._followers
    return [follower.stream.transport.get_write_buffer_size() for follower in followers]


async def test_many_commands_at_once_let_others_have_their_turn(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = [0]  # in each turn of the loop
    perform = Conversation._ping

    async def counted(conversation: Conversation, text: str, request_id: Raw) -> None:
        if not answered[-1]:
            asyncio.get_running_loop().call_soon(answered.append, 0)
        answered[-1] += 1
        await perform(conversation, text, request_id)

    monkeypatch.setattr(Conversation, "_ping", counted)
    async with connect_socket(server) as socket:
        text = b'{"op":"ping"}'
        ping = b"\x81" + bytes([0x80 | len(text)]) + bytes(4) + text  # masked with zeros: as it is
        transport = socket.socket._writer.transport
        assert transport is not None
        transport.write(ping * 2000)  # in few pieces, as they come from a client that wants to be in the way
        for _ in range(2000):
            assert (await socket.next())["op"] == "pong"
    assert sum(answered) == 2000
    assert max(answered) <= AT_ONCE


@pytest.mark.parametrize("first", [0, 1], ids=["at once", "in the middle of its head"])
async def test_a_frame_that_is_not_masked_ends_the_connection(server: Server, first: int) -> None:
    text = b'{"op":"ping"}'
    masked = b"\x81" + bytes([0x80 | len(text)]) + bytes(4) + text  # with zeros: as it is
    frame = b"\x81" + bytes([len(text)]) + text
    async with connect_socket(server) as socket:
        transport = socket.socket._writer.transport
        assert transport is not None
        transport.write(masked + frame[:first])
        assert (await socket.next() or {})["op"] == "pong"
        transport.write(frame[first:])
        assert await socket.next() is None
        assert socket.socket.close_code == 1002
    await until(lambda: not server.v0.serving.concurrency.streams.taken, "its place to be free")


async def test_only_the_final_version_of_the_protocol_is_spoken(server: Server) -> None:
    for version in ["7", "8", "14", "x" * 100, ""]:
        headers = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Version": version,
        }
        told = await server.ask("GET", "/ws", headers=headers)
        assert (told.status, told.code) == (400, "invalid_request"), version
        assert told.body["error"]["message"] == f"Sec-WebSocket-Version {version[:20]!r} is not supported: use 13", (
            version
        )
        assert told.headers["Sec-WebSocket-Version"] == "13", version
