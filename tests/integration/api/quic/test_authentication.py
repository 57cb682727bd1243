"""Each stream of a client authenticates with its first frame, and what it may do ends with its token."""

from __future__ import annotations

import asyncio

import pytest

from eventd.testing import ManualClock, give_turns, until
from tests.integration.api.quic.conftest import StartStreams
from tests.support import felix_wire as wire
from tests.support.stream_channels import StreamsInMemory, auth

STREAM = "t1/n/s"


async def test_a_client_that_names_its_flags_gets_those_of_the_server(streams: StreamsInMemory) -> None:
    stream = streams.fresh()
    assert await stream.ask(auth(flags=7)) == {"type": "auth_ok", "server_flags": 63}


async def test_a_client_without_flags_gets_ok(streams: StreamsInMemory) -> None:
    stream = streams.fresh()
    assert await stream.ask(auth(flags=None)) == {"type": "ok"}


async def test_extensions_that_are_known_are_in_force(streams: StreamsInMemory) -> None:
    stream = streams.fresh()
    answer = await stream.ask(auth(ext=["receipt", "gap", "teleport", "session"], session="s1"))
    assert answer == {"type": "auth_ok", "server_flags": 63, "ext": ["receipt", "gap", "session"]}


async def test_a_session_needs_a_name(streams: StreamsInMemory) -> None:
    stream = streams.fresh()
    assert (await stream.ask(auth(ext=["session"])))["ext"] == []


async def test_a_client_that_names_no_extension_is_told_of_none(streams: StreamsInMemory) -> None:
    stream = streams.fresh()
    assert "ext" not in await stream.ask(auth())


@pytest.mark.parametrize("name", ["", "x" * 65])
async def test_a_session_with_a_wrong_name_is_malformed(streams: StreamsInMemory, name: str) -> None:
    stream = streams.fresh()
    stream.send(auth(ext=["session"], session=name))
    assert await stream.error() == "malformed message"


@pytest.mark.parametrize(
    "request_", [wire.publish(STREAM, b"x"), wire.publish_acked(1, STREAM, b"x"), wire.publish_json(STREAM, b"x")]
)
async def test_a_request_before_authentication_ends_the_stream(streams: StreamsInMemory, request_: bytes) -> None:
    stream = streams.fresh()
    stream.send(request_)
    assert await stream.error() == "auth required"


async def test_a_token_that_is_refused_ends_the_stream_without_a_reason(streams: StreamsInMemory) -> None:
    stream = streams.fresh()
    stream.send(auth("nobody"))
    assert await stream.error() == "auth failed"
    assert streams.counted("stream_auth_total", result="failed") == 1


async def test_a_second_authentication_ends_the_stream(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    stream.send(auth())
    assert await stream.error() == "auth already established"


async def test_frames_after_the_first_wait_for_it(streams: StreamsInMemory) -> None:
    streams.tokens.gate = asyncio.Event()
    stream = streams.fresh()
    stream.send(auth(), wire.publish_acked(1, STREAM, b"x"))
    await give_turns()
    assert not stream.channel.sent
    streams.tokens.gate.set()
    assert (await stream.message())["type"] == "auth_ok"
    assert (await stream.ack()).status == 0


async def test_a_unidirectional_stream_that_is_refused_ends_silently(streams: StreamsInMemory) -> None:
    stream = streams.fresh(is_unidirectional=True)
    stream.send(auth("nobody"))
    assert await stream.ended()
    fresh = streams.fresh(is_unidirectional=True)
    fresh.send(wire.publish(STREAM, b"x"))
    assert await fresh.ended()


async def test_a_frame_before_authentication_is_at_most_64_kib(streams: StreamsInMemory) -> None:
    stream = streams.fresh()
    stream.send(wire.frame(0, b"", length=(64 << 10) + 1))
    assert await stream.error() == "frame too large"


async def test_a_stream_has_ten_seconds_to_authenticate(start_streams: StartStreams) -> None:
    clock = ManualClock()
    streams = await start_streams(clock=clock)
    stream = streams.fresh()
    stream.send(auth()[:5])
    clock.advance(9.9)
    streams.listener.access_changed()
    assert not stream.channel.is_stopped
    clock.advance(0.1)
    streams.listener.access_changed()
    assert await stream.error() == "auth required"


async def test_a_slow_decision_ends_with_the_stream(start_streams: StartStreams) -> None:
    clock = ManualClock()
    streams = await start_streams(clock=clock)
    streams.tokens.gate = asyncio.Event()
    stream = streams.fresh()
    stream.send(auth())
    await give_turns()
    clock.advance(10)
    streams.listener.access_changed()
    assert await stream.error() == "auth required"


@pytest.mark.parametrize("reason", ["token expired", "token revoked"])
async def test_a_stream_ends_with_its_token(streams: StreamsInMemory, reason: str) -> None:
    stream = await streams.stream()
    streams.tokens.grants[0].reason = reason
    streams.listener.access_changed()
    assert await stream.error() == reason


async def test_no_request_is_served_after_the_end_of_the_token(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    streams.tokens.grants[0].reason = "token expired"
    stream.send(wire.publish_acked(1, STREAM, b"x"))
    assert await stream.error() == "token expired"
    assert await streams.records("stream:t1:n:s") == []


async def test_a_unidirectional_stream_ends_silently_with_its_token(streams: StreamsInMemory) -> None:
    stream = await streams.stream(is_unidirectional=True)
    await until(lambda: streams.tokens.grants)
    streams.tokens.grants[0].reason = "token expired"
    streams.listener.access_changed()
    assert await stream.ended()


async def test_streams_of_one_key_are_limited_together(start_streams: StartStreams) -> None:
    streams = await start_streams(limits={"max_sse_connections_per_key": 2})
    first = await streams.stream("ann")
    await streams.stream("ann")
    third = streams.fresh()
    third.send(auth("ann"))
    assert await third.error() == "server overloaded"
    await streams.stream("bob")
    first.send(end=True)
    assert await first.ended()
    await streams.stream("ann")


async def test_connections_of_one_key_are_limited_together(start_streams: StartStreams) -> None:
    streams = await start_streams(limits={"max_sse_connections_per_key": 1})
    first = await streams.stream("ann")
    first.send(end=True)
    assert await first.ended()
    streams.session.closed(0, "")
    streams.connect()
    second = await streams.stream("ann")
    second.send(end=True)
    assert await second.ended()
    streams.connect()
    third = streams.fresh()
    third.send(auth("ann"))
    assert await third.error() == "server overloaded"
