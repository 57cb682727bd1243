"""Clients that begin handshakes and never complete them, and datagrams that are no QUIC, keep nobody out."""

from __future__ import annotations

import asyncio
import random
import ssl
from pathlib import Path
from typing import Any

from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection

from eventd.quic.limits import TransportLimits
from eventd.testing import until
from tests.support.aioquic_client import RawClient, connected
from tests.support.quic_ends import serve

RETRY = 0xF0


class HalfClient(RawClient):
    """A client that proves its address, and takes no part of the handshake after that. `is_answered`: the server began
    a handshake."""

    is_answered = False

    def datagram_received(self, data: bytes | str, addr: Any) -> None:
        """Take nothing but the demand for a proof."""
        assert isinstance(data, bytes)
        if data[0] & RETRY == RETRY:
            super().datagram_received(data, addr)
        else:
            self.is_answered = True


async def begin(port: int) -> HalfClient:
    """Begin a handshake that will not be completed."""
    configuration = QuicConfiguration(is_client=True, server_name="localhost", verify_mode=ssl.CERT_NONE)
    client = HalfClient(QuicConnection(configuration=configuration))
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(lambda: client, remote_addr=("127.0.0.1", port))
    client.connect(("127.0.0.1", port))
    await asyncio.sleep(0)
    return client


async def test_handshakes_that_are_never_completed_keep_nobody_out(tmp_path: Path) -> None:
    limits = TransportLimits(most_connections=3, most_unproven=8, retry_from=4)
    async with serve(tmp_path, limits) as served:
        port = served.server.address[1]
        halves = [await begin(port) for _ in range(30)]
        await until(lambda: all(half.is_answered for half in halves), "all handshakes to begin")
        for half in halves:
            half.vanish()  # otherwise what they send again would begin others, and displace a slow client
        async with connected(port, seconds=3) as first, connected(port, seconds=3) as second:
            assert served.server.connections <= 8 + 2
            await first.alive()
            await second.alive()
        assert served.failures == []


async def test_datagrams_that_are_no_quic_are_dropped(tmp_path: Path, chance: random.Random) -> None:
    async with serve(tmp_path) as served:
        port = served.server.address[1]
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=("127.0.0.1", port))
        long = b"\xc3\0\0\0\1"
        datagrams = [
            b"",
            b"\0",
            b"\x80",
            long,
            b"\x40" * 9,
            bytes(65_000),
            b"\xff" * 65_000,
            *(long + bytes([size]) + chance.randbytes(1300) for size in range(256)),
            *(chance.randbytes(chance.randint(0, 1500)) for _ in range(300)),
        ]
        for each in datagrams:
            transport.sendto(each)
            await asyncio.sleep(0)
        async with connected(port, seconds=3) as client:
            await client.alive()
        transport.close()
        assert served.failures == []


async def test_datagrams_from_port_0_are_not_answered(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        other_version = b"\xc3\xfa\xce\xb0\x0c\x08" + bytes(8) + b"\x08" + bytes(8)
        served.server._received([(other_version.ljust(1200, b"\0"), ("127.0.0.1", 0))])
        assert served.failures == []
