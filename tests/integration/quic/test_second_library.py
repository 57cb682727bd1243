"""A client of another library: what the server must do for any QUIC client."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.packet import QuicProtocolVersion

from eventd.quic.limits import TransportLimits
from eventd.runtime.clock import SystemClock
from tests.support.aioquic_client import RawClient, connect, connected
from tests.support.quic_ends import Served, eventually, serve

CLOCK = SystemClock()


async def echo(client: RawClient, text: bytes) -> bytes:
    """Write on a new stream, and return what comes back until its end."""
    stream = client.open()
    stream.write(text, end=True)
    await stream.over()
    return bytes(stream.data)


async def test_what_it_writes_comes_back(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, connected(served.server.address[1]) as client:
        assert await echo(client, b"hello") == b"hello"
        assert await echo(client, b"x" * 3_000_000) == b"x" * 3_000_000
        assert not served.failures


async def test_its_handshake_needs_no_retransmission(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        seconds = []
        for _ in range(6):
            began = CLOCK.monotonic()
            async with connected(served.server.address[1]):
                seconds.append(CLOCK.monotonic() - began)
        assert sorted(seconds)[2] < 0.15, "the first retransmission would come after 0.2 s"


async def test_it_verifies_the_certificate(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, connected(served.server.address[1], trust=tmp_path / "ca.crt") as client:
        assert await echo(client, b"hello") == b"hello"


async def test_an_application_protocol_is_refused(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        with pytest.raises(ConnectionError) as caught:
            await connect(served.server.address[1], alpn=["h3"])
        assert caught.value.args == ((0x100 + 120, "no application protocol is to be offered here"),)
        assert not served.links


async def test_datagrams_of_every_size_are_taken_and_a_small_limit_is_kept(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        for size in (1200, 1452, 4096, 9000, 16_000):
            async with connected(served.server.address[1], max_datagram_size=size) as client:
                assert await echo(client, b"x" * 200_000) == b"x" * 200_000
                parameters = client.quic._remote_max_stream_data_uni, client.quic._remote_max_streams_bidi
                assert parameters == (TransportLimits().stream_window, 1024)


async def test_a_reset_and_a_stop_go_both_ways(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, connected(served.server.address[1]) as client:
        stream, other = client.open(), client.open()
        stream.write(b"x")
        other.write(b"y")
        server = await served.link()
        await server.until(lambda it: len(it.streams) == 2)
        stream.reset(3)
        await server.streams[0].until(lambda it: it.reset_code == 3)
        other.stop(4)
        await server.streams[1].until(lambda it: it.stop_code == 4)
        server.streams[1].stream.stop_receiving(5)
        await other.stopped()
        assert other.stopped_code == 5
        server.streams[0].stream.reset(6)
        await stream.over()
        assert stream.reset_code == 6


async def test_the_code_and_the_reason_of_a_close_arrive(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, connected(served.server.address[1]) as client:
        server = await served.link()
        server.link.close(0, "broker shutting down")
        assert await client.closed() == (0, "broker shutting down")
    async with serve(tmp_path) as served, connected(served.server.address[1]) as client:
        client.quic.close(error_code=9, reason_phrase="bye")
        client.transmit()
        server = await served.link()
        await server.until(lambda it: it.end)
        assert server.end == (9, "bye")


async def test_a_fault_of_the_client_ends_its_connection_and_no_other(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, connected(served.server.address[1]) as good:
        async with connected(served.server.address[1]) as bad:
            bad.quic._remote_max_streams_bidi = 5000
            for _ in range(1100):
                bad.open().write(b"x")
            code, _ = await bad.closed()
            assert code == 4  # STREAM_LIMIT_ERROR
            server = await served.link(1)
            await server.until(lambda it: it.end)
        assert await echo(good, b"still here") == b"still here"
        assert not served.failures


async def test_an_unproved_address_is_asked_for_a_token(tmp_path: Path) -> None:
    async with serve(tmp_path, TransportLimits(retry_from=0)) as served:
        async with connected(served.server.address[1]) as client:
            assert client.quic._retry_source_connection_id is not None
            assert await echo(client, b"hello") == b"hello"
        own = await served.dial()
        own.link.close()


async def test_another_version_is_answered_with_the_right_one(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        versions = [QuicProtocolVersion.VERSION_2, QuicProtocolVersion.VERSION_1]
        async with connected(served.server.address[1], supported_versions=versions, original_version=versions[0]) as it:
            assert it.quic._version == QuicProtocolVersion.VERSION_1
            assert await echo(it, b"hello") == b"hello"


async def test_a_handshake_that_is_not_finished_is_dropped(tmp_path: Path) -> None:
    async with serve(tmp_path, TransportLimits(handshake_seconds=0.3)) as served:
        client = await _silent_client(served)
        await eventually(lambda: not served.server.connections)
        client.vanish()
        assert not served.links
        assert not served.failures


async def _silent_client(served: Served) -> RawClient:
    """Return a client that sends its first flight and never reads an answer."""
    client = RawClient(QuicConnection(configuration=QuicConfiguration(verify_mode=ssl.CERT_NONE)))
    client.datagram_received = lambda data, addr: None  # type: ignore[method-assign]
    address = ("127.0.0.1", served.server.address[1])
    await asyncio.get_running_loop().create_datagram_endpoint(lambda: client, remote_addr=address)
    client.connect(address)
    await eventually(lambda: served.server.connections)
    return client
