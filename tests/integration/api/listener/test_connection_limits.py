"""The connection limits of the listeners, against clients that open many connections or send slowly."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from eventd.api.listener import connections
from eventd.node import membership
from eventd.testing import until
from federation.keys import Key
from tests.integration.conftest import MakeSites
from tests.support.declared import group, peer
from tests.support.processes import Processes
from tests.support.running import SECRET, NodeProcess
from tests.support.sites import Site
from tests.support.v1_node import V1Sender, body_of, read_reply
from tests.support.v2_sender import V2Sender, line
from tests.support.waiting import wait_for

Open = Callable[..., Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
HALF = b"POST /v2/events HTTP/1.1\r\nHost: b\r\n"


@pytest.fixture
async def connect() -> AsyncIterator[Open]:
    """`connect(port, host)`: a connection from that address that ends with the test."""
    async with AsyncExitStack() as stack:

        async def one(port: int, host: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))
            stack.callback(writer.close)
            return reader, writer

        yield one


async def _one(sites: MakeSites, most: int = 16) -> Site:
    (node,) = sites("b")
    await node.start(max_connections=most)
    await node.join()
    return node


def _figure(node: Site, name: str, **labels: str) -> float:
    told = node.running.metrics.registry.get_sample_value(f"routerd_eventd_{name}", labels)
    return told or 0.0


def _open(node: Site, group: str = "edge") -> float:
    return _figure(node, "listener_connections", group=group)


async def _ended(reader: asyncio.StreamReader) -> bytes:
    """What still came before the other side ended the connection."""
    async with asyncio.timeout(10):
        with contextlib.suppress(ConnectionError):
            return await reader.read()
    return b""


async def test_strangers_displace_each_other_and_never_a_peer(sites: MakeSites, connect: Open) -> None:
    b = await _one(sites)
    sender = V2Sender(b.port)
    known, talk = await connect(b.port)

    async def push(event_id: str) -> bytes:
        talk.write(sender.batch(line(event_id)))
        return await known.readuntil(b"\r\n\r\n")

    assert b" 200 " in await push("e1")
    strangers = [await connect(b.port) for _ in range(40)]
    for _, writer in strangers[-15:]:
        writer.write(HALF)
    await until(lambda: _figure(b, "listener_turned_away_total", group="edge", reason="displaced") == 25, "25 to go")
    assert _open(b) == 16
    for reader, _ in strangers[:25]:
        assert await _ended(reader) == b""
    assert not any(reader.at_eof() for reader, _ in strangers[25:])
    await known.readuntil(b"}")
    talk.write(sender.batch(line("e2")))
    await b.holds("e1", "e2")
    assert not known.at_eof()
    # Who comes now and can prove who he is gets his turn as well.
    reply = await asyncio.to_thread(sender.send, sender.batch(line("e3")))
    assert reply.status == 200


async def test_a_house_full_of_peers_says_so(sites: MakeSites, connect: Open) -> None:
    """Two keys, and two addresses, hold half of it each."""
    b = await _one(sites)
    keys = [{"id": f"k-{node}", "owner": node, "secretFile": str(b.secret)} for node in "xy"]
    await b.apply(group("b", port=b.port, secret=b.secret, auth={"keys": keys}))
    senders = [V2Sender(b.port, node=node, key=Key.hmac(f"k-{node}", SECRET, owner=node)) for node in "xy"]
    for number in range(16):
        sender = senders[number % 2]
        reader, writer = await connect(b.port, f"127.0.0.{1 + number % 2}")
        writer.write(sender.batch(line(f"e{number}", node=sender.node)))
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
    reader, _ = await connect(b.port)
    told = await _ended(reader)
    assert told.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 1\r\n" in told
    assert _figure(b, "listener_turned_away_total", group="edge", reason="full") == 1
    assert _open(b) == 16


async def test_a_peer_delivers_through_a_door_that_strangers_storm(sites: MakeSites) -> None:
    a, b = sites("a", "b")
    await a.start()
    await b.start(max_connections=16)
    await b.join()
    storming = True
    opened = 0

    async def storm() -> None:
        nonlocal opened
        links: list[asyncio.StreamWriter] = []
        while storming:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", b.port)
                writer.write(HALF)
                links.append(writer)
                opened += 1
            await asyncio.sleep(0)
        for writer in links:
            writer.close()

    async with asyncio.TaskGroup() as group:
        group.create_task(storm())
        try:
            await until(lambda: opened > 50, "the storm to begin")
            await a.join(b)
            for number in range(20):
                await a.emit(f"e{number}")
            await b.holds(*[f"e{number}" for number in range(20)])
        finally:
            storming = False
    assert _figure(b, "listener_turned_away_total", group="edge", reason="displaced") > 20


@pytest.mark.parametrize("sent", [b"", HALF, HALF + b"X-A: b\r\n"])
async def test_a_head_that_does_not_come_ends_the_connection(
    sites: MakeSites, connect: Open, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.2)
    b = await _one(sites)
    for port, of in ((b.port, "edge"), ((b.running.api_address or ("", 0))[1], "")):
        reader, writer = await connect(port)
        for byte in sent:
            writer.write(bytes([byte]))
        assert await _ended(reader) == b""
        assert _figure(b, "listener_turned_away_total", group=of, reason="slow_head") == 1
        await until(lambda of=of: _open(b, of) == 0, "the door to forget it")  # type: ignore[misc]


async def test_a_next_head_that_does_not_come_ends_it_too_and_a_prompt_one_does_not(
    sites: MakeSites, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(membership, "KEEPALIVE_SECONDS", 1.0)
    b = await _one(sites)
    reader, writer = await connect(b.port)
    writer.write(b"GET /v1/status HTTP/1.1\r\nHost: b\r\n\r\n")
    assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
    await reader.readuntil(b"}")
    writer.write(HALF)
    assert (await _ended(reader)).strip() == b""
    assert _figure(b, "listener_turned_away_total", group="edge", reason="slow_head") == 0


async def test_a_body_may_take_longer_than_a_head(
    sites: MakeSites, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(membership, "KEEPALIVE_SECONDS", 0.6)
    b = await _one(sites)
    head, _, body = V2Sender(b.port).batch(line("e1")).partition(b"\r\n\r\n")
    reader, writer = await connect(b.port)
    writer.write(head + b"\r\n\r\n" + body[:10])
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await until(lambda: loop.time() - begun > 1.3, "both deadlines to have passed")
    writer.write(body[10:])
    assert b" 200 " in await reader.readuntil(b"\r\n\r\n")


async def test_the_figures_go_with_the_listener(sites: MakeSites, connect: Open) -> None:
    b = await _one(sites)
    await connect(b.port)
    await until(lambda: _open(b) == 1, "the connection to be counted")
    registry = b.running.metrics.registry
    await b.apply(peer("c", 1), prune=False)
    await b.ask("resources.delete", kind="EventPeer", name="edge-c")
    await b.ask("resources.delete", kind="EventGroup", name="edge")
    await b.settled()
    assert registry.get_sample_value("routerd_eventd_listener_connections", {"group": "edge"}) is None
    assert _open(b, "") == 0


def test_the_node_as_it_is_run_keeps_its_door(processes: Processes) -> None:
    b = NodeProcess(processes, "b", EVENTD_MAX_CONNECTIONS="16", EVENTD_MAX_SSE_CONNECTIONS="1")
    b.join()
    v1 = V1Sender(b.port, SECRET.encode())
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            link = stack.enter_context(socket.create_connection(("127.0.0.1", b.port), timeout=10))
            link.sendall(HALF)
        assert v1.post(body_of("e1")).status == 200
        for _ in range(60):
            link = stack.enter_context(socket.create_connection(("127.0.0.1", b.process.port), timeout=10))
            link.sendall(b"GET /healthz")
        wait_for(lambda: b.ids() == ["e1"], "the API to answer")
        with socket.create_connection(("127.0.0.1", b.process.port), timeout=10) as link:
            link.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            figures = read_reply(link).body.decode()
    assert 'routerd_eventd_listener_turned_away_total{group="edge",reason="displaced"}' in figures
    assert 'routerd_eventd_listener_turned_away_total{group="",reason="displaced"}' in figures


@pytest.mark.parametrize("turns", range(5))
async def test_a_connection_that_comes_while_the_listener_ends_is_ended_with_it(sites: MakeSites, turns: int) -> None:
    """It was accepted by the system, and by the loop as far as some turns of it go."""
    b = await _one(sites)
    with socket.create_connection(("127.0.0.1", b.port)) as guest:
        guest.settimeout(10)
        for _ in range(turns):
            await asyncio.sleep(0)
        await b.running.groups["edge"].stop_listening()
        with contextlib.suppress(ConnectionError):
            told = await asyncio.to_thread(guest.recv, 1024)
            assert told == b"" or told.startswith(b"HTTP/1.1 503 ")
