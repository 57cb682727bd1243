"""Subscriptions of a second library: where they begin, that nothing is lost or repeated, and how they end."""

from __future__ import annotations

import asyncio
import base64
import json

from tests.support.aioquic_client import RawStream
from tests.support.felix_wire import message, publish, publish_acked, publish_json, read_ack, read_events, scope
from tests.support.processes import Processes
from tests.support.stream_nodes import Session, StreamNode, Subscription, session, topic
from tests.support.waiting import wait_for

ORDERS = "t1/default/orders"


async def refused(line: Session, **members: object) -> dict[str, object]:
    """Subscribe and return the answer, after which the stream must end."""
    stream = await line.stream()
    stream.write(message("subscribe", **members))
    answer = await stream.message()
    assert await stream.rest() == []
    return answer


def numbered(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


async def test_a_subscription_begins_where_it_is_asked_to(node: StreamNode, line: Session) -> None:
    where = node.create("default/starts")
    await line.publish(where, *numbered(*range(5)))
    latest, tail = await line.subscribe(where), await line.subscribe(where, start="latest")
    earliest = await line.subscribe(where, start="earliest")
    middle, end = await line.subscribe(where, start={"offset": 3}), await line.subscribe(where, start={"offset": 5})
    await line.publish(where, *numbered(5, 6))
    for reading, first in ((latest, 5), (tail, 5), (earliest, 0), (middle, 3), (end, 5)):
        assert await reading.until(7 - first) == numbered(*range(first, 7))
        assert [offset for offset, _ in reading.seen] == [*range(first, 7)]
    ids = [each.answer["subscription_id"] for each in (latest, tail, earliest, middle, end)]
    assert len(set(ids)) == 5
    assert all(0 < id < 2**53 for id in ids)
    assert len({each.answer["epoch"] for each in (latest, tail, earliest, middle, end)}) == 1


async def test_an_offset_that_is_not_there_is_answered_by_the_nearest_that_is(node: StreamNode, line: Session) -> None:
    where = node.create("default/cursor", cap_records=3)
    await line.publish(where, *numbered(*range(10)))
    wait_for(lambda: node.state(topic(where))["earliest_seq"] == 8, "the cap to be kept")
    wanted = {"type": "subscribe_cursor_error", "reason": "in_future", "requested": 11, "available": 10}
    answer = await refused(line, **scope(where), start={"offset": 11})
    assert {name: answer[name] for name in wanted} == wanted
    wanted = {"type": "subscribe_cursor_error", "reason": "too_old", "requested": 6, "available": 7}
    answer = await refused(line, **scope(where), start={"offset": 6})
    assert {name: answer[name] for name in wanted} == wanted
    assert (await refused(line, **scope(where), start={"offset": 2**63}))["reason"] == "in_future"
    reading = await line.subscribe(where, start="earliest")
    assert await reading.until(3) == numbered(7, 8, 9)
    told = await line.subscribe(where, auth={"ext": ["gap"]}, start={"offset": 2}, on_gap="tell")
    assert await told.until(3) == numbered(7, 8, 9)
    (gap,) = told.gaps
    assert (gap["from"], gap["to"], gap["reason"], gap["missed"]) == (2, 6, "cap", 5)
    assert gap["subscription_id"] == told.answer["subscription_id"]


async def test_records_deleted_by_request_make_no_start_too_old(node: StreamNode, line: Session) -> None:
    where = node.create("default/deleted")
    await line.publish(where, *numbered(*range(6)))
    node.v0("POST", f"/topics/{topic(where)}/delete", {"before_seq": 4})
    reading = await line.subscribe(where, start={"offset": 1})
    assert await reading.until(3) == numbered(3, 4, 5)
    assert [offset for offset, _ in reading.seen] == [3, 4, 5]


async def test_a_hole_ends_a_frame(node: StreamNode, line: Session) -> None:
    where = node.create("default/holes")
    records = [{"data": str(number), "tag": "odd" if number in (2, 5) else "even"} for number in range(8)]
    node.write(topic(where), *records)
    node.v0("POST", f"/topics/{topic(where)}/delete", {"match": "odd"})
    reading = await line.subscribe(where, start="earliest")
    await reading.until(6)
    assert [offset for offset, _ in reading.seen] == [0, 1, 3, 4, 6, 7]
    assert reading.payloads == numbered(0, 1, 3, 4, 6, 7)


async def test_nothing_is_lost_or_repeated_between_history_and_what_comes(node: StreamNode) -> None:
    where = node.create("default/handover")
    async with session(node) as writer, session(node) as line:
        stream = await writer.stream()
        end = asyncio.Event()

        async def write() -> int:
            number = 0
            while not end.is_set():
                stream.write(publish_acked(number, where, *numbered(*range(number * 20, number * 20 + 20))))
                assert read_ack(await stream.frame()).status == 0
                number += 1
            return number * 20

        writing = asyncio.create_task(write())
        readers: list[tuple[int, Subscription]] = []
        try:
            for step in range(12):
                readers.append((0, await line.subscribe(where, start="earliest")))
                seen = readers[0][1]
                await seen.until(len(seen.seen) + 20)
                at = len(seen.seen) // 2
                readers.append((at, await line.subscribe(where, start={"offset": at})))
                if step % 4 == 3:
                    readers[-2][1].leave()
                    del readers[-2]
        finally:
            end.set()
            total = await writing
        for first, reading in readers:
            assert await reading.until(total - first) == numbered(*range(first, total))
            assert [offset for offset, _ in reading.seen] == [*range(first, total)]


async def test_records_come_in_full_frames_and_a_lone_one_at_once(node: StreamNode, line: Session) -> None:
    where = node.create("default/frames")
    live = await line.subscribe(where)
    await line.publish(where, *numbered(*range(200)))
    await line.publish(where, *[b"x" * 30_000] * 5)
    await line.publish(where, b"y" * 200_000, b"z")
    history = await line.subscribe(where, start="earliest")
    for reading in (live, history):
        await reading.until(207)
        sizes = [(len(batch.payloads), sum(map(len, batch.payloads))) for batch in reading.frames]
        assert all(count <= 64 and (size <= 65_536 or count == 1) for count, size in sizes), sizes
    assert [len(batch.payloads) for batch in live.frames[:4]] == [64, 64, 64, 8]
    before = len(live.frames)
    await line.publish(where, b"alone")
    await live.step()
    assert live.frames[before].payloads == [b"alone"]


async def test_without_offsets_in_its_flags_a_client_gets_frames_without_them(node: StreamNode, line: Session) -> None:
    where = node.create("default/plain")
    await line.publish(where, b"a", b"b")
    for flags in (0x0007, 0x001F, None):
        stream = await line.stream(flags=flags)
        answer = await stream.ask(message("subscribe", **scope(where), start="earliest"))
        assert answer["type"] == "subscribed"
        events = await line.client.take_opened()
        assert (await events.message())["type"] == "event_stream_hello"
        each = await events.frame()
        assert each.flags == 0x0004
        assert read_events(each).payloads == [b"a", b"b"]
        events.stop()


async def test_subscribing_is_the_last_request_of_a_stream(line: Session) -> None:
    stream = await line.stream()
    stream.write(publish_json(ORDERS, b"x", request_id=1), message("subscribe", **scope(ORDERS)))
    stream.write(publish_acked(2, ORDERS, b"too late"))
    assert (await stream.message())["type"] == "publish_ok"
    assert (await stream.message())["type"] == "subscribed"
    assert await stream.rest() == []


async def test_an_id_that_is_in_use_on_the_connection_is_refused(node: StreamNode, line: Session) -> None:
    first = await line.subscribe(ORDERS, subscription_id=77)
    assert first.answer["subscription_id"] == 77
    answer = await refused(line, **scope(ORDERS), subscription_id=77)
    assert answer["type"] == "error"
    assert (await refused(line, **scope(ORDERS), subscription_id=2**53))["type"] == "error"
    other = await line.subscribe(ORDERS)
    assert other.answer["subscription_id"] != 77
    async with session(node) as another:
        assert (await another.subscribe(ORDERS, subscription_id=77)).answer["subscription_id"] == 77


async def test_evicted_records_are_a_gap_to_who_asks_and_a_jump_to_others(node: StreamNode) -> None:
    where = node.create("default/gaps", durability="memory", cap_records=200)
    async with session(node) as writer, session(node, max_stream_data=20_000) as line:
        told = await line.subscribe(where, auth={"ext": ["gap"]})
        plain = await line.subscribe(where)
        for each in (told, plain):
            line.client.stall(each.stream)
        for number in range(60):
            await writer.publish(where, *[b"%d" % number * 1000] * 20)
        for each in (told, plain):
            line.client.resume(each.stream)
        last = b"59" * 1000
        for each in (told, plain):
            while not each.seen or each.seen[-1][0] < 1199:
                await each.step()
            assert each.payloads[-1] == last
        missing = sorted(set(range(1200)) - {offset for offset, _ in told.seen})
        assert missing, "nothing was evicted"
        covered = [offset for gap in told.gaps for offset in range(gap["from"], gap["to"] + 1)]
        assert covered == missing
        assert {gap["reason"] for gap in told.gaps} == {"cap"}
        assert sum(gap["missed"] for gap in told.gaps) == len(missing)
        assert plain.gaps == []
        offsets = [offset for offset, _ in plain.seen]
        assert offsets == sorted(set(offsets))
        assert len(offsets) < 1200


async def test_a_subscriber_that_is_far_behind_may_jump_to_the_end(node: StreamNode, line: Session) -> None:
    where = node.create("default/skips")
    await line.publish(where, *numbered(*range(500)))
    reading = await line.subscribe(where, auth={"ext": ["gap"]}, start={"offset": 0}, skip_behind=100)
    await line.publish(where, b"end")
    while b"end" not in reading.payloads:
        await reading.step()
    (gap,) = reading.gaps
    assert gap["reason"] == "skipped"
    seen = [offset for offset, _ in reading.seen]
    assert sorted([*seen, *range(gap["from"], gap["to"] + 1)]) == [*range(501)]


async def test_another_log_is_told_by_its_epoch(node: StreamNode, line: Session) -> None:
    where = node.create("default/epochs")
    await line.publish(where, b"a", b"b")
    epoch = (await line.subscribe(where)).answer["epoch"]
    same = await line.subscribe(where, start={"offset": 1}, epoch=epoch)
    assert await same.until(1) == [b"b"]
    answer = await refused(line, **scope(where), start={"offset": 1}, epoch="another")
    assert (answer["type"], answer["reason"], answer["epoch"]) == ("subscribe_cursor_error", "too_old", epoch)
    asked = {"start": {"offset": 7}, "epoch": "another", "on_gap": "tell"}
    told = await line.subscribe(where, auth={"ext": ["gap"]}, **asked)
    assert await told.until(2) == [b"a", b"b"]
    (gap,) = told.gaps
    assert gap["reason"] == "recreated"


async def test_a_stalled_subscriber_costs_its_neighbours_on_the_connection_nothing(node: StreamNode) -> None:
    where = node.create("default/stalls", durability="memory")
    async with session(node) as writer, session(node, max_stream_data=64_000) as line:
        stalled, reading = await line.subscribe(where), await line.subscribe(where)
        line.client.stall(stalled.stream)
        before = node.memory()
        for number in range(40):
            await writer.publish(where, *[b"%d" % number * 1000] * 40)
            await reading.until(40 * (number + 1))
        assert len(stalled.stream.data) <= 64_000
        assert node.memory() - before < 24 << 20
        line.client.resume(stalled.stream)
        assert await stalled.until(1600, seconds=20) == reading.payloads
        assert [offset for offset, _ in stalled.seen] == [*range(1600)]


async def test_the_peers_limit_of_streams_is_answered_and_not_waited_for(node: StreamNode) -> None:
    async with session(node) as line:
        line.client.quic._local_max_streams_uni.value = 128
        readers = [await line.subscribe(ORDERS) for _ in range(100)]
        told: dict[str, object] | None = None
        for _ in range(60):
            stream = await line.stream()
            stream.write(message("subscribe", **scope(ORDERS)), end=True)
            answer = await stream.message()
            if answer["type"] == "error":
                told = answer
                break
            readers.append(Subscription(await line.client.take_opened(), answer))
        if told is not None:
            assert told["message"] == "max subscriptions per connection exceeded"
        await line.publish(ORDERS, b"to all")
        for reading in readers[:100]:
            assert await reading.until(1) == [b"to all"]


async def test_subscriptions_of_a_connection_have_a_limit(processes: Processes) -> None:
    node = StreamNode(processes, "few", EVENTD_QUIC_MAX_SUBSCRIPTIONS="3")
    node.create("default/orders")
    async with session(node) as line, session(node) as other:
        readers = [await line.subscribe(ORDERS) for _ in range(3)]
        answer = await refused(line, **scope(ORDERS))
        assert answer == {"type": "error", "message": "max subscriptions per connection exceeded"}
        await other.subscribe(ORDERS)
        readers[0].leave()
        reading = await first_that_is_taken(line)
        await line.publish(ORDERS, b"x")
        assert await reading.until(1) == [b"x"]
    assert node.stop() == 0


async def first_that_is_taken(line: Session) -> Subscription:
    """Subscribe again until it is allowed: the end of another subscription takes a moment."""
    async with asyncio.timeout(10):
        while True:
            stream: RawStream = await line.stream()
            answer = await stream.ask(message("subscribe", **scope(ORDERS)))
            if answer["type"] == "subscribed":
                events = await line.client.take_opened()
                await events.message()
                return Subscription(events, answer)


async def test_what_is_written_over_http_arrives_and_what_arrives_is_there_over_http(
    node: StreamNode, line: Session
) -> None:
    where = node.create("default/both")
    reading = await line.subscribe(where)
    node.write(topic(where), {"data": "text", "tag": "t"}, {"data": {"a": 1}})
    stream = await line.stream()
    stream.write(publish(where, b"bytes \xff"), publish_acked(1, where, b"more"))
    await stream.frame()
    assert await reading.until(4) == [b"text", b'{"a": 1}', b"bytes \xff", b"more"] or reading.payloads[1] == b'{"a":1}'
    found = [each["data"] for each in node.records(topic(where))]
    assert found == ["text", {"a": 1}, {"$b64": base64.b64encode(b"bytes \xff").decode()}, "more"]
    assert json.loads(reading.payloads[1]) == {"a": 1}
