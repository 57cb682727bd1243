"""Datagrams that are no QUIC, or hostile QUIC, at the port of streams: none stops the node or costs it much."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import time

import pytest
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection

from tests.support.aioquic_client import RawClient, connect
from tests.support.felix_wire import frame, publish_acked
from tests.support.stream_nodes import Session, StreamNode, session

ORDERS = "t1/default/orders"


@pytest.fixture
def raw(node: StreamNode) -> socket.socket:
    """A UDP socket that sends to the node."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.connect(("127.0.0.1", node.streams_port))
    made.settimeout(0.3)
    return made


def initial() -> bytes:
    """Return the first datagram of a client."""
    quic = QuicConnection(configuration=QuicConfiguration(is_client=True, server_name="localhost"))
    quic.connect(("127.0.0.1", 1), now=0.0)
    return quic.datagrams_to_send(now=0.0)[0][0]


def send(raw: socket.socket, *datagrams: bytes) -> None:
    for each in datagrams:
        try:
            raw.send(each)
        except (ConnectionRefusedError, BlockingIOError):
            pytest.fail("the node does not listen any more")


async def works(node: StreamNode) -> None:
    """Check that a new client is served at once."""
    async with asyncio.timeout(5), session(node) as line:
        await line.publish(ORDERS, b"works")


async def test_datagrams_that_are_no_quic_are_dropped(
    node: StreamNode, raw: socket.socket, chance: random.Random
) -> None:
    whole = initial()
    long_header = b"\xc3\0\0\0\1"
    datagrams = [
        b"",
        b"\0",
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(65_000),
        b"\xff" * 65_000,
        *(chance.randbytes(chance.randint(1, 1500)) for _ in range(1000)),
        *(b"\x40" + chance.randbytes(chance.randint(1, 100)) for _ in range(500)),  # short headers, unknown ids
        *(long_header + bytes([size]) + chance.randbytes(60) for size in range(256)),  # lengths of connection ids
        *(whole[:cut] for cut in range(0, len(whole), 7)),
        *(flipped(whole, chance) for _ in range(1000)),
        b"\xc3" + b"\0\0\0\0" + whole[5:],  # a negotiation of versions
        b"\xc3" + b"\x0a\x0a\x0a\x0a" + whole[5:],  # an unknown version
        b"\xf3" + whole[1:],  # a retry
    ]
    before = node.memory()
    with raw:
        send(raw, *datagrams)
    await works(node)
    assert node.memory() - before < 40 << 20
    assert node.faults() == []


def flipped(datagram: bytes, chance: random.Random) -> bytes:
    """Return a datagram with a few wrong bytes."""
    found = bytearray(datagram)
    for _ in range(chance.randint(1, 4)):
        found[chance.randrange(len(found))] = chance.randrange(256)
    return bytes(found)


async def test_floods_of_first_packets_keep_nobody_out_and_are_not_amplified(
    node: StreamNode, raw: socket.socket
) -> None:
    datagrams = [initial() for _ in range(600)]
    before = node.memory()
    with raw:
        raw.setblocking(False)
        received = 0
        for start in range(0, len(datagrams), 100):
            send(raw, *datagrams[start : start + 100])
            await asyncio.sleep(0.01)
            received += drained(raw)
        await works(node)
        received += drained(raw)
    assert received < 3 * sum(map(len, datagrams))
    assert node.memory() - before < 150 << 20
    assert node.ready()
    assert node.faults() == []


def drained(raw: socket.socket) -> int:
    """Return the number of bytes that have been answered so far."""
    size = 0
    while True:
        try:
            size += len(raw.recv(65_536))
        except (BlockingIOError, TimeoutError):
            return size


async def test_half_handshakes_and_small_first_packets_are_forgotten(node: StreamNode, raw: socket.socket) -> None:
    with raw:
        send(raw, *(initial()[:size] for size in (100, 600, 1199)))
        with pytest.raises(TimeoutError):
            raw.recv(65_536)  # a first packet below 1200 bytes is not answered
    for _ in range(50):
        quic = QuicConnection(configuration=QuicConfiguration(is_client=True, server_name="localhost"))
        client = RawClient(quic)
        await asyncio.get_running_loop().create_datagram_endpoint(lambda made=client: made, local_addr=("127.0.0.1", 0))
        client.connect(("127.0.0.1", node.streams_port))
        await asyncio.sleep(0)
        client.vanish()
    await works(node)


async def test_a_stranger_who_knows_the_ids_of_a_connection_does_not_end_it(
    node: StreamNode, chance: random.Random
) -> None:
    async with session(node) as line:
        stream = await line.stream()
        id = line.client.quic._peer_cid.cid
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.connect(("127.0.0.1", node.streams_port))
            send(stranger, *(b"\x40" + id + chance.randbytes(chance.randint(0, 1200)) for _ in range(2000)))
            close = b"\xc3\0\0\0\1" + bytes([len(id)]) + id + b"\0\0" + struct.pack(">H", 0x4000 + 30) + bytes(30)
            send(stranger, close)
        stream.write(publish_acked(1, ORDERS, b"still here"))
        await stream.frame()
        await line.client.alive()


async def test_a_client_that_moves_to_another_port_goes_on(node: StreamNode) -> None:
    async with session(node) as line:
        stream = await line.stream()
        reading = await line.subscribe(ORDERS)
        old = line.client._transport
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(lambda: line.client, local_addr=("127.0.0.1", 0))
        stream.write(publish_acked(1, ORDERS, b"from elsewhere"))
        await stream.frame()
        assert await reading.until(1) == [b"from elsewhere"]
        assert old is not None
        old.close()


async def test_frames_of_random_bytes_end_streams_and_nothing_else(node: StreamNode, chance: random.Random) -> None:
    async with session(node) as line, session(node) as good:
        before = node.memory()
        for _ in range(150):
            stream = await line.stream() if chance.random() < 0.7 else line.client.open(unidirectional=True)
            if stream.id % 4:
                stream.write(line.auth())
            for _ in range(chance.randint(1, 5)):
                stream.write(odd_frame(chance))
            if chance.random() < 0.3:
                stream.reset(chance.randrange(1 << 20))
            elif chance.random() < 0.5:
                stream.end()
            if chance.random() < 0.3 and stream.id % 4 == 0:
                stream.stop(chance.randrange(1 << 20))
        await line.client.alive()
        await good.publish(ORDERS, b"unharmed")
        assert node.memory() - before < 64 << 20
    assert node.faults() == []


def odd_frame(chance: random.Random) -> bytes:
    """Return a frame that is nearly one."""
    payload = publish_acked(chance.getrandbits(64), ORDERS, *[b"x" * chance.randint(0, 50)] * chance.randint(0, 9))[12:]
    kind = chance.randrange(5)
    if kind == 0:
        payload = chance.randbytes(chance.randint(0, 300))
    elif kind == 1:
        payload = flipped(payload, chance)
    elif kind == 2:
        payload = payload[: chance.randint(0, len(payload))]
    text = frame(chance.choice([0, 1, 9, 9, 9, chance.randrange(1 << 16)]), payload)
    return flipped(text, chance) if chance.random() < 0.2 else text


async def test_a_client_that_is_stopped_by_its_system_costs_the_others_nothing(node: StreamNode) -> None:
    asleep = await connect(node.streams_port, idle_timeout=60, max_stream_data=1 << 20)
    line = Session(asleep, node.maker.token())
    await line.subscribe(ORDERS)
    asleep.fall_asleep()
    before = node.memory()
    async with session(node) as good:
        reading = await good.subscribe(ORDERS)
        begun = time.monotonic()
        for number in range(60):
            await good.publish(ORDERS, *[b"%d" % number * 5000] * 10)
            await reading.until(10 * (number + 1))
        assert time.monotonic() - begun < 20
    assert node.memory() - before < 48 << 20
    asleep.vanish()
