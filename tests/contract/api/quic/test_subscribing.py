"""Subscriptions of a stream over both databases: where they begin, what they send, what they say about losses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from eventd.api.quic.event_frames import _encode as encode
from eventd.api.quic.event_stream import EventStream
from eventd.api.quic.options import StreamOptions
from eventd.api.quic.subscribing import MEASURE_SECONDS, UNSENT, Subscribing
from eventd.api.topics import shared_reads
from eventd.log.core.head import renew_epoch
from eventd.log.topics.limits import clear_ephemeral
from eventd.log.topics.topic_page import read_topic_page
from eventd.streams.frames import Flags
from eventd.streams.messages import Error, SubscribeCursorError, Subscribed
from eventd.streams.names import StreamName
from eventd.testing import ManualClock, until
from tests.support.event_streams import OFFSETS, ORDERS, Places, ReadLink, StreamClient
from tests.support.fresh import on_sqlite
from tests.support.topics import Topics
from tests.support.v0 import Server, serving

TOPIC = ORDERS.topic


class Node:
    """A server whose topics are streams."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.v0 = server.v0
        self.log = server.log
        self.topics = Topics(server.log)
        self.subscribing = self.with_options(StreamOptions())

    def with_options(self, options: StreamOptions) -> Subscribing:
        self.subscribing = Subscribing(self.v0, self.v0.serving.metrics.streams, options)
        return self.subscribing

    def client(self, link: Any = None, **options: Any) -> StreamClient:
        return StreamClient(self.subscribing, link, **options)

    async def put(self, *texts: str) -> None:
        """Write a batch."""
        await self.topics.put(TOPIC, *texts)

    async def put_many(self, count: int, size: int) -> None:
        """Write large records, in batches."""
        for _ in range(count // 50):
            await self.topics.put(TOPIC, *["x" * size] * 50)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def node(migrated_url: str) -> AsyncIterator[Node]:
    async with serving(migrated_url) as server:
        opened = Node(server)
        await opened.topics.make(TOPIC)
        yield opened


# --- where it begins --------------------------------------------------------------------------------------------------


@on_sqlite
async def test_a_subscriber_gets_hello_then_the_history_then_what_is_written_live(node: Node) -> None:
    await node.put("a", "b")
    answer, stream = await node.client().begin(start="earliest")
    await stream.until_seen(2)
    await node.put("c", "d")
    await stream.until_seen(4)
    assert isinstance(answer, Subscribed)
    assert (answer.subscription_id, answer.offset) == (1, 0)
    assert stream.messages == [{"type": "event_stream_hello", "subscription_id": 1}]
    assert stream.seen == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]
    assert stream.frames == [(0, 0), (OFFSETS, 2), (OFFSETS, 2)], "a batch is a frame"


@on_sqlite
async def test_nothing_is_sent_before_the_answer_is_written_and_nothing_is_lost_until_then(node: Node) -> None:
    await node.put("before")
    client = node.client()
    answer, start = await client.ask()
    await node.put("between")
    [stream] = client.link.streams
    assert [message["type"] for message in stream.messages] == ["event_stream_hello"]
    assert start is not None
    start()
    await stream.until_seen(1)
    assert stream.seen == [(1, b"between")]
    assert isinstance(answer, Subscribed)
    assert answer.offset == 1


@pytest.mark.parametrize(("start", "offset"), [(None, 3), ("latest", 3), ("earliest", 0), (0, 0), (2, 2), (3, 3)])
@on_sqlite
async def test_where_a_subscription_begins(node: Node, start: Any, offset: int) -> None:
    await node.put("a", "b", "c")
    answer, stream = await node.client().begin(start=start)
    await node.put("d")
    await stream.until_seen(4 - offset)
    assert stream.offsets == [*range(offset, 4)]
    assert isinstance(answer, Subscribed)
    assert answer.offset == offset
    assert answer.epoch


@on_sqlite
async def test_an_offset_beyond_the_end_is_in_the_future(node: Node) -> None:
    await node.put("a", "b")
    client = node.client()
    for start in (3, 2**64 - 1):
        answer = await client.refused(start=start)
        assert isinstance(answer, SubscribeCursorError)
        assert (answer.reason, answer.requested, answer.available) == ("in_future", start, 2)
    assert not client.link.streams


async def test_an_offset_below_the_oldest_event_is_too_old(node: Node) -> None:
    await node.topics.change(TOPIC, cap_records=2)
    await node.put("a", "b", "c", "d")
    answer = await node.client().refused(start=1)
    assert isinstance(answer, SubscribeCursorError)
    assert (answer.reason, answer.requested, answer.available) == ("too_old", 1, 2)
    assert answer.epoch
    answer, stream = await node.client().begin(start="earliest")
    await stream.until_seen(2)
    assert isinstance(answer, Subscribed)
    assert (answer.offset, stream.offsets, stream.gaps) == (2, [2, 3], [])


@on_sqlite
async def test_a_subscriber_may_ask_for_a_gap_instead_of_an_error(node: Node) -> None:
    await node.topics.change(TOPIC, cap_records=2)
    await node.put("a", "b", "c", "d")
    answer, stream = await node.client().begin(start=1, on_gap="tell")
    await stream.until_seen(2)
    gap = {"type": "gap", "subscription_id": 1, "from": 1, "to": 1, "reason": "cap", "missed": 1}
    assert stream.messages[1:] == [gap]
    assert stream.seen == [(2, b"c"), (3, b"d")]
    assert isinstance(answer, Subscribed)
    assert answer.offset == 1, "a client that resumes there gets the gap again"
    unaware = await node.client(extensions=frozenset()).read(start=0, on_gap="tell")
    await unaware.until_seen(2)
    assert (unaware.offsets, unaware.gaps) == ([2, 3], [])


@on_sqlite
async def test_what_was_deleted_by_request_is_neither_too_old_nor_a_gap(node: Node) -> None:
    await node.put("a", "b", "c", "d", "e")
    await node.topics.delete(TOPIC, before=3)
    stream = await node.client().read(start=0)
    await stream.until_seen(3)
    assert (stream.offsets, stream.gaps) == ([2, 3, 4], [])


@on_sqlite
async def test_the_offset_of_another_epoch_is_too_old(node: Node) -> None:
    await node.put("a", "b")
    client = node.client()
    known, _ = await client.begin()
    assert isinstance(known, Subscribed)
    same, _ = await client.begin(epoch=known.epoch, start=1)
    assert isinstance(same, Subscribed)
    await node.log.database.write(renew_epoch)
    answer = await node.client().refused(epoch=known.epoch, start=1)
    assert isinstance(answer, SubscribeCursorError)
    assert (answer.reason, answer.requested, answer.available) == ("too_old", 1, 0)
    assert answer.epoch not in (None, known.epoch)


async def test_a_subscriber_of_another_epoch_may_ask_for_everything_from_the_oldest_event_on(node: Node) -> None:
    await node.put("a", "b")
    answer, stream = await node.client().begin(epoch="another", start=1, on_gap="tell")
    await stream.until_seen(2)
    assert isinstance(answer, Subscribed)
    [gap] = stream.gaps
    assert (gap["from"], gap["to"], gap["reason"], gap["epoch"]) == (0, 1, "recreated", answer.epoch)
    assert stream.seen == [(0, b"a"), (1, b"b")]
    assert answer.offset == 0


@pytest.mark.parametrize("name", [StreamName("t", "n", "none"), StreamName("t", "n", "a:b"), StreamName("t", "n", "q")])
@on_sqlite
async def test_a_stream_that_does_not_exist_is_refused(node: Node, name: StreamName) -> None:
    await node.topics.make("stream:t:n:q", type="queue")
    answer = await node.client().refused(name)
    assert answer == Error(message=f"stream not found: tenant=t namespace=n stream={name.stream}")


@on_sqlite
async def test_a_subscription_for_which_the_client_allows_no_stream_is_refused_and_gives_its_place_back(
    node: Node,
) -> None:
    full = Error(message="max subscriptions per connection exceeded")
    assert await node.client(ReadLink(most=0)).refused() == full
    assert await node.client(places=Places(most=0)).refused() == full


# --- what it sends ----------------------------------------------------------------------------------------------------


@on_sqlite
async def test_a_client_that_does_not_know_offsets_gets_none(node: Node) -> None:
    await node.put("a")
    stream = await node.client(flags=7).read(start="earliest")
    await stream.until_seen(1)
    assert (stream.frames[-1], stream.seen) == ((Flags.SHARED_EVENTS, 1), [(None, b"a")])


@on_sqlite
async def test_a_request_with_a_text_as_id_gets_its_events_as_messages(node: Node) -> None:
    await node.topics.add(TOPIC, [{"data": "a"}, {"data": {"$b64": "AP8="}}])
    answer, start = await (client := node.client()).ask(start="earliest", request_id="r1")
    assert isinstance(answer, Subscribed)
    assert start is not None
    start()
    [stream] = client.link.streams
    await stream.until(lambda stream: len(stream.messages) > 1)
    assert stream.messages[1:] == [
        {
            "type": "event_batch",
            "tenant_id": "t",
            "namespace": "n",
            "stream": "orders",
            "payloads": ["YQ==", "AP8="],
            "base_offset": 0,
        }
    ]


async def test_payloads_come_back_as_bytes_and_other_records_as_their_json(node: Node) -> None:
    told: list[Any] = ["ü", "", {"$b64": "AP8="}, {"a": [1, None]}, 7, 'q"\\\n']
    await node.topics.add(TOPIC, [{"data": each, "node": "w", "meta": {"m": 1}, "tag": "t"} for each in told])
    stream = await node.client().read(start="earliest")
    await stream.until_seen(len(told))
    payloads = ["ü".encode(), b"", b"\0\xff", b'{"a":[1,null]}', b"7", b'q"\\\n']
    assert [payload for _, payload in stream.seen] == payloads
    await node.topics.add(TOPIC, [{"data": each} for each in told])
    await stream.until_seen(2 * len(told))
    assert [payload for _, payload in stream.seen[len(told) :]] == payloads


@on_sqlite
async def test_a_batch_is_split_and_a_hole_ends_a_frame(node: Node) -> None:
    await node.put(*["x"] * 10)
    await node.topics.put(TOPIC, "y", "y", tag="gone")
    await node.put(*["x"] * 10)
    await node.topics.delete(TOPIC, match="gone")
    node.with_options(StreamOptions(batch_events=8))
    stream = await node.client().read(start="earliest")
    await stream.until_seen(20)
    assert [count for _, count in stream.frames[1:]] == [8, 2, 8, 2]
    assert stream.offsets == [*range(10), *range(12, 22)]
    assert not stream.gaps


async def test_a_pause_between_frames_is_kept_and_what_was_written_meanwhile_comes_together(
    migrated_url: str, clock: ManualClock
) -> None:
    async with serving(migrated_url, clock=clock) as server:
        node = Node(server)
        await node.topics.make(TOPIC)
        node.with_options(StreamOptions(batch_delay=2.0))
        stream = await node.client().read(start="earliest")
        clock.advance(2.0)
        await node.put("a")
        await stream.until_seen(1)
        await node.put("b")
        await node.put("c")
        await until(lambda: 2.0 in [round(left, 3) for left in clock.waits], "the pause")
        assert stream.offsets == [0]
        clock.advance(1.0)
        assert stream.offsets == [0]
        clock.advance(1.0)
        await stream.until_seen(3)
        assert stream.frames[-2:] == [(OFFSETS, 1), (OFFSETS, 2)]


# --- how it ends ------------------------------------------------------------------------------------------------------


@on_sqlite
async def test_the_stream_is_finished_when_the_topic_is_deleted(node: Node) -> None:
    client = node.client()
    stream = await client.read()
    await node.put("a")
    await stream.until_seen(1)
    await node.server.delete(TOPIC)
    await stream.until(lambda stream: stream.ended)
    assert not client.places.open
    assert not stream.was_reset


@on_sqlite
async def test_the_stream_is_finished_when_the_node_stops(node: Node) -> None:
    client = node.client()
    stream = await client.read()
    node.v0.stopping.set_result(None)
    await stream.until(lambda stream: stream.ended)
    assert not client.places.open
    assert not stream.was_reset


@on_sqlite
async def test_a_client_unsubscribes_by_dropping_the_stream(node: Node) -> None:
    client = node.client()
    dropped, kept = await client.read(), await client.read()
    dropped.events.was_stopped(0)
    await until(lambda: list(client.places.open) == [2], "the place to be free")
    await node.put("a")
    await kept.until_seen(1)
    assert dropped.seen == []
    client.link.lose()
    await until(lambda: not client.places.open, "the places to be free")
    assert node.subscribing.behind() == 0


@on_sqlite
async def test_a_subscription_that_is_ended_before_it_started_gives_its_place_back(node: Node) -> None:
    client = node.client()
    _, start = await client.ask()
    [subscription] = client.places.open.values()
    assert isinstance(subscription, EventStream)
    subscription.end("token expired")
    assert not client.places.open
    assert client.link.streams[0].ended
    assert start is not None
    start()
    await node.put("a")
    assert client.link.streams[0].seen == []


# --- who is slow, who is many -----------------------------------------------------------------------------------------


@on_sqlite
async def test_a_subscriber_that_does_not_read_costs_its_siblings_nothing_and_loses_nothing(node: Node) -> None:
    client = node.client()
    slow, fast = await client.read(), await client.read()
    slow.stall()
    await node.put_many(1000, 1000)
    await fast.until_seen(1000)
    assert slow.most_unsent < UNSENT + (8 << 10), "the limit, and the heads of frames"
    assert fast.offsets == [*range(1000)]
    slow.resume()
    await slow.until_seen(1000)
    assert slow.seen == fast.seen


@on_sqlite
async def test_a_slow_subscriber_is_reported_although_it_reads_nothing(migrated_url: str, clock: ManualClock) -> None:
    async with serving(migrated_url, clock=clock) as server:
        node = Node(server)
        await node.topics.make(TOPIC)
        measuring = node.v0.supervisor.keep(node.subscribing.measure_for_ever, "measure")
        stream = await node.client().read()
        stream.stall()
        await node.put_many(600, 1000)
        await until(lambda: stream.unsent >= stream.mark, "the stream to be full")
        await node.put_many(400, 1000)
        await until(lambda: MEASURE_SECONDS in [round(left, 3) for left in clock.waits], "the measuring")
        clock.advance(MEASURE_SECONDS)
        await until(lambda: node.subscribing.behind() > 400, "the figure")
        stream.resume()
        await stream.until_seen(1000)
        await until(lambda: node.subscribing.behind() == 0, "the figure")
        measuring.cancel()


@on_sqlite
async def test_a_subscriber_that_may_skip_jumps_to_the_end_and_the_gap_says_so(node: Node) -> None:
    client = node.client()
    stream = await client.read(skip_behind=100)
    other = await client.read()
    stream.stall()
    await node.put_many(2000, 1000)
    await other.until_seen(2000)
    stream.resume()
    await stream.until(lambda stream: stream.gaps)
    [gap] = stream.gaps
    assert gap["from"] == len(stream.seen)
    assert (gap["to"], gap["reason"], gap["missed"]) == (1999, "skipped", 2000 - gap["from"])
    await node.put("next")
    await stream.until(lambda stream: stream.seen[-1] == (2000, b"next"))


@on_sqlite
async def test_a_subscriber_that_may_skip_gets_a_batch_larger_than_that_while_it_reads(node: Node) -> None:
    stream = await node.client().read(skip_behind=10)
    await node.put(*["x"] * 100)
    await stream.until_seen(100)
    assert not stream.gaps


@on_sqlite
async def test_a_thousand_subscribers_at_one_place_share_one_read_and_one_encoded_frame(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded, read = [], []
    monkeypatch.setattr("eventd.api.quic.event_frames._encode", lambda *args: encoded.append(1) or encode(*args))
    monkeypatch.setattr(shared_reads, "read_topic_page", lambda *args: read.append(1) or read_topic_page(*args))
    clients = [node.client() for _ in range(10)]
    streams = [await client.read(start="earliest") for client in clients for _ in range(100)]
    await node.put("a", "b", "c")
    for stream in streams:
        await stream.until_seen(3)
    del encoded[:], read[:]
    await node.put("d", "e")
    for stream in streams:
        await stream.until_seen(5)
    assert (len(encoded), len(read)) == (1, 0), "the end of the log is in memory"


@on_sqlite
async def test_subscribers_that_do_not_read_cause_no_reads(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded, read = [], []
    monkeypatch.setattr("eventd.api.quic.event_frames._encode", lambda *args: encoded.append(1) or encode(*args))
    monkeypatch.setattr(shared_reads, "read_topic_page", lambda *args: read.append(1) or read_topic_page(*args))
    client = node.client()
    streams = [await client.read() for _ in range(40)]
    slow, fast = streams[::4], [stream for number, stream in enumerate(streams) if number % 4]
    for stream in slow:
        stream.stall()
    await node.put_many(400, 1000)
    for stream in slow:
        await stream.until(lambda stream: stream.unsent >= stream.mark)
    for stream in fast:
        await stream.until_seen(400)
    del encoded[:], read[:]
    for number in range(10):
        await node.put("a", "b")
        for stream in fast:
            await stream.until_seen(402 + 2 * number)
    assert (len(encoded), len(read)) == (10, 0)
    for stream in slow:
        stream.resume()
        await stream.until_seen(420)
        assert stream.seen == fast[0].seen


# --- what a restart loses ---------------------------------------------------------------------------------------------


@on_sqlite
async def test_what_a_topic_in_memory_held_before_a_restart_is_a_gap(migrated_url: str) -> None:
    async with serving(migrated_url) as server:
        node = Node(server)
        await node.topics.make(TOPIC, durability="ephemeral")
        await node.put("a", "b")
        stream = await node.client().read(start="earliest")
        await stream.until_seen(2)
    async with serving(migrated_url) as server:
        await server.log.database.write(clear_ephemeral, 0, server.log.clock.now())  # as a node does when it starts
        node = Node(server)
        answer = await node.client().refused(start=1)
        assert isinstance(answer, SubscribeCursorError)
        assert (answer.reason, answer.available) == ("too_old", 2)
        stream = await node.client().read(start=1, on_gap="tell")
        await node.put("c")
        await stream.until_seen(1)
        assert [(gap["from"], gap["to"], gap["reason"]) for gap in stream.gaps] == [(1, 1, "ttl")]
        assert stream.seen == [(2, b"c")]


@on_sqlite
async def test_subscribers_that_come_while_records_are_written_get_each_record_once(node: Node) -> None:
    async def write() -> None:
        for number in range(60):
            await node.put(str(number))

    writing = asyncio.get_running_loop().create_task(write())
    streams = []
    while not writing.done():
        answer, stream = await node.client().begin()
        assert isinstance(answer, Subscribed)
        streams.append((answer.offset or 0, stream))
    await writing
    for offset, stream in streams:
        await stream.until_seen(60 - offset)
        assert stream.seen == [(number, str(number).encode()) for number in range(offset, 60)]
