"""What clients send takes a bounded amount of memory, whether they finish frames, read answers, or neither."""

from __future__ import annotations

import pytest

from eventd.testing import ManualClock, give_turns, until
from tests.integration.api.quic.conftest import StartStreams
from tests.support import felix_wire as wire
from tests.support.stream_channels import ClientStreamOfTest, StreamsInMemory, auth

STREAM = "t1/n/s"
TOPIC = "stream:t1:n:s"
KIB = 1 << 10
OF_CONNECTION = "publish ingress per-connection byte budget exhausted"
OF_LISTENER = "publish ingress byte budget exhausted"
SMALL = {"max_frame_bytes": 64 * KIB, "conn_inflight_bytes": 64 * KIB, "inflight_bytes": 160 * KIB}


async def start_small(start_streams: StartStreams, **options: object) -> StreamsInMemory:
    streams = await start_streams(**{**SMALL, **options})
    await streams.server.put(TOPIC, durability="memory")
    return streams


def half(stream: ClientStreamOfTest, size: int) -> None:
    """Send the beginning of a frame of 64 KiB: so many bytes."""
    stream.send(wire.frame(0, b" " * (size - wire.HEADER.size), length=64 * KIB))


async def test_what_is_done_takes_no_memory(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    stream.send(wire.publish_acked(1, STREAM, b"x" * 1000), wire.publish(STREAM, b"y"), wire.message("dance"))
    assert (await stream.ack()).status == 0
    await stream.error()
    await until(lambda: streams.session.budget.used == 0)


async def test_a_connection_that_ends_leaves_no_memory_behind(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    stream.send(wire.publish_acked(1, STREAM, b"x"), wire.publish_acked(1, STREAM, b"x")[:-1])
    assert streams.session.budget.used > 0
    stream.stream.lost()
    streams.session.closed(0, "")
    await until(lambda: streams.session.budget.used == 0)


async def test_an_announced_frame_takes_memory_only_as_it_arrives(streams: StreamsInMemory) -> None:
    opened = [await streams.stream() for _ in range(50)]
    for stream in opened:
        stream.send(wire.frame(1, b"", length=16 << 20))
    assert streams.session.budget.used == len(opened) * wire.HEADER.size


async def test_an_acknowledged_publish_is_refused_while_half_frames_take_the_memory(
    start_streams: StartStreams,
) -> None:
    streams = await start_small(start_streams)
    stream, other = await streams.stream(), await streams.stream()
    half(other, 60 * KIB)
    stream.send(wire.publish_acked(1, STREAM, b"fits"))
    assert (await stream.ack()).status == 0
    third = await streams.stream()
    half(third, 6 * KIB)
    stream.send(wire.publish_acked(2, STREAM, b"x"))
    assert await stream.ack() == (1, 2, OF_CONNECTION)
    answer = await stream.ask(wire.publish_json(STREAM, b"x", request_id=3))
    assert answer == {"type": "publish_error", "request_id": 3, "message": OF_CONNECTION}
    answer = await stream.ask(wire.publish_json(STREAM, b"x"))
    assert answer == {"type": "error", "message": OF_CONNECTION}
    third.stream.was_reset(0)
    stream.send(wire.publish_acked(4, STREAM, b"x"))
    assert (await stream.ack()).status == 0
    assert len(await streams.records(TOPIC)) == 2


async def test_the_listener_has_a_limit_for_all_connections(start_streams: StartStreams) -> None:
    streams = await start_small(start_streams)
    for _ in range(3):
        half(await streams.stream(), 60 * KIB)
        streams.connect()
    stream = await streams.stream()
    stream.send(wire.publish_acked(1, STREAM, b"x"))
    assert await stream.ack() == (1, 1, OF_LISTENER)


async def test_an_unacknowledged_publish_waits_for_memory(start_streams: StartStreams) -> None:
    streams = await start_small(start_streams)
    stream, other, third = [await streams.stream() for _ in range(3)]
    half(other, 60 * KIB)
    half(third, 6 * KIB)
    stream.send(wire.publish(STREAM, b"waits"), wire.publish_acked(1, STREAM, b"behind"))
    await give_turns()
    assert not stream.channel.sent
    assert streams.link.is_paused, "the client gets no credit meanwhile"
    other.stream.was_reset(0)
    assert (await stream.ack())[:2] == (0, 1)
    assert not streams.link.is_paused
    assert [record["data"] for record in await streams.records(TOPIC)] == ["waits", "behind"]


async def test_an_unacknowledged_publish_that_waits_too_long_is_dropped_and_counted(
    start_streams: StartStreams,
) -> None:
    clock = ManualClock()
    streams = await start_small(start_streams, clock=clock)
    stream, other, third = [await streams.stream() for _ in range(3)]
    half(other, 60 * KIB)
    half(third, 6 * KIB)
    stream.send(wire.publish(STREAM, b"a", b"b"), wire.publish_json(STREAM, b"c", ack="none"))
    clock.advance(1.9)
    streams.listener.access_changed()
    assert streams.counted("stream_dropped_total", reason="overloaded") == 0
    clock.advance(0.2)
    streams.listener.access_changed()
    assert streams.counted("stream_dropped_total", reason="overloaded") == 3, "the next one does not wait again"
    await give_turns()
    assert not streams.link.is_paused
    assert await streams.records(TOPIC) == []
    other.stream.was_reset(0)
    stream.send(wire.publish_acked(1, STREAM, b"x"))
    assert (await stream.ack()).status == 0


async def test_a_pause_ends_although_the_client_reads_no_answers(start_streams: StartStreams) -> None:
    clock = ManualClock()
    streams = await start_small(start_streams, clock=clock)
    stream, other, third = [await streams.stream() for _ in range(3)]
    stream.channel.reads, stream.channel.unsent = False, stream.channel.mark
    stream.send(wire.publish_acked(1, STREAM, b"x"))
    half(other, 60 * KIB)
    half(third, 6 * KIB)
    stream.send(wire.publish(STREAM, b"waits"))
    assert (await stream.ack()).status == 0
    other.stream.was_reset(0)
    await give_turns()
    streams.listener.access_changed()
    assert streams.link.is_paused, "the stream takes no frames until its answers are read"
    clock.advance(5)
    streams.listener.access_changed()
    assert not streams.link.is_paused, "the end of the connection must be noticed"
    stream.channel.take_all()
    await give_turns()
    assert not streams.link.is_paused


async def test_beyond_the_limit_the_largest_stream_is_ended_and_then_the_connection(
    start_streams: StartStreams,
) -> None:
    streams = await start_small(start_streams)
    opened = [await streams.stream() for _ in range(4)]
    for number, stream in enumerate(opened[:2]):
        half(stream, (50 + number) * KIB)
    half(opened[2], 30 * KIB)
    assert await opened[1].error() == OF_CONNECTION
    assert not opened[0].channel.is_stopped
    half(opened[3], 60 * KIB)
    assert streams.link.closed_with == (0, OF_CONNECTION)


async def test_beyond_the_limit_of_the_listener_the_largest_connection_pays(start_streams: StartStreams) -> None:
    streams = await start_small(start_streams)
    small = await streams.stream()
    half(small, 40 * KIB)
    large = []
    for _ in range(3):
        streams.connect()
        large.append(await streams.stream())
        half(large[-1], 62 * KIB)
    assert [stream.channel.is_stopped for stream in (small, *large)].count(True) == 1
    assert not small.channel.is_stopped


async def test_records_count_more_than_their_bytes_while_they_are_written(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    stream.send(wire.publish_acked(1, STREAM, *[b""] * 1000))
    assert streams.session.budget.used > 1000 * 200
    assert (await stream.ack()).status == 0
    assert streams.session.budget.used == 0


async def test_a_client_that_does_not_read_answers_is_not_served_further(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    stream.channel.reads = False
    unknown = wire.publish_acked(1, "t1/n/" + "x" * 400, b"x")
    for _ in range(50):
        stream.send(unknown * 100)
        await give_turns()
    unread = stream.channel.unsent
    assert stream.channel.mark <= unread < stream.channel.mark + (128 << 10)
    answer = wire.HEADER.size + wire.HEADER.unpack_from(stream.channel.sent)[3]
    assert len(stream.channel.sent) < 5000 * answer
    stream.channel.take_all()
    await until(lambda: len(stream.channel.sent) == 5000 * answer)
    await until(lambda: streams.session.budget.used == 0)


async def test_answers_behind_one_that_is_not_known_yet_are_bounded(streams: StreamsInMemory) -> None:
    where = {"tenant_id": "t1", "namespace": "default", "cache": "primary"}
    value = wire.b64(bytes(512 * KIB))
    stream = await streams.stream()
    assert (await stream.ask(wire.message("cache_put", **where, key="k", value=value, request_id=0, ttl_ms=None)))[
        "type"
    ] == "cache_ok"
    gets = [wire.message("cache_get", **where, key="k", request_id=number) for number in range(2, 50)]
    stream.send(wire.publish_acked(1, STREAM, b"x"), *gets)
    assert stream.stream.state.answers.ready_bytes < 2 << 20
    assert (await stream.ack()).request_id == 1
    assert [(await stream.message())["request_id"] for _ in gets] == [*range(2, 50)]


async def test_names_that_cannot_exist_are_not_remembered(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    for number in range(10):
        ack = wire.publish_acked(number, "t1/n/" + "s" * (60_000 + number), b"x")
        stream.send(ack)
        assert (await stream.ack()).message.startswith("stream not found")
    assert not stream.stream._publishes._targets


async def test_no_more_than_1024_requests_of_a_stream_wait_for_an_answer(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    sent = b"".join(wire.publish_acked(id, STREAM, b"x") for id in range(3000))
    stream.send(sent)
    assert len(stream.stream.state.answers) <= 1024
    assert [(await stream.ack()).request_id for _ in range(3000)] == [*range(3000)]


async def test_many_frames_of_one_stream_let_others_have_their_turn(streams: StreamsInMemory) -> None:
    busy, other = await streams.stream(), await streams.stream()
    busy.send(wire.publish("t1/n/bad:name", b"x") * 5000)
    assert streams.counted("stream_published_total", result="dropped") < 5000
    other.send(wire.publish_acked(1, STREAM, b"x"))
    assert (await other.ack()).status == 0
    await until(lambda: streams.counted("stream_published_total", result="dropped") == 5000)


async def test_a_client_that_does_not_read_at_all_may_publish_without_answers(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    stream.stream.was_stopped(0)
    stream.send(wire.publish(STREAM, b"x"))

    async def is_written() -> bool:
        return len(await streams.records(TOPIC)) == 1

    await until(is_written)
    assert not stream.channel.is_stopped
    stream.send(wire.publish_acked(1, STREAM, b"y"))
    await stream.channel.until(lambda: stream.channel.is_stopped)


@pytest.mark.parametrize("is_unidirectional", [False, True])
async def test_open_streams_are_counted(streams: StreamsInMemory, is_unidirectional: bool) -> None:
    kind = "publish" if is_unidirectional else "request"
    stream = streams.fresh(is_unidirectional=is_unidirectional)
    stream.send(auth())
    assert streams.counted("stream_open_streams", kind=kind) == 1
    stream.send(end=True)
    assert await stream.channel.until(lambda: stream.channel.is_stopped) is None
    assert streams.counted("stream_open_streams", kind=kind) == 0
