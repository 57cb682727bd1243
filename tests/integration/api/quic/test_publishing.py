"""Publishes: what is stored, what is answered, and in which order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eventd.testing import until
from tests.integration.api.quic.conftest import StartStreams
from tests.support import felix_wire as wire
from tests.support.stream_channels import StreamsInMemory

STREAM = "t1/n/s"
TOPIC = "stream:t1:n:s"
MISSING = "stream not found: tenant=t1 namespace=n stream=x"
NUMBERS = [[b"1"], [b"2", b"3"], [b""]]


async def data_of(streams: StreamsInMemory, topic: str = TOPIC) -> list[Any]:
    return [record["data"] for record in await streams.records(topic)]


async def test_an_acknowledged_batch_is_stored_with_the_subject_as_node(streams: StreamsInMemory) -> None:
    stream = await streams.stream("ann")
    stream.send(wire.publish_acked(7, STREAM, b"one", b"\x00\xff", b"", b'{"$b64":"AA=="}', '"quoted",é'.encode()))
    assert await stream.ack() == (0, 7, "")
    found = await streams.records(TOPIC)
    assert [record["data"] for record in found] == [
        "one", {"$b64": "AP8="}, "", '{"$b64":"AA=="}', '"quoted",é',
    ]  # fmt: skip
    assert {record["$node"] for record in found} == {"ann"}


async def test_the_receipt_names_offset_count_durability_and_epoch(streams: StreamsInMemory) -> None:
    stream = await streams.stream(ext=["receipt"])
    stream.send(wire.publish_acked(1, STREAM, b"a"), wire.publish_acked(2, STREAM, b"b", b"c"))
    await stream.ack()
    ack = await stream.ack()
    told = json.loads(ack.message)
    assert told.pop("epoch")
    assert told == {"offset": 1, "count": 2, "durability": "memory"}


async def test_a_json_publish_is_answered_with_its_offset(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    answer = await stream.ask(wire.publish_json(STREAM, b"a", request_id=3))
    assert answer.pop("epoch")
    assert answer == {"type": "publish_ok", "request_id": 3, "offset": 0, "count": 1, "durability": "memory"}
    answer = await stream.ask(wire.publish_json(STREAM, b"b", b"c", request_id=4, ack="per_batch"))
    assert (answer["offset"], answer["count"]) == (1, 2)
    assert await data_of(streams) == ["a", "b", "c"]


async def test_an_id_that_is_a_text_gets_ok_and_may_leave_out_names(streams: StreamsInMemory) -> None:
    await streams.server.put("stream:t1:default:s")
    stream = await streams.stream()
    answer = await stream.ask(wire.message("publish", stream="s", payload="eA==", request_id="r-1"))
    assert (answer["type"], answer["request_id"], answer["offset"]) == ("ok", "r-1", 0)
    answer = await stream.ask(wire.message("publish", stream="x", payload="eA==", request_id="r-2"))
    wanted = "stream not found: tenant=t1 namespace=default stream=x"
    assert answer == {"type": "error", "message": wanted, "request_id": "r-2"}


async def test_an_acknowledged_json_publish_needs_an_id(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    for given in (b"a",), (b"a", b"b"):
        batch = " batch" if len(given) > 1 else ""
        answer = await stream.ask(wire.publish_json(STREAM, *given))
        assert answer == {"type": "error", "message": f"missing request_id for acked publish{batch}"}
    assert await data_of(streams) == []
    assert (await stream.ask(wire.publish_json(STREAM, b"c", request_id=1)))["type"] == "publish_ok"


async def test_what_is_not_acknowledged_is_not_answered(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    stream.send(wire.publish(STREAM, b"a"), wire.publish_json(STREAM, b"b", ack="none", request_id=1))
    stream.send(wire.publish("t1/n/x", b"lost", b"lost"), wire.publish_acked(9, STREAM, b"c"))
    assert (await stream.ack()).request_id == 9
    assert await data_of(streams) == ["a", "b", "c"]
    assert streams.counted("stream_published_total", result="dropped") == 2
    assert streams.counted("stream_dropped_total", reason="unknown_stream") == 2
    assert streams.counted("stream_published_total", result="ok") == 3


async def test_a_unidirectional_stream_publishes_and_is_never_answered(streams: StreamsInMemory) -> None:
    stream = await streams.stream(is_unidirectional=True)
    stream.send(wire.publish(STREAM, b"a"), wire.publish_json(STREAM, b"b", request_id=1), wire.publish("t1/n/x", b"x"))
    stream.send(wire.publish_json(STREAM, b"c", b"d"), end=True)
    assert await stream.ended()

    async def has_all() -> bool:
        return await data_of(streams) == ["a", "b", "c", "d"]

    await until(has_all)


@pytest.mark.parametrize("kind", ["subscribe", "cache_get", "ok"])
async def test_a_unidirectional_stream_ends_for_other_messages(streams: StreamsInMemory, kind: str) -> None:
    stream = await streams.stream(is_unidirectional=True)
    stream.send(wire.message(kind, **wire.scope(STREAM), cache="c", key="k"))
    assert await stream.ended()


async def test_answers_have_the_order_of_requests_whether_written_or_refused(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    frames = []
    for id in range(60):
        where = STREAM if id % 3 else "t1/n/x"
        frames.append(wire.publish_json(where, b"j", request_id=id) if id % 2 else wire.publish_acked(id, where, b"b"))
    stream.send(*frames)
    for id in range(60):
        frame = await stream.frame()
        if id % 2:
            message = wire.read_json(frame.payload)
            assert (message["request_id"], message["type"]) == (id, "publish_ok" if id % 3 else "publish_error")
        else:
            assert wire.read_ack(frame)[:2] == (0 if id % 3 else 1, id)


async def test_large_and_small_batches_keep_their_order(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    large = [b"L%d" % number for number in range(3000)]
    stream.send(wire.publish_acked(1, STREAM, b"s0"), wire.publish_acked(2, STREAM, *large))
    stream.send(wire.publish_acked(3, STREAM, b"s1"), wire.publish_acked(4, STREAM, *large[:2000], b"end"))
    stream.send(wire.publish_acked(5, STREAM, b"s2"))
    assert [(await stream.ack())[:2] for _ in range(5)] == [(0, id) for id in range(1, 6)]
    text: list[str] = []
    while page := (await streams.server.diff(TOPIC, len(text), limit=1000)).data:
        text += page
    wanted = ["s0", *(each.decode() for each in large), "s1", *(each.decode() for each in large[:2000]), "end", "s2"]
    assert text == wanted


async def test_an_empty_batch_is_acknowledged_with_the_next_offset(streams: StreamsInMemory) -> None:
    stream = await streams.stream(ext=["receipt"])
    stream.send(wire.publish_acked(1, STREAM, b"a"), wire.publish_acked(2, STREAM), wire.publish_acked(3, "t1/n/x"))
    assert (await stream.ack()).status == 0
    told = json.loads((await stream.ack()).message)
    assert (told["offset"], told["count"]) == (1, 0)
    assert await stream.ack() == (1, 3, MISSING)


async def test_a_stream_that_does_not_exist_is_made_only_if_that_is_set(start_streams: StartStreams) -> None:
    streams = await start_streams(auto_create=True)
    stream = await streams.stream()
    stream.send(wire.publish_acked(1, STREAM, b"a"), wire.publish_acked(2, "t1/n/bad:name", b"a"))
    assert (await stream.ack()).status == 0
    assert await stream.ack() == (1, 2, "stream not found: tenant=t1 namespace=n stream=bad:name")
    assert await data_of(streams) == ["a"]


async def test_a_queue_is_no_stream(streams: StreamsInMemory) -> None:
    await streams.server.put("stream:t1:n:q", type="queue")
    stream = await streams.stream()
    stream.send(wire.publish_acked(1, "t1/n/q", b"a"))
    assert await stream.ack() == (1, 1, "stream not found: tenant=t1 namespace=n stream=q")


async def test_a_stream_that_was_just_made_is_there_at_once(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    stream.send(wire.publish_acked(1, "t1/n/x", b"a"))
    assert await stream.ack() == (1, 1, MISSING)
    await streams.server.put("stream:t1:n:x")
    stream.send(wire.publish_acked(2, "t1/n/x", b"a"))
    assert (await stream.ack()).status == 0


async def test_a_full_topic_refuses_and_the_stream_continues(streams: StreamsInMemory) -> None:
    await streams.server.put("stream:t1:n:f", cap_records=1, discard="reject")
    stream = await streams.stream()
    stream.send(wire.publish_acked(1, "t1/n/f", b"a"), wire.publish_acked(2, "t1/n/f", b"b"))
    assert (await stream.ack()).status == 0
    assert await stream.ack() == (1, 2, "topic full")
    answer = await stream.ask(wire.publish_json("t1/n/f", b"b", request_id=3))
    assert answer == {"type": "publish_error", "request_id": 3, "message": "topic full"}
    stream.send(wire.publish_acked(4, "t1/n/f", b"b", b"c"))
    assert await stream.ack() == (1, 4, "record too large")


async def test_batches_that_still_fit_into_a_topic_are_written_in_their_order(streams: StreamsInMemory) -> None:
    await streams.server.put("stream:t1:n:small", durability="memory", cap_records=5, discard="reject")
    stream = await streams.stream()
    sent = [(b"first",), (b"a", b"b", b"c"), (b"too", b"many", b"at", b"once"), tuple(b"123456"), (b"last",)]
    batches = [[payload if isinstance(payload, bytes) else b"%d" % payload for payload in batch] for batch in sent]
    stream.send(*(wire.publish_acked(number, "t1/n/small", *batch) for number, batch in enumerate(batches[:4])))
    stream.send(wire.publish_acked(4, "t1/n/small", *batches[4]))
    found = [await stream.ack() for _ in batches]
    assert [(ack.status, ack.message) for ack in found] == [
        *((0, ""), (0, ""), (1, "topic full"), (1, "record too large")),
        (0, ""),
    ]
    records = await streams.records("stream:t1:n:small")
    assert [record["data"] for record in records] == ["first", "a", "b", "c", "last"]


async def test_sizes_over_the_limits_are_refused(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    largest = b"x" * (1 << 20)
    stream.send(wire.publish_acked(1, STREAM, largest), wire.publish_acked(2, STREAM, largest + b"x"))
    stream.send(wire.publish_acked(3, STREAM, *[b""] * 10_001), wire.publish_acked(4, STREAM, *[b""] * 10_000))
    assert (await stream.ack())[:2] == (0, 1)
    assert await stream.ack() == (1, 2, "record too large")
    assert await stream.ack() == (1, 3, "batch too large")
    assert (await stream.ack())[:2] == (0, 4)


async def test_the_bytes_of_all_topics_are_limited(start_streams: StartStreams) -> None:
    streams = await start_streams(limits={"max_total_bytes": 100})
    await streams.server.put(TOPIC)
    stream = await streams.stream()
    stream.send(wire.publish_acked(1, STREAM, b"x" * 200))
    assert await stream.ack() == (1, 1, "server overloaded")


# --- what is not permitted ------------------------------------------------------------------------------------------


async def test_a_binary_publish_that_is_not_permitted_is_refused_and_the_stream_continues(
    streams: StreamsInMemory,
) -> None:
    stream = await streams.stream("ann stream.publish:stream:t1/n/s")
    stream.send(wire.publish_acked(1, "t2/n/s", b"a"), wire.publish_acked(2, "t1/n/x", b"a"))
    stream.send(wire.publish_acked(3, STREAM, b"a"))
    assert await stream.ack() == (1, 1, "tenant mismatch")
    assert await stream.ack() == (1, 2, "forbidden")
    assert (await stream.ack()).status == 0


@pytest.mark.parametrize("id", [7, "seven", None])
async def test_a_json_publish_for_another_tenant_ends_the_stream(streams: StreamsInMemory, id: Any) -> None:
    stream = await streams.stream()
    more = {} if id is None else {"request_id": id}
    answer = await stream.ask(wire.publish_json("t2/n/s", b"a", **more))
    assert answer == {"type": "error", "message": "tenant mismatch", **more}
    assert await stream.ended()


@pytest.mark.parametrize(
    ("id", "answer"),
    [
        (7, {"type": "publish_error", "request_id": 7, "message": "forbidden"}),
        ("seven", {"type": "error", "message": "forbidden", "request_id": "seven"}),
        (None, {"type": "error", "message": "forbidden"}),
    ],
)
async def test_a_json_publish_that_is_not_permitted_ends_the_stream(
    streams: StreamsInMemory, id: Any, answer: dict[str, Any]
) -> None:
    stream = await streams.stream("ann stream.subscribe:*")
    assert await stream.ask(wire.publish_json(STREAM, b"a", **({} if id is None else {"request_id": id}))) == answer
    assert await stream.ended()


async def test_an_unacknowledged_publish_that_is_not_permitted_ends_the_stream(streams: StreamsInMemory) -> None:
    stream = await streams.stream("ann stream.subscribe:*")
    stream.send(wire.publish(STREAM, b"a"))
    assert await stream.error() == "forbidden"


# --- once -----------------------------------------------------------------------------------------------------------


async def test_a_request_of_a_session_is_written_once(streams: StreamsInMemory) -> None:
    first = await streams.stream(ext=["session", "receipt"], session="s1")
    first.send(wire.publish_acked(1, STREAM, b"a", b"b"), wire.publish_acked(2, STREAM, b"c"))
    answers = [await first.ack(), await first.ack()]
    streams.connect()
    again = await streams.stream(ext=["session", "receipt"], session="s1")
    again.send(wire.publish_acked(1, STREAM, b"a", b"b"), wire.publish_acked(2, STREAM, b"c"))
    assert [await again.ack(), await again.ack()] == answers
    assert await data_of(streams) == ["a", "b", "c"]


async def test_a_repeated_request_that_is_still_under_way_is_written_once(streams: StreamsInMemory) -> None:
    stream = await streams.stream(ext=["session", "receipt"], session="s1")
    stream.send(wire.publish_acked(1, STREAM, b"a"), wire.publish_acked(1, STREAM, b"a"))
    assert await stream.ack() == await stream.ack()
    assert await data_of(streams) == ["a"]


async def test_sessions_and_kinds_of_ids_are_told_apart(streams: StreamsInMemory) -> None:
    for session in "s1", "s2":
        stream = await streams.stream(ext=["session"], session=session)
        stream.send(wire.publish_acked(1, STREAM, b"number"))
        assert (await stream.ack()).status == 0
        assert (await stream.ask(wire.publish_json(STREAM, b"text", request_id="1")))["type"] == "ok"
    assert await data_of(streams) == ["number", "text", "number", "text"]


async def test_without_the_extension_a_repeated_id_is_written_again(streams: StreamsInMemory) -> None:
    stream = await streams.stream(session="s1")
    stream.send(wire.publish_acked(1, STREAM, b"a"), wire.publish_acked(1, STREAM, b"a"))
    assert [(await stream.ack()).status for _ in range(2)] == [0, 0]
    assert await data_of(streams) == ["a", "a"]


# --- units ----------------------------------------------------------------------------------------------------------


async def test_small_batches_that_follow_each_other_share_transactions(streams: StreamsInMemory) -> None:
    stream = await streams.stream(ext=["receipt"])
    before = streams.server.log.work.transactions
    stream.send(*(wire.publish_acked(id, STREAM, *[b"x"] * (id % 3)) for id in range(300)))
    told = [json.loads((await stream.ack()).message) for _ in range(300)]
    offsets = [sum(id % 3 for id in range(upto)) for upto in range(300)]
    assert [each["offset"] for each in told] == offsets
    assert [each["count"] for each in told] == [id % 3 for id in range(300)]
    assert streams.server.log.work.transactions - before < 10


async def test_batches_that_share_a_unit_are_refused_one_by_one(streams: StreamsInMemory) -> None:
    await streams.server.put("stream:t1:n:f", cap_records=5, discard="reject")
    stream = await streams.stream()
    stream.send(*(wire.publish_acked(id, "t1/n/f", b"x", b"y") for id in range(4)), wire.publish("t1/n/f", b"z"))
    answers = [await stream.ack() for _ in range(4)]
    assert [ack.message for ack in answers] == ["", "", "topic full", "topic full"]
    assert await data_of(streams, "stream:t1:n:f") == ["x", "y", "x", "y", "z"]


async def test_batches_for_several_topics_keep_their_order(streams: StreamsInMemory) -> None:
    await streams.server.put("stream:t1:n:o")
    stream = await streams.stream()
    for number in range(40):
        stream.send(wire.publish(STREAM if number % 2 else "t1/n/o", b"%d" % number))
    stream.send(wire.publish_acked(1, STREAM), wire.publish_acked(2, "t1/n/o"))
    assert [(await stream.ack()).status for _ in range(2)] == [0, 0]
    assert await data_of(streams) == [str(number) for number in range(1, 40, 2)]
    assert await data_of(streams, "stream:t1:n:o") == [str(number) for number in range(0, 40, 2)]
