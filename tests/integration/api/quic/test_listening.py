"""The listener over real QUIC, with a client of another library."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from eventd.api.quic.budgets import CONNECTION_FULL
from eventd.quic.certificate import QuicCertificate
from eventd.runtime.clock import SystemClock
from eventd.testing import until
from tests.integration.api.quic.conftest import StartStreams
from tests.support import felix_wire as wire
from tests.support.aioquic_client import connect, connected
from tests.support.certificates import Authority
from tests.support.stream_channels import StreamsInMemory
from tests.support.stream_nodes import Session

STREAM = "t1/n/s"
TOPIC = "stream:t1:n:s"
GOODBYE = (0, "broker shutting down")


def certificate(authority: Authority, name: str = "localhost") -> QuicCertificate:
    """Return a certificate of the authority."""
    files = authority.issue(name)
    return QuicCertificate.of_files(files.cert, files.key, SystemClock().now())


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Signs the certificates of a listener."""
    return Authority(tmp_path)


@pytest.fixture
async def listening(start_streams: StartStreams, authority: Authority) -> AsyncIterator[StreamsInMemory]:
    """A listener on a port, with the stream `t1/n/s`."""
    streams = await start_streams(drain=2.0)
    await streams.server.put(TOPIC, durability="memory")
    await streams.listener.start("127.0.0.1", 0, certificate(authority))
    yield streams
    await streams.listener.stop()


def port_of(streams: StreamsInMemory) -> int:
    """Return the port of a listener."""
    assert streams.listener.address is not None
    return streams.listener.address[1]


@asynccontextmanager
async def session(streams: StreamsInMemory, token: str = "tester") -> AsyncIterator[Session]:
    """Connect."""
    async with connected(port_of(streams)) as client:
        yield Session(client, token)


async def test_publishes_on_streams_of_both_kinds_are_stored(listening: StreamsInMemory) -> None:
    async with session(listening) as client:
        await client.publish(STREAM, b"a", b"b")
        client.uni(wire.publish(STREAM, b"c"), end=True)

        async def has_three() -> bool:
            return len(await listening.records(TOPIC)) == 3

        await until(has_three)


async def test_a_large_frame_is_stored(listening: StreamsInMemory) -> None:
    async with session(listening) as client:
        await client.publish(STREAM, *[b"x" * (1 << 20)] * 8)


async def test_a_client_that_publishes_faster_than_the_log_is_slowed_down(
    start_streams: StartStreams, authority: Authority
) -> None:
    streams = await start_streams(conn_inflight_bytes=256 << 10, ingress_wait=30.0)
    await streams.server.put(TOPIC, durability="fsync")
    await streams.listener.start("127.0.0.1", 0, certificate(authority))
    try:
        async with session(streams) as client:
            stream = await client.stream()
            for _ in range(60):
                stream.write(wire.publish(STREAM, *[b"x" * 1000] * 64))
            stream.write(wire.publish_acked(1, STREAM, b"last"))
            while (ack := wire.read_ack(await stream.frame(30.0))).status:
                assert ack.message == CONNECTION_FULL
                stream.write(wire.publish_acked(1, STREAM, b"last"))
            assert (await streams.server.get(TOPIC)).body["count"] == 60 * 64 + 1
    finally:
        await streams.listener.stop()


async def test_many_streams_of_one_connection_are_served_at_once(listening: StreamsInMemory) -> None:
    async with session(listening) as client:
        await asyncio.gather(*(client.publish(STREAM, b"x") for _ in range(50)))
        assert len(await listening.records(TOPIC)) == 50


async def test_an_error_arrives_before_the_end_of_the_stream(listening: StreamsInMemory) -> None:
    async with session(listening) as client:
        stream = await client.stream()
        stream.write(wire.message("dance"))
        assert await stream.message() == {"type": "error", "message": "unknown message type"}
        assert await stream.rest() == []
        await stream.stopped()
        await client.client.alive()


async def test_a_connection_counts_until_it_has_ended(listening: StreamsInMemory) -> None:
    before = listening.counted("stream_connections")
    async with session(listening) as client:
        await client.stream()
        assert listening.counted("stream_connections") == before + 1
        assert listening.counted("stream_open_streams", kind="request") == 1
    await until(lambda: listening.counted("stream_connections") == before)
    assert listening.counted("stream_open_streams", kind="request") == 0


async def test_a_listener_that_stops_ends_idle_streams_and_says_goodbye(listening: StreamsInMemory) -> None:
    async with session(listening) as client:
        stream = await client.stream()
        await listening.listener.stop()
        assert await stream.rest() == []
        assert await client.client.closed() == GOODBYE


async def test_a_listener_that_stops_answers_what_it_has_taken(listening: StreamsInMemory) -> None:
    async with session(listening) as client:
        stream = await client.stream()
        stream.write(*(wire.publish_acked(id, STREAM, b"x" * 1000) for id in range(200)))
        first = await stream.frame()
        await listening.listener.stop()
        frames = [first, *await stream.rest()]
        assert [wire.read_ack(each)[:2] for each in frames] == [(0, id) for id in range(len(frames))]
        assert len(await listening.records(TOPIC)) == len(frames)


async def test_a_listener_that_stops_does_not_wait_for_ever(listening: StreamsInMemory) -> None:
    async with session(listening) as client:
        stream = await client.stream()
        stream.write(wire.publish_acked(1, STREAM, b"x")[:-1])
        await listening.listener.stop()
        assert await client.client.closed() == GOODBYE


async def test_new_connections_get_the_certificate_that_was_read_last(
    listening: StreamsInMemory, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    listening.listener.reload(certificate(other))
    async with connected(port_of(listening), trust=other.file) as client:
        await client.alive()


async def test_a_listener_accepts_no_more_connections_than_it_may(
    start_streams: StartStreams, authority: Authority
) -> None:
    streams = await start_streams(max_connections=2, drain=0.1)
    await streams.listener.start("127.0.0.1", 0, certificate(authority))
    try:
        async with connected(port_of(streams)), connected(port_of(streams)):
            with pytest.raises((ConnectionError, TimeoutError)):
                await connect(port_of(streams), seconds=1.0)
    finally:
        await streams.listener.stop()


async def test_a_port_that_is_taken_is_an_error(
    listening: StreamsInMemory, start_streams: StartStreams, authority: Authority
) -> None:
    streams = await start_streams()
    with pytest.raises(OSError, match="in use"):
        await streams.listener.start("127.0.0.1", port_of(listening), certificate(authority))


# --- subscriptions and caches ---------------------------------------------------------------------------------------


async def test_a_subscriber_gets_what_is_published(listening: StreamsInMemory) -> None:
    async with session(listening) as client:
        await client.publish(STREAM, b"before")
        subscription = await client.subscribe(STREAM, start="earliest")
        await client.publish(STREAM, b"after", b"\x00")
        assert await subscription.until(3) == [b"before", b"after", b"\x00"]


async def test_subscriptions_end_with_their_token(listening: StreamsInMemory) -> None:
    async with session(listening) as client:
        subscription = await client.subscribe(STREAM)
        for grant in listening.tokens.grants:
            grant.reason = "token revoked"
        assert await subscription.stream.rest() == []


async def test_subscriptions_end_when_the_listener_stops(listening: StreamsInMemory) -> None:
    async with session(listening) as client:
        subscription = await client.subscribe(STREAM)
        await listening.listener.stop()
        assert await subscription.stream.rest() == []
        assert await client.client.closed() == GOODBYE


async def test_a_cache_returns_what_was_put(listening: StreamsInMemory) -> None:
    async with session(listening) as client:
        stream = await client.stream()
        cache = {"tenant_id": "t1", "namespace": "default", "cache": "primary", "key": "k"}
        put = wire.message("cache_put", **cache, value=wire.b64(b"v"), request_id=1, ttl_ms=None)
        assert await stream.ask(put) == {"type": "cache_ok", "request_id": 1}
        got = await stream.ask(wire.message("cache_get", **cache, request_id=2))
        assert got == {"type": "cache_value", **cache, "value": wire.b64(b"v"), "request_id": 2}
