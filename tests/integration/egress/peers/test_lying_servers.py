"""How much a sender reads of an answer, from servers that answer endlessly or violate HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from eventd.egress.loop import consumer
from eventd.egress.loop.sink import LinkUnavailable
from eventd.egress.transport.transport import MAX_ANSWER, Transport
from eventd.runtime.clock import SECOND, SystemClock
from eventd.testing import ManualClock
from tests.integration.conftest import MakeSites
from tests.support.declared import peer
from tests.support.flaky_peer import FixedResponse, FlakyPeer, Forward
from tests.support.ports import free_port

OK = b"HTTP/1.1 200 OK\r\n"
CHUNK = b"10000\r\n" + b"x" * 65536 + b"\r\n"


class Liar:
    """Answers each request with `begin`, and then with `again` for ever."""

    def __init__(self, begin: bytes, again: bytes) -> None:
        self._begin = begin
        self._again = again
        self.sent = 0
        self.port = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self._begin)
            while self._again and not reader.at_eof():
                writer.write(self._again)
                await writer.drain()
                self.sent += len(self._again)
            await reader.read()
        writer.close()


@asynccontextmanager
async def lying(begin: bytes, again: bytes) -> AsyncIterator[Liar]:
    liar = Liar(begin, again)
    server = await asyncio.start_server(liar.answer, "127.0.0.1", 0)
    liar.port = server.sockets[0].getsockname()[1]
    try:
        yield liar
    finally:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize(
    ("begin", "again", "reason"),
    [
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", CHUNK, "answer_too_large"),
        (OK + b"Content-Length: 99999999999\r\n\r\n", b"x" * 65536, "answer_too_large"),
        (OK + b"\r\n", b"x" * 65536, "answer_too_large"),
        (b"HTTP/1.1 401 No\r\nTransfer-Encoding: chunked\r\n\r\n", CHUNK, "answer_too_large"),
        (OK, b"X-More: " + b"x" * 4096 + b"\r\n", "unreachable"),
        (OK + b"X-Long: ", b"x" * 4096, "unreachable"),
        (b"HTTP/1.1 200 ", b"x" * 4096, "unreachable"),
        (b"", b"HTTP/1.1 102 Wait\r\n\r\n" * 200, "unreachable"),
        (OK + b"Content-Length: 10\r\n\r\nxxx", b"", "timeout"),
        (OK + b"Content-Length: ten\r\n\r\n", b"", "unreachable"),
        (b"220 mail.example ESMTP\r\n", b"", "unreachable"),
    ],
    ids=["chunks", "length", "to the end", "refusal", "fields", "field", "status", "1xx", "drip", "number", "mail"],
)
async def test_an_answer_without_end_is_not_read_to_its_end(begin: bytes, again: bytes, reason: str) -> None:
    async with lying(begin, again) as liar:
        transport = Transport(SystemClock())
        try:
            with pytest.raises(LinkUnavailable) as held:
                await transport.post(f"http://127.0.0.1:{liar.port}/v2/link", b"{}", {}, seconds=1.0)
        finally:
            await transport.close()
    assert held.value.reason == reason
    if reason != "timeout":
        assert liar.sent < MAX_ANSWER + (16 << 20)  # what the system's buffers hold of it aside


async def test_a_packed_answer_is_not_unpacked() -> None:
    bomb = OK + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x08"
    async with lying(bomb, b"") as liar:
        transport = Transport(SystemClock())
        try:
            answer = await transport.post(f"http://127.0.0.1:{liar.port}/v2/link", b"{}", {}, seconds=5.0)
        finally:
            await transport.close()
    assert answer.body == b"\x1f\x8b\x08"


@pytest.mark.parametrize("protocol", ["v1", "v2"])
async def test_a_link_to_a_server_that_answers_without_end_waits(sites: MakeSites, protocol: str) -> None:
    (a,) = sites("a")
    await a.start()
    await a.join()
    long = FixedResponse(200, body=b"x" * (MAX_ANSWER + 1))
    with FlakyPeer(free_port(), lambda _: long) as liar:
        await a.emit("e1")
        await a.apply(peer("b", liar.port, protocol=protocol))
        cursor = await a.in_state("b", "backing-off", "answer_too_large")
    assert cursor.position == 0


async def test_a_404_that_somebody_on_the_way_makes_up_loses_nothing_for_good(
    sites: MakeSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes the first contact one by v1, whose answers prove nothing. The peer's own proven call ends that."""
    monkeypatch.setattr(consumer, "REOPEN_AFTER", 0.0)
    a, b = sites("a", "b")
    for node in (a, b):
        await node.start()
        await node.join()
    with FlakyPeer(free_port(), target=b.port) as between:
        between.behave = lambda heard: FixedResponse(404) if heard.path.startswith("/v2") else FixedResponse(200)
        await a.apply(peer("b", between.port))
        await a.emit("e1")
        await a.caught_up("b")
        assert ((await a.cursor("b")).protocol, await b.ids()) == ("v1", [])
        between.behave = lambda _: Forward()
        await b.apply(peer("a", a.port))  # its link asks a where it stands, so a asks too
        await b.holds("e1")
        await a.caught_up("b")
    cursor = await a.cursor("b")
    assert (cursor.protocol, cursor.rewound_from) == ("v2", 1)


async def test_a_503_that_somebody_on_the_way_makes_up_holds_a_link_for_its_longest_wait_at_most(
    sites: MakeSites,
) -> None:
    clock = ManualClock()
    (a,) = sites("a", clock=clock)
    await a.start()
    await a.join()
    with FlakyPeer(free_port(), lambda _: FixedResponse(503, (("Retry-After", "3600"),))) as b:
        await a.apply(peer("b", b.port, retry={"baseBackoff": "1s", "maxBackoff": "20s"}))
        cursor = await a.in_state("b", "backing-off", "http_503")
    assert cursor.retry_at is not None
    assert cursor.attempted_at is not None
    assert cursor.retry_at - cursor.attempted_at == 20 * SECOND


async def test_a_413_that_somebody_on_the_way_makes_up_loses_nothing(sites: MakeSites) -> None:
    a, b = sites("a", "b")
    await a.start()
    await a.join()
    await b.start()
    await b.join()
    spoiling = True
    with FlakyPeer(free_port(), target=b.port) as between:
        between.behave = lambda heard: FixedResponse(413) if spoiling and b'"e2"' in heard.body else Forward()
        await a.emit("e1", "e2", "e3")
        await a.apply(peer("b", between.port))
        cursor = await a.in_state("b", "blocked", "unproven_too_large")
        assert "proxy" in cursor.last_error
        assert await b.ids() == ["e1"]
        spoiling = False
        await a.ask("links.pause", group="edge", peer="b")
        await a.ask("links.resume", group="edge", peer="b")
        await a.caught_up("b")
    assert await b.ids() == ["e1", "e2", "e3"]
    assert (await a.ask("dead_letters.list", group="edge"))["deadLetters"] == []


async def test_a_body_that_somebody_on_the_way_makes_longer_loses_nothing(sites: MakeSites) -> None:
    """The peer's 413 is real and signed, and about something that was never sent."""
    a, b = sites("a", "b")
    await a.start()
    await a.join()
    await b.start()
    await b.join(limits={"maxEventBytes": "64KiB", "maxBatchBytes": "64KiB"})

    class Fattening(FlakyPeer):
        def _forward(self, raw: bytes) -> bytes | None:
            head, _, body = raw.partition(b"\r\n\r\n")
            if b'"e1"' in body:
                length = f"Content-Length: {len(body)}".encode()
                assert length in head
                head, body = head.replace(length, b"Content-Length: 70000"), body.ljust(70_000)
            return super()._forward(head + b"\r\n\r\n" + body)

    with Fattening(free_port(), lambda _: Forward(), target=b.port) as between:
        await a.emit("e1")
        await a.apply(peer("b", between.port))
        await a.in_state("b", "blocked", "unproven_too_large")
        await a.apply(peer("b", b.port))
        await a.caught_up("b")
    assert await b.ids() == ["e1"]
    assert (await a.ask("dead_letters.list", group="edge"))["deadLetters"] == []
