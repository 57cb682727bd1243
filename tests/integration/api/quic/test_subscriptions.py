"""Subscribes on the wire: what is answered, in which order, and what ends the streams."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.errors import Unavailable
from eventd.testing import give_turns, until
from tests.integration.api.quic.conftest import StartStreams
from tests.support import felix_wire as wire
from tests.support.felix_wire import RawFrame, WireEvents
from tests.support.stream_channels import ClientStreamOfTest, MemoryChannel, StreamsInMemory

STREAM = "t1/n/s"
TOPIC = "stream:t1:n:s"


class ReadChannel:
    """A stream that the node has opened, read frame by frame."""

    def __init__(self, channel: MemoryChannel) -> None:
        assert channel.is_unidirectional
        self.channel = channel

    async def frame(self) -> RawFrame:
        """Return the next frame."""
        sent = self.channel.sent
        await self.channel.until(lambda: len(sent) >= wire.HEADER.size or self.channel.has_ended)
        assert sent, "the stream has ended"
        _, _, flags, length = wire.HEADER.unpack_from(sent)
        payload = bytes(sent[wire.HEADER.size : wire.HEADER.size + length])
        assert len(payload) == length, "frames are written whole"
        del sent[: wire.HEADER.size + length]
        return RawFrame(flags, payload)

    async def message(self) -> dict[str, Any]:
        """Return the next frame, a message."""
        found = await self.frame()
        assert not found.flags, found
        return wire.read_json(found.payload)

    async def events(self) -> WireEvents:
        """Return the next frame, a batch of events."""
        return wire.read_events(await self.frame())

    async def ended(self) -> bool:
        """Wait for the end, after a whole frame."""
        await self.channel.until(lambda: self.channel.has_ended)
        return not self.channel.sent


def subscribe(where: str = STREAM, **members: Any) -> bytes:
    return wire.message("subscribe", **wire.scope(where), **members)


async def begin(
    streams: StreamsInMemory, stream: ClientStreamOfTest | None = None, **members: Any
) -> tuple[dict[str, Any], ReadChannel]:
    """Subscribe; return the answer, and the stream of the events after its first message."""
    stream = stream or await streams.stream()
    answer = await stream.ask(subscribe(**members))
    assert await stream.ended(), "a subscribe ends its stream"
    events = ReadChannel(streams.link.opened[-1])
    hello = await events.message()
    assert hello["type"] == "event_stream_hello"
    if answer["type"] == "subscribed":
        assert hello == {"type": "event_stream_hello", "subscription_id": answer["subscription_id"]}
    return answer, events


async def test_a_subscriber_gets_what_is_published_on_the_same_connection(streams: StreamsInMemory) -> None:
    await streams.server.write(TOPIC, "old")
    answer, events = await begin(streams)
    assert answer.pop("epoch")
    assert answer == {"type": "subscribed", "subscription_id": 1, "offset": 1}
    publisher = await streams.stream()
    publisher.send(wire.publish_acked(1, STREAM, b"a", b"\xff"))
    assert await publisher.ack() == (0, 1, "")
    assert await events.events() == (1, [b"a", b"\xff"])
    publisher.send(wire.publish(STREAM, b""))
    assert await events.events() == (3, [b""])
    assert streams.counted("stream_subscriptions") == 1
    assert streams.counted("stream_open_streams", kind="events") == 1
    assert streams.counted("stream_delivered_total") == 3
    assert streams.counted("stream_delivered_bytes_total") == 2


async def test_ids_count_over_all_connections_and_a_given_one_is_used_once(streams: StreamsInMemory) -> None:
    assert [(await begin(streams))[0]["subscription_id"] for _ in range(2)] == [1, 2]
    streams.connect()
    assert (await begin(streams))[0]["subscription_id"] == 3
    assert (await begin(streams, subscription_id=4))[0]["subscription_id"] == 4
    assert (await begin(streams))[0]["subscription_id"] == 5, "4 is taken on this connection"
    for given in (4, 2**53):
        stream = await streams.stream()
        stream.send(subscribe(subscription_id=given))
        assert "subscription_id" in await stream.error()
    assert len(streams.link.opened) == 3


async def test_the_refusals_of_a_subscribe_end_its_stream_and_open_none(streams: StreamsInMemory) -> None:
    refused = {
        "stream not found: tenant=t1 namespace=n stream=x": subscribe("t1/n/x"),
        "tenant mismatch": subscribe("t2/n/s"),
    }
    for text, request in refused.items():
        stream = await streams.stream()
        stream.send(request)
        assert await stream.error() == text
    stream = await streams.stream("ann stream.publish:*")
    stream.send(subscribe())
    assert await stream.error() == "forbidden"
    assert not streams.link.opened


async def test_a_client_that_does_not_read_the_answer_gets_events(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    stream.stream.state.answers.reserve()  # an earlier request whose answer is not known yet
    stream.send(subscribe())
    await until(lambda: stream.stream.state.answers.ready_bytes)
    stream.stream.was_stopped(0)
    events = ReadChannel(streams.link.opened[-1])
    assert (await events.message())["type"] == "event_stream_hello"
    await streams.server.write(TOPIC, "a")
    assert (await events.events()).payloads == [b"a"]


async def test_a_subscribe_while_the_database_cannot_be_read_is_refused_and_no_failure_of_the_node(
    streams: StreamsInMemory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise Unavailable("the database cannot be read")

    monkeypatch.setattr(streams.server.v0.database, "read", fail)
    stream = await streams.stream()
    stream.send(subscribe())
    assert await stream.error() == "server overloaded"
    await give_turns()
    assert "task failed" not in caplog.messages


async def test_a_cursor_that_is_not_there_is_answered_with_the_nearest(streams: StreamsInMemory) -> None:
    await streams.server.write(TOPIC, "a")
    stream = await streams.stream()
    answer = await stream.ask(subscribe(start={"offset": 2}))
    assert answer.pop("epoch")
    assert answer == {"type": "subscribe_cursor_error", "reason": "in_future", "requested": 2, "available": 1}
    assert await stream.ended()
    stream = await streams.stream()
    stream.send(subscribe(start={"offset": 2}, request_id="r"))
    found = await stream.message()
    assert (found["type"], found["request_id"]) == ("error", "r")
    assert await stream.ended()


async def test_more_subscriptions_than_allowed_are_refused(start_streams: StartStreams) -> None:
    streams = await start_streams(max_subscriptions=2)
    await streams.server.put(TOPIC)
    for left in (1, 100):
        streams.connect()
        streams.link.left = left
        for _ in range(min(left, 2)):
            await begin(streams)
        stream = await streams.stream()
        stream.send(subscribe())
        assert await stream.error() == "max subscriptions per connection exceeded"


async def test_a_place_is_free_again_when_a_subscription_has_ended(start_streams: StartStreams) -> None:
    streams = await start_streams(max_subscriptions=1)
    await streams.server.put(TOPIC)
    for _ in range(3):
        _, events = await begin(streams)
        events.channel.events.was_stopped(0)
    assert streams.counted("stream_subscriptions") == 0
    assert streams.counted("stream_open_streams", kind="events") == 0


async def test_a_text_as_id_gets_ok_and_events_as_messages(streams: StreamsInMemory) -> None:
    await streams.server.write(TOPIC, "old")
    answer, events = await begin(streams, request_id="r-1", start="earliest")
    assert answer.pop("epoch")
    assert answer == {"type": "ok", "request_id": "r-1", "offset": 0}
    assert await events.message() == {
        "type": "event_batch",
        "tenant_id": "t1",
        "namespace": "n",
        "stream": "s",
        "payloads": ["b2xk"],
        "base_offset": 0,
    }


async def test_who_does_not_know_offsets_or_gaps_gets_neither(start_streams: StartStreams) -> None:
    streams = await start_streams()
    await streams.server.put(TOPIC, cap_records=1)
    for n in range(3):
        await streams.server.write(TOPIC, str(n))
    plain = await streams.stream(flags=None)
    _, events = await begin(streams, plain, start={"offset": 0}, on_gap="tell")
    assert await events.events() == (None, [b"2"])
    knowing = await streams.stream(ext=["gap"])
    answer, events = await begin(streams, knowing, start={"offset": 0}, on_gap="tell")
    id = answer["subscription_id"]
    gap = {"type": "gap", "subscription_id": id, "from": 0, "to": 1, "reason": "cap", "missed": 2}
    assert await events.message() == gap
    assert await events.events() == (2, [b"2"])
    assert streams.counted("stream_gaps_total", reason="cap") == 2


async def test_a_subscription_ends_with_its_permission(streams: StreamsInMemory) -> None:
    _, events = await begin(streams)
    streams.tokens.grants[-1].reason = "token revoked"
    streams.listener.access_changed()
    assert await events.ended()


async def test_a_deleted_stream_ends_its_subscriptions(streams: StreamsInMemory) -> None:
    _, events = await begin(streams)
    await streams.server.delete(TOPIC)
    assert await events.ended()
    await until(lambda: streams.counted("stream_subscriptions") == 0, "the subscription to end")


async def test_one_event_over_the_limit_of_a_frame_is_alone(start_streams: StartStreams) -> None:
    streams = await start_streams(batch_events=3, batch_bytes=10)
    await streams.server.put(TOPIC)
    _, events = await begin(streams)
    publisher = await streams.stream()
    publisher.send(wire.publish_acked(1, STREAM, b"1", b"2", b"3", b"4", b"x" * 11, b"y" * 6, b"z" * 6))
    sizes = [[len(each) for each in (await events.events()).payloads] for _ in range(5)]
    assert sizes == [[1, 1, 1], [1], [11], [6], [6]]
