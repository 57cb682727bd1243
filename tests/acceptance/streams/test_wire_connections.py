"""Connections of a second library: the handshake, the certificate, restarts, and how a node that stops ends them."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.support.aioquic_client import connect, connected
from tests.support.certificates import Authority
from tests.support.felix_wire import WireAck, message, publish_acked, read_ack, scope
from tests.support.processes import Processes
from tests.support.stream_nodes import StreamNode, session
from tests.support.waiting import wait_for

ORDERS = "t1/default/orders"


async def test_a_client_that_offers_a_protocol_by_name_is_refused(node: StreamNode) -> None:
    for alpn in (["h3"], ["felix"], ["hq-interop", "h3"]):
        with pytest.raises(ConnectionError):
            await connect(node.streams_port, alpn=alpn)
    async with session(node) as line:
        await line.publish(ORDERS, b"none offered")


async def test_the_handshake_is_quick_and_the_node_announces_what_clients_need(node: StreamNode) -> None:
    times = []
    for _ in range(5):
        begun = time.monotonic()
        async with connected(node.streams_port) as client:
            times.append(time.monotonic() - begun)
            quic = client.quic
            assert quic._remote_max_streams_bidi >= 1024
            assert quic._remote_max_streams_uni >= 1024
            assert quic._remote_max_stream_data_bidi_remote >= 1 << 20
            assert quic._remote_max_data >= 2 << 20
    assert sorted(times)[2] < 0.5, times


async def test_large_datagrams_are_taken_from_the_first_packet_on(node: StreamNode) -> None:
    for size in (1200, 4096, 16_000):
        async with session(node, max_datagram_size=size) as line:
            await line.publish(ORDERS, b"x" * 100_000)


async def test_the_certificate_is_kept_and_its_path_is_in_the_log(processes: Processes) -> None:
    node = StreamNode(processes, "kept")
    node.create("default/orders")
    path = kept_certificate(node)
    async with session(node, trust=path) as line:
        await line.publish(ORDERS, b"x")
    with pytest.raises(ConnectionError):
        await connect(node.streams_port, trust=Authority(processes.directory / "other").file)
    before = path.read_bytes()
    node.stop()
    node.start()
    assert kept_certificate(node).read_bytes() == before
    async with session(node, trust=path) as line:
        await line.publish(ORDERS, b"x")
    private = [each for each in node.data.rglob("*") if each.is_file() and b"PRIVATE KEY" in each.read_bytes()]
    assert private
    assert all(each.stat().st_mode & 0o077 == 0 for each in private)
    assert node.stop() == 0


def kept_certificate(node: StreamNode) -> Path:
    """Return the path of the certificate, as the log names it."""
    texts = [value for line in node.log_lines() for value in line.values() if isinstance(value, str)]
    paths = [Path(text) for text in texts if text.startswith("/") and text.endswith((".crt", ".pem"))]
    return next(path for path in paths if b"BEGIN CERTIFICATE" in path.read_bytes())


async def test_a_certificate_from_files_is_read_again_on_sighup(processes: Processes) -> None:
    authority = Authority(processes.directory / "ca")
    files = authority.issue("first")
    places = {"EVENTD_QUIC_CERT_FILE": str(files.cert), "EVENTD_QUIC_KEY_FILE": str(files.key)}
    node = StreamNode(processes, "files", **places)
    node.create("default/orders")

    async def shown() -> int:
        async with session(node, trust=authority.file) as line:
            await line.publish(ORDERS, b"x")
            certificate = line.client.quic.tls._peer_certificate
            assert certificate is not None
            return int(certificate.serial_number)

    first = await shown()
    async with session(node, trust=authority.file) as old:
        authority.issue("first")
        node.process.send(signal.SIGHUP)
        async with asyncio.timeout(10):
            while await shown() == first:
                pass
        await old.publish(ORDERS, b"connections stay")
    files.cert.write_text("no certificate")
    node.process.send(signal.SIGHUP)
    wait_for(lambda: str(files.cert) in node.process.log().rpartition("sighup")[2], "the complaint", seconds=5)
    assert await shown() != first
    assert node.stop() == 0


def stopping(node: StreamNode) -> threading.Thread:
    """Stop the node meanwhile."""
    thread = threading.Thread(target=node.stop, name="stop")
    thread.start()
    return thread


async def test_a_node_that_stops_ends_event_streams_at_a_frame_and_then_its_connections(processes: Processes) -> None:
    node = StreamNode(processes, "drains", EVENTD_QUIC_DRAIN="4s")
    where = node.create("default/orders")
    async with session(node) as line, session(node) as idle:
        reading, stream = await line.subscribe(where), await line.stream()
        await line.publish(where, *[b"%d" % number for number in range(500)])
        for id in range(50):
            stream.write(publish_acked(id, where, b"last %d" % id))
        assert read_ack(await stream.frame()).request_id == 0
        begun = time.monotonic()
        thread = stopping(node)
        try:
            async with asyncio.timeout(15):
                frames = await stream.rest(15)
                acked = 1 + sum(read_ack(each).status == 0 for each in frames if each.flags)
                told = [each for each in frames if not each.flags]
                assert all(json.loads(each.payload)["type"] == "error" for each in told)
                seen = await reading.stream.rest(15)  # FIN after a whole frame
                assert seen or reading.seen
                assert await line.client.closed(15) == (0, "broker shutting down")
                assert await idle.client.closed(15) == (0, "broker shutting down")
        finally:
            thread.join(20)
        assert time.monotonic() - begun < 10
        assert node.process.wait_exit() == 0
    node.start()
    async with session(node) as line:
        again = await line.subscribe(where, start="earliest")
        payloads = await again.until(500 + acked)
        assert payloads[500 : 500 + acked] == [b"last %d" % id for id in range(acked)]
        assert [each for each in node.faults()] == []
    assert node.stop() == 0


async def test_a_stop_waits_for_streams_that_are_about_to_end_and_not_for_others(processes: Processes) -> None:
    node = StreamNode(processes, "waits", EVENTD_QUIC_DRAIN="4s")
    where = node.create("default/orders")
    async with session(node) as line, session(node, max_stream_data=4000) as stuck:
        stalled = await stuck.subscribe(where)
        stuck.client.stall(stalled.stream)
        await line.publish(where, b"x" * 100_000)
        stream = await line.stream()
        half = publish_acked(1, where, b"half")
        stream.write(half[:-2])
        await line.client.alive()
        thread = stopping(node)
        try:
            wait_for(lambda: not _ready(node), "the node not to be ready any more", every=0.005)
            stream.write(half[-2:], end=True)
            frames = await stream.rest(10)
            assert [read_ack(each) for each in frames if each.flags] in ([WireAck(0, 1, "")], [])
            assert await stuck.client.closed(10) == (0, "broker shutting down")
        finally:
            thread.join(20)
        with pytest.raises((ConnectionError, TimeoutError)):
            await connect(node.streams_port, seconds=0.3)
    assert node.process.wait_exit() == 0


def _ready(node: StreamNode) -> bool:
    try:
        return node.ready()
    except (OSError, AssertionError):  # without its port file it listens no more
        return False


async def test_clients_that_vanish_leave_nothing_behind(node: StreamNode) -> None:
    gone = []
    for _ in range(10):
        client = await connect(node.streams_port, idle_timeout=1.0)
        stream = client.open()
        stream.write(message("auth", tenant_id="t1", token=node.maker.token()))
        await stream.message()
        stream.write(message("subscribe", **scope(ORDERS)))
        await client.take_opened()
        gone.append(client)
    before = node.metric("routerd_eventd_stream_connections")
    assert before >= 10
    for client in gone:
        client.vanish()
    wait_for(
        lambda: node.metric("routerd_eventd_stream_connections") <= before - 10, "the connections to end", seconds=15
    )
    assert node.metric("routerd_eventd_stream_subscriptions") == 0


async def test_a_node_that_was_killed_and_comes_back_takes_the_same_clients(processes: Processes) -> None:
    node = StreamNode(processes, "again")
    where = node.create("default/orders")
    async with session(node, idle_timeout=3) as line:
        await line.publish(where, b"before")
        node.kill9()
        node.start()
        line.client.open().write(line.auth())
        await line.client.closed(15)
    async with session(node) as line:
        reading = await line.subscribe(where, start="earliest")
        await line.publish(where, b"after")
        assert await reading.until(2) == [b"before", b"after"]
    assert node.stop() == 0
