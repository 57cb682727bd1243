"""A listener that stops answers what it has taken, and ends its streams between two requests."""

from __future__ import annotations

from typing import Any, cast

from eventd.testing import ManualClock, give_turns
from tests.integration.api.quic.conftest import StartStreams
from tests.support import felix_wire as wire
from tests.support.stream_channels import MemoryLink, StreamsInMemory

STREAM = "t1/n/s"


async def test_a_stream_without_requests_ends(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    streams.session.drain("stopping")
    assert await stream.ended()
    assert streams.session.has_ended


async def test_a_request_under_way_is_answered_first(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    stream.send(wire.publish_acked(1, STREAM, b"x"))
    streams.session.drain("stopping")
    assert not stream.channel.has_ended
    assert not streams.session.has_ended
    assert (await stream.ack()).status == 0
    streams.session.drain("stopping")
    assert await stream.ended()


async def test_a_frame_that_has_begun_is_waited_for(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    whole = wire.publish_acked(1, STREAM, b"x")
    stream.send(whole[:20])
    streams.session.drain("stopping")
    stream.send(whole[20:])
    assert (await stream.ack()).status == 0


async def test_unsent_answers_are_waited_for(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    stream.channel.reads = False
    stream.send(wire.publish_acked(1, STREAM, b"x"))
    await stream.ack()
    streams.session.drain("stopping")
    assert not stream.channel.has_ended
    stream.channel.take_all()
    streams.session.drain("stopping")
    assert await stream.ended()


async def test_a_connection_on_which_nothing_is_authenticated_is_closed(start_streams: StartStreams) -> None:
    clock = ManualClock()
    streams = await start_streams(clock=clock)
    used, unused = streams.link, MemoryLink()
    await streams.stream()
    streams.listener.accept(cast(Any, unused))
    clock.advance(29)
    streams.listener.access_changed()
    assert not unused.is_closed
    clock.advance(1)
    streams.listener.access_changed()
    assert (used.is_closed, unused.closed_with) == (False, (0, "no stream was authenticated"))


async def test_a_connection_in_use_is_kept_alive(start_streams: StartStreams) -> None:
    clock = ManualClock()
    streams = await start_streams(clock=clock)
    clock.advance(10)
    streams.listener.access_changed()
    assert streams.link.pings == 0
    stream = await streams.stream()
    for _ in range(2):
        clock.advance(10)
        streams.listener.access_changed()
    assert streams.link.pings == 2
    stream.send(end=True)
    await stream.ended()
    clock.advance(10)
    streams.listener.access_changed()
    assert streams.link.pings == 2
    await give_turns()
