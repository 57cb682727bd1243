"""Publishes of a second library: what is answered and what ends a stream, in which order, and what is stored."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from tests.support.felix_wire import (
    WireAck,
    body,
    frame,
    message,
    publish,
    publish_acked,
    publish_json,
    read_ack,
    read_json,
    scope,
)
from tests.support.processes import Processes
from tests.support.stream_nodes import Session, StreamNode, session, topic

ORDERS = "t1/default/orders"
OTHER = "t2/default/orders"
NOWHERE = "t1/default/nowhere"
GONE = "stream not found: tenant=t1 namespace=default stream=nowhere"
CACHE = scope("t1/default/primary", "cache")


def error(text: str, **members: Any) -> dict[str, Any]:
    """Return an `error`."""
    return {"type": "error", "message": text, **members}


def failed(id: int, text: str) -> dict[str, Any]:
    """Return a `publish_error`."""
    return {"type": "publish_error", "request_id": id, "message": text}


class Row(NamedTuple):
    """A request, its answer, and whether the stream goes on."""

    request: bytes
    answer: dict[str, Any] | WireAck
    goes_on: bool = False


MISMATCH = [
    Row(publish_json(OTHER, b"x", request_id=1), error("tenant mismatch", request_id=1)),
    Row(publish_json(OTHER, b"x", ack="none"), error("tenant mismatch")),
    Row(publish_json(OTHER, b"x", b"y", request_id=2), error("tenant mismatch", request_id=2)),
    Row(message("subscribe", **scope(OTHER)), error("tenant mismatch")),
    Row(message("cache_get", **CACHE | {"tenant_id": "t2"}, key="k"), error("tenant mismatch")),
    Row(
        message("cache_put", **CACHE | {"tenant_id": "t2"}, key="k", value="", request_id=3, ttl_ms=None),
        error("tenant mismatch", request_id=3),
    ),
    Row(publish_acked(4, OTHER, b"x"), WireAck(1, 4, "tenant mismatch"), goes_on=True),
    Row(publish(OTHER, b"x"), error("tenant mismatch")),
]
FORBIDDEN = [
    Row(publish_json(ORDERS, b"x", request_id=1), failed(1, "forbidden")),
    Row(publish_json(ORDERS, b"x", b"y", request_id=2), failed(2, "forbidden")),
    Row(publish_json(ORDERS, b"x", ack="none"), error("forbidden")),
    Row(publish_json(ORDERS, b"x"), error("forbidden")),  # before the missing id
    Row(publish_json(NOWHERE, b"x", request_id=3), failed(3, "forbidden")),  # before it is looked up
    Row(publish_json(ORDERS, b"x", request_id="a"), error("forbidden", request_id="a")),
    Row(message("subscribe", **scope(ORDERS)), error("forbidden")),
    Row(message("cache_get", **CACHE, key="k", request_id=4), error("forbidden", request_id=4)),
    Row(message("cache_put", **CACHE, key="k", value="", ttl_ms=None), error("forbidden")),
    Row(publish_acked(5, ORDERS, b"x"), WireAck(1, 5, "forbidden"), goes_on=True),
    Row(publish(ORDERS, b"x"), error("forbidden")),
]
REFUSED = [
    Row(publish_json(NOWHERE, b"x", request_id=1), failed(1, GONE), goes_on=True),
    Row(publish_json(NOWHERE, b"x", b"y", request_id=2, ack="per_batch"), failed(2, GONE), goes_on=True),
    Row(publish_json(NOWHERE, b"x", request_id="a"), error(GONE, request_id="a"), goes_on=True),
    Row(publish_acked(3, NOWHERE, b"x"), WireAck(1, 3, GONE), goes_on=True),
    Row(message("subscribe", **scope(NOWHERE)), error(GONE)),
    Row(publish_json(ORDERS, b"x"), error("missing request_id for acked publish"), goes_on=True),
    Row(publish_json(ORDERS, b"x", ack="per_batch"), error("missing request_id for acked publish"), goes_on=True),
    Row(publish_json(ORDERS, b"x", b"y"), error("missing request_id for acked publish batch"), goes_on=True),
    Row(
        message("cache_get", **CACHE | {"cache": "none"}, key="k", request_id=4),
        error("cache scope not found: t1/default/none", request_id=4),
        goes_on=True,
    ),
    Row(message("cache_get", **CACHE | {"cache": "none"}, key="k"), error("cache scope not found: t1/default/none")),
    Row(frame(0x0001, body(ORDERS, [b"x"])[:-1]), error("malformed publish batch")),
    Row(frame(0x0001, body(ORDERS, [], count=1 << 30)), error("malformed publish batch")),
]


async def check(line: Session, rows: list[Row]) -> None:
    """Check the answers of all rows, each on a stream of its own, and that what goes on does."""
    for row in rows:
        stream = await line.stream()
        stream.write(row.request)
        if isinstance(row.answer, WireAck):
            assert read_ack(await stream.frame()) == row.answer, row
        else:
            assert await stream.message() == row.answer, row
        if row.goes_on:
            stream.write(publish_acked(99, "t1/default/free", b"on"))
            assert read_ack(await stream.frame()) == WireAck(0, 99, ""), row
            stream.end()
            assert await stream.rest() == [], row
        else:
            assert await stream.rest() == [], row
            await stream.stopped()


async def test_each_refusal_has_its_answer_and_the_stream_its_fate(node: StreamNode, line: Session) -> None:
    node.create("default/free")
    before = node.state(topic(ORDERS))["head_seq"]
    await check(line, MISMATCH + REFUSED)
    line.token = node.maker.token("stream.publish:stream:t1/default/free")
    await check(line, FORBIDDEN)
    assert node.state(topic(ORDERS))["head_seq"] == before


async def test_names_that_no_stream_can_have_are_not_found(line: Session) -> None:
    stream = await line.stream()
    for bad in ("", "a b", "a:b", "-a", ".a", "ä", "a" * 81, "a\0", "$x", "a\n"):
        for names in ((bad, "orders"), ("default", bad)):
            raw = {"tenant_id": "t1", "namespace": names[0], "stream": names[1]}
            answer = await stream.ask(message("publish", **raw, payload="", request_id=1))
            told = f"stream not found: tenant=t1 namespace={names[0]} stream={names[1]}"
            assert answer == failed(1, told)
    stream.write(publish_acked(2, "t1/default/" + "n" * 600, b"x"))
    ack = read_ack(await stream.frame())
    assert ack.status == 1
    assert ack.message.startswith("stream not found: tenant=t1 namespace=default stream=nnnn")
    assert len(ack.message) == 512


async def test_an_acknowledgement_tells_offset_count_and_durability(node: StreamNode, line: Session) -> None:
    where = node.create("default/told")
    stream = await line.stream()
    first = await stream.ask(publish_json(where, b"a", request_id=1))
    wanted = {"type": "publish_ok", "request_id": 1, "offset": 0, "count": 1, "durability": "fsync"}
    assert {name: first[name] for name in wanted} == wanted
    assert first["epoch"]
    second = await stream.ask(publish_json(where, b"b", b"c", request_id=2, ack="per_batch"))
    assert (second["offset"], second["count"], second["epoch"]) == (1, 2, first["epoch"])
    receipts = await line.stream(ext=["receipt"])
    receipts.write(publish_acked(3, where, b"d"))
    ack = read_ack(await receipts.frame())
    assert (ack.status, ack.request_id) == (0, 3)
    receipt = json.loads(ack.message)
    assert (receipt["offset"], receipt["count"], receipt["durability"]) == (3, 1, "fsync")
    assert node.state(topic(where))["head_seq"] == 4


async def test_answers_come_in_the_order_of_the_requests_of_a_stream(node: StreamNode, line: Session) -> None:
    where = node.create("default/ordered")
    stream = await line.stream()
    for id in range(0, 300, 6):
        stream.write(
            publish_acked(id, where, b"x"),
            publish_acked(id + 1, NOWHERE, b"x"),
            message("cache_get", **CACHE, key="none", request_id=id + 2),
            publish_json(where, b"x", request_id=id + 3),
            publish_acked(id + 4, OTHER, b"x"),
            publish(NOWHERE, b"never answered"),
            message("cache_put", **CACHE, key="k", value="", ttl_ms=None, request_id=id + 5),
        )
    stream.end()
    found = [
        read_ack(each).request_id if each.flags else read_json(each.payload)["request_id"]
        for each in await stream.rest()
    ]
    assert found == [*range(300)]
    assert node.state(topic(where))["head_seq"] == 100


async def test_frames_of_a_stream_reach_a_topic_in_their_order_and_batches_whole(
    node: StreamNode, line: Session
) -> None:
    where = node.create("default/series")
    reading = await line.subscribe(where)
    streams = [await line.stream() for _ in range(4)]
    for number in range(50):
        for at, stream in enumerate(streams):
            payloads = [b"%d %d %d" % (at, number, part) for part in range(3)]
            stream.write(publish_acked(number, where, *payloads) if number % 2 else publish(where, *payloads))
    for stream in streams:
        stream.end()
    for stream in streams:
        assert [read_ack(each)[:2] for each in await stream.rest()] == [(0, id) for id in range(1, 50, 2)]
    seen = await reading.until(600)
    for at in range(4):
        mine = [payload for payload in seen if payload.startswith(b"%d " % at)]
        assert mine == [b"%d %d %d" % (at, number, part) for number in range(50) for part in range(3)]
    starts = [payload.rpartition(b" ")[0] for payload in seen]
    assert all(starts[n] == starts[n + 1] == starts[n + 2] for n in range(0, 600, 3)), "batches are mixed"


async def test_records_and_batches_have_a_largest_size(node: StreamNode, line: Session) -> None:
    where = node.create("default/large")
    stream = await line.stream()
    stream.write(
        publish_acked(1, where, b"x" * (1 << 20)),
        publish_acked(2, where, b"x" * ((1 << 20) + 1)),
        publish_acked(3, where, *[b""] * 10_000),
        publish_acked(4, where, *[b""] * 10_001),
        publish_acked(5, where, b"ok", b"x" * ((1 << 20) + 1)),
        publish_json(where, b"\xff" * (1 << 20), request_id=6),
    )
    acks = [read_ack(await stream.frame(30)) for _ in range(5)]
    assert [ack.status for ack in acks] == [0, 1, 0, 1, 1]
    assert [acks[at].message for at in (1, 3, 4)] == ["record too large", "batch too large", "record too large"]
    assert (await stream.message(30))["type"] == "publish_ok"
    assert node.state(topic(where))["head_seq"] == 10_002
    reading = await line.subscribe(where, start={"offset": 10_001})
    assert await reading.until(1) == [b"\xff" * (1 << 20)]


async def test_every_payload_comes_back_byte_for_byte(node: StreamNode, line: Session) -> None:
    where = node.create("default/bytes")
    payloads = [
        *(b"", b"\0", b"a\0b", b"\xff\xfe", b'{"$b64":"aGk="}', b'"text"', b"{", b"null", b"\\u0000"),
        *("ü→🎉".encode(), b"\xed\xa0\x80", bytes(range(256)), b"\n", b" x ", b"x" * 70_000),
    ]
    await line.publish(where, *payloads)
    stream = await line.stream()
    await stream.ask(publish_json(where, *payloads, request_id=1))
    node.write(topic(where), {"data": {"b": 1, "a": [None, 1.5]}}, {"data": "ü"}, {"data": 7})
    reading = await line.subscribe(where, start="earliest")
    seen = await reading.until(2 * len(payloads) + 3)
    assert seen[: len(payloads)] == payloads
    assert seen[len(payloads) : -3] == payloads
    assert [json.loads(each) if each[:1] != "ü".encode()[:1] else each.decode() for each in seen[-3:]] == [
        {"b": 1, "a": [None, 1.5]},
        "ü",
        7,
    ]
    assert {each.get("$node") for each in node.records(topic(where))[: len(payloads)]} == {"tester"}


async def test_a_session_writes_each_id_once_over_all_its_connections(node: StreamNode, line: Session) -> None:
    where = node.create("default/once")
    ext = {"ext": ["session", "receipt"], "session": "s-1"}
    stream = await line.stream(**ext)
    first = await stream.ask(publish_json(where, b"a", request_id=1))
    again = await stream.ask(publish_json(where, b"a", request_id=1))
    assert (again["offset"], again["count"], again["type"]) == (first["offset"], 1, "publish_ok")
    async with session(node) as other:
        there = await other.stream(**ext)
        there.write(publish_acked(1, where, b"a"), publish_acked(2, where, b"b", b"c"))
        answers = [read_ack(await there.frame()) for _ in range(2)]
        assert [json.loads(each.message)["offset"] for each in answers] == [0, 1]
        ghost = await other.stream(ext=["session"], session="s-2")
        assert (await ghost.ask(publish_json(where, b"d", request_id=1)))["offset"] == 3
        plain = await other.stream()
        assert (await plain.ask(publish_json(where, b"e", request_id=1)))["offset"] == 4
        line.token = node.maker.token(sub="another")
    assert [each["data"] for each in node.records(topic(where))] == ["a", "b", "c", "d", "e"]


async def test_what_a_stream_has_sent_before_it_resets_or_vanishes_harms_nobody(node: StreamNode) -> None:
    where = node.create("default/resets")
    async with session(node) as line:
        for number in range(30):
            stream = await line.stream()
            stream.write(publish_acked(1, where, b"x" * 100), publish_acked(2, where, b"y")[: number + 5])
            stream.reset(number)
            stream.stop(number)
        await line.publish(where, b"end")
    async with session(node) as gone:
        stream = await gone.stream()
        stream.write(publish_acked(1, where, b"x"))
        gone.client.vanish()
    async with session(node) as line:
        await line.publish(where, b"end")


async def test_a_stream_that_is_made_is_there_at_once_and_so_is_its_deletion(node: StreamNode, line: Session) -> None:
    stream = await line.stream()
    where = "t1/default/fresh"
    for _ in range(3):
        assert (await stream.ask(publish_json(where, b"x", request_id=1)))["type"] == "publish_error"
        node.create("default/fresh")
        assert (await stream.ask(publish_json(where, b"x", request_id=2)))["offset"] == 0
        node.v0("DELETE", f"/topics/{topic(where)}")


async def test_streams_are_created_by_their_first_publish_where_that_is_allowed(processes: Processes) -> None:
    node = StreamNode(processes, "creates", EVENTD_QUIC_AUTO_CREATE="true")
    async with session(node) as line:
        stream = await line.stream()
        answers = [await stream.ask(publish_json("t1/new/one", b"x", request_id=id)) for id in range(2)]
        assert [each["offset"] for each in answers] == [0, 1]
        stream.write(publish_acked(2, "t1/new/a:b", b"y"))
        assert read_ack(await stream.frame()).message == "stream not found: tenant=t1 namespace=new stream=a:b"
        stream.write(publish("t1/new/two", b"y"), publish_acked(3, "t1/new/two", b"z"))
        assert read_ack(await stream.frame()) == WireAck(0, 3, ""), "the publish before it has been stored, too"
        reading = await line.subscribe("t1/new/two", start="earliest")
        assert await reading.until(2) == [b"y", b"z"]
    assert node.stop() == 0


async def test_a_thousand_unanswered_publishes_are_all_answered(node: StreamNode, line: Session) -> None:
    where = node.create("default/many")
    stream = await line.stream()
    stream.write(b"".join(publish_acked(id, where, b"x") for id in range(5000)), end=True)
    assert [read_ack(each) for each in await stream.rest(60)] == [WireAck(0, id, "") for id in range(5000)]
