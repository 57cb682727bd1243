"""What a sender without a key, or with a captured request, can cost the holders of a key."""

from __future__ import annotations

import asyncio
import json
import select
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import pytest

from eventd.api.peers import listener
from eventd.node import membership
from eventd.testing import until
from tests.integration.conftest import MakeSites
from tests.support.sites import Site
from tests.support.v1_node import Reply, V1Sender, body_of, read_reply, signature
from tests.support.v2_sender import V2Sender, line

MIB = 1 << 20
PLACES = 16
WITHHELD_SECONDS = 2.0
"""How long bodies are withheld before the genuine one arrives. The slowest body gives way, by its average speed since
it began: on a busy machine one that has just arrived whole but for its last byte may be faster than a genuine one.
"""


@pytest.fixture(autouse=True)
def _lingering_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "LINGER_SECONDS", 0.5)


@pytest.fixture
async def b(sites: MakeSites) -> AsyncIterator[Site]:
    (node,) = sites("b")
    await node.start(max_connections=PLACES)
    await node.join()
    yield node
    await node.stop()


@pytest.fixture
def links() -> Iterator[ExitStack]:
    """Connections that end with the test."""
    with ExitStack() as stack:
        yield stack


def _connect(links: ExitStack, port: int, host: str = "127.0.0.1") -> socket.socket:
    link = socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(host, 0))
    return links.enter_context(link)


async def _post(node: Site, body: bytes) -> Reply:
    return await asyncio.to_thread(V1Sender(node.port, node.secret.read_bytes().strip()).post, body)


async def _no_request_left(links: ExitStack) -> None:
    """A listener reads on for a moment what a refused sender still sends."""
    links.close()
    await until(lambda: not any("RequestHandler" in repr(task) for task in asyncio.all_tasks()), "the requests to end")


def _turned_away(node: Site, reason: str) -> float:
    name = "routerd_eventd_listener_turned_away_total"
    found = node.running.metrics.registry.get_sample_value(name, {"group": "edge", "reason": reason})
    return found or 0.0


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
async def test_bodies_that_are_withheld_keep_nobody_out(
    sites: MakeSites, links: ExitStack, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """They fill the room for bodies that are arriving. The genuine one comes from the same address, or another."""
    monkeypatch.setattr(listener, "READING_BYTES_V1", 8 * MIB)
    (node,) = sites("b")
    await node.start(max_connections=256)
    await node.join()
    head = f"POST /v1/events HTTP/1.1\r\nHost: b\r\nContent-Length: {MIB}\r\n\r\n".encode()

    def withhold() -> list[socket.socket]:
        held = [_connect(links, node.port, host) for _ in range(9)]
        for link in held:
            link.sendall(head + b"x" * (MIB - 1))
        return held

    held = await asyncio.to_thread(withhold)
    answered, _, _ = await asyncio.to_thread(select.select, held, [], [], 10)
    assert [read_reply(link).status for link in answered] == [503]  # the room is taken, but for 8 bytes
    await asyncio.sleep(WITHHELD_SECONDS)
    for number in range(3):
        reply = await _post(node, body_of(f"e{number}", payload={"text": "t" * 200_000}))
        assert reply.status == 200, reply.body
    assert await node.ids() == ["e0", "e1", "e2"]
    await _no_request_left(links)


async def test_a_captured_head_of_v2_keeps_nobody_out(
    sites: MakeSites, links: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is proven, but says nothing of who sends the body behind it. One that was seen before is answered at once."""
    monkeypatch.setattr(listener, "READING_BYTES", 8 * MIB)
    (node,) = sites("b")
    await node.start(max_connections=256)
    await node.join()
    sender = V2Sender(node.port)
    seen = sender.batch(line("e0"))
    assert (await asyncio.to_thread(sender.send, seen)).status == 200
    head, _, _ = seen.partition(b"\r\n\r\n")
    repeated = await asyncio.to_thread(sender.send, head + b"\r\n\r\n")
    assert (repeated.status, json.loads(repeated.body)["error"]["code"]) == (409, "replayed")
    unseen, _, body = sender.batch(raw_body=b"x" * MIB).partition(b"\r\n\r\n")

    def withhold() -> list[socket.socket]:
        held = [_connect(links, node.port, "127.0.0.2") for _ in range(9)]
        for link in held:
            link.sendall(unseen + b"\r\n\r\n" + body[:-1])
        return held

    held = await asyncio.to_thread(withhold)
    answered, _, _ = await asyncio.to_thread(select.select, held, [], [], 10)
    assert [read_reply(link).status for link in answered] == [503]
    await asyncio.sleep(WITHHELD_SECONDS)
    assert (await asyncio.to_thread(sender.send, sender.batch(line("e1")))).status == 200
    assert await node.ids() == ["e0", "e1"]
    await _no_request_left(links)


async def test_a_captured_v1_request_earns_no_trust_by_repetition(
    b: Site, links: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The genuine peer gets in, again and again; and no link that rests is woken."""
    woken: list[str] = []
    monkeypatch.setattr(b.running.groups["edge"], "wake", woken.append)
    captured, now = body_of("e0"), int(b.clock.now() // 1_000_000)
    signed = signature(b.secret.read_bytes().strip(), now, captured)
    request = (
        f"POST /v1/events HTTP/1.1\r\nHost: b\r\nContent-Length: {len(captured)}\r\n"
        f"X-Routerd-Timestamp: {now}\r\nX-Routerd-Signature: {signed}\r\n\r\n"
    ).encode() + captured
    assert (await _post(b, captured)).status == 200

    def repeat() -> None:
        for _ in range(PLACES):
            link = _connect(links, b.port, "127.0.0.2")
            link.sendall(request)
            reply = read_reply(link)
            assert (reply.status, json.loads(reply.body)["duplicate"]) == (200, True)

    await asyncio.to_thread(repeat)
    assert woken == ["old"]
    for number in range(3):
        assert (await _post(b, body_of(f"new-{number}"))).status == 200
    assert _turned_away(b, "full") == 0
    assert await b.ids() == ["e0", "new-0", "new-1", "new-2"]


async def test_new_events_of_one_key_leave_half_of_the_places_to_others(b: Site, links: ExitStack) -> None:
    """All members share a key here; each connection stays open."""
    sender = V2Sender(b.port)

    def fill() -> None:
        for number in range(3 * PLACES):
            link = _connect(links, b.port)
            link.sendall(sender.batch(line(f"e{number}")))
            assert read_reply(link).status == 200

    await asyncio.to_thread(fill)
    assert _turned_away(b, "full") == 0
    assert (await _post(b, body_of("v1"))).status == 200


async def test_a_body_over_the_limit_of_v1_is_an_unfitting_signature(b: Site, links: ExitStack) -> None:
    """The body is not read to its end, however its length is given; and only after the timestamp was checked."""
    now = int(b.clock.now() // 1_000_000)

    def announce(timestamp: int | str, length: str, sent: bytes = b"") -> Reply:
        link = _connect(links, b.port)
        head = f"POST /v1/events HTTP/1.1\r\nHost: b\r\n{length}\r\nX-Routerd-Timestamp: {timestamp}\r\n"
        link.sendall(f"{head}X-Routerd-Signature: {'0' * 64}\r\n\r\n".encode() + sent)
        return read_reply(link)

    chunk = b"100001\r\n" + b"x" * (MIB + 1) + b"\r\n"
    long = "Content-Length: 99999999999"
    replies = [
        await asyncio.to_thread(announce, now, long),
        await asyncio.to_thread(announce, now, "Transfer-Encoding: chunked", chunk),
        await asyncio.to_thread(announce, now - 1000, long),
        await asyncio.to_thread(announce, "soon", long),
    ]
    assert [(reply.status, reply.body) for reply in replies] == [
        (401, b"bad signature\n"),
        (401, b"bad signature\n"),
        (403, b"stale timestamp\n"),
        (400, b"bad timestamp\n"),
    ]
    assert {reply.header("Connection") for reply in replies} == {"close"}
    await _no_request_left(links)
