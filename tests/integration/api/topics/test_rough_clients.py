"""Clients that disconnect, are slow, send wrong lengths or another protocol: they affect no other client."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from eventd.api.bodies import bodies
from eventd.testing import until
from tests.support.v0 import Server


async def talk(server: Server, *pieces: bytes) -> bytes:
    """The first line of what comes back, without the version, and what follows at once."""
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        async with asyncio.timeout(10):
            return (await reader.read(1 << 16)).removeprefix(b"HTTP/1.0 ").removeprefix(b"HTTP/1.1 ")
    finally:
        writer.close()


def head(path: str, *fields: str, method: str = "POST") -> bytes:
    lines = [f"{method} /v0{path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", *fields]
    return "\r\n".join([*lines, "", ""]).encode()


JSON = "Content-Type: application/json"
RECORDS = b'{"records":[{"data":1}]}'


ROUGH: list[tuple[list[bytes], bytes]] = [
    ([head("/topics/jobs", JSON, "Content-Length: 24"), RECORDS], b"201"),
    ([head("/topics/jobs", JSON, "Content-Length: 24", "Expect: 100-continue"), RECORDS], b"100"),
    ([head("/topics/jobs", JSON, "Transfer-Encoding: chunked"), b"18\r\n" + RECORDS + b"\r\n0\r\n\r\n"], b"201"),
    ([head("/topics/jobs", JSON, "Transfer-Encoding: chunked"), b"zz\r\n"], b"400"),
    ([head("/topics/jobs", JSON, "Content-Length: 24", "Transfer-Encoding: chunked"), RECORDS], b"400"),
    ([head("/topics/jobs", JSON, "Content-Length: -1"), RECORDS], b"400"),
    ([head("/topics/jobs", JSON, "Content-Length: 99999999999999999999999")], b"400"),
    ([head("/topics/jobs", JSON, "Content-Length: 999999999999999999")], b"413"),
    ([head("/topics/jobs", JSON, "Content-Length: 10"), RECORDS], b"400"),
    ([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], b"400"),
    ([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"], b"400"),
    ([b"GET /v0/topics HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"y" * 70_000 + b"\r\n\r\n"], b"400"),
    ([head("/topics/%ff%fe", method="GET")], b"404"),
    ([head("/topics/%2e%2e", method="GET")], b"404"),
    ([head("/topics/a%2Fdiff", method="GET")], b"404"),
]


async def test_a_rough_request_gets_its_status(server: Server) -> None:
    for pieces, status in ROUGH:
        assert (await talk(server, *pieces)).startswith(status), (pieces, status)
        assert (await server.write("other", 1)).status == 201, (pieces, status)
        await server.delete("jobs")
        await server.delete("other")


GET = b"GET /v0/topics HTTP/1.1\r\n"
HOST = b"Host: 127.0.0.1\r\n"


REFUSED: list[tuple[bytes, str]] = [
    (GET + HOST + b"Last-Event-ID: " + b"geheim" * 2000 + b"\r\n\r\n", "a header is longer than 8190 bytes"),
    (b"GET /" + b"geheim" * 2000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", "the request line or a header is longer"),
    (GET + HOST + b"A: b\r\n" * 200 + b"\r\n", "Too many headers received"),
    (GET + HOST + b"Authorization: geheim\x01\r\n\r\n", "Invalid header value char"),
    (GET + HOST + b"Author ization: geheim\r\n\r\n", "Invalid header token"),
    (GET + HOST + HOST + b"\r\n", "Duplicate 'Host' header"),
    (b"GEHEIM@ / HTTP/1.1\r\n" + HOST + b"\r\n", "Invalid method"),
    (b"GET / HTTP/9.9\r\n" + HOST + b"\r\n", "Bad status line"),
    (b"GET http://geheim@[::1 HTTP/1.1\r\n" + HOST + b"\r\n", "not a valid URL"),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "Received HTTPS traffic on an HTTP port"),
    (GET + HOST + b"Expect: geheim\r\n\r\n", "Expectation Failed"),
]


async def test_what_the_http_library_refuses_has_the_form_of_an_error(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    for request_, why in REFUSED:
        caplog.clear()
        with caplog.at_level(logging.INFO):
            answer = await talk(server, request_)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"400 Bad Request\r\n"), why
        assert b"Content-Type: application/json" in head, why
        told = json.loads(body)
        assert told.keys() == {"error"}, why
        assert told["error"].keys() == {"code", "message"}, why
        assert told["error"]["code"] == "invalid_request", why
        assert why in told["error"]["message"], why
        assert "geheim" not in (body.decode() + caplog.text).lower(), why
        assert "Traceback" not in caplog.text, why


async def test_no_header_is_a_fault_of_the_node(server: Server) -> None:
    for field in [b"Idempotency-Key", b"Accept", b"Authorization", b"Origin", b"X", b"Content-Type"]:
        for value in [b"\xff\xfe", "ü".encode(), b"a\tb", b"\x7f", b"x" * 5000]:
            begun = head("/topics/jobs", JSON, "Content-Length: 24").removesuffix(b"\r\n")
            told = await talk(server, begun + field + b": " + value + b"\r\n\r\n" + RECORDS)
            assert told[:3] in (b"201", b"400", b"403", b"415"), told
            await server.delete("jobs")


async def test_a_client_that_breaks_off_writes_nothing_and_is_no_fault(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for cut in (0, 1, 12, 23):
            begun = head("/topics/jobs", JSON, "Content-Length: 24") + RECORDS[:cut]
            host, port = server.url.removeprefix("http://").split(":")
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(begun)
            await writer.drain()
            await until(lambda: server.v0.serving.concurrency.requests.taken == 1, "the request to be under way")
            writer.transport.abort()
            await until(lambda: server.v0.serving.concurrency.requests.taken == 0, "its place to be free again")
    assert (await server.get("jobs")).status == 404
    assert not caplog.records, caplog.text


async def test_a_body_that_does_not_come_is_not_waited_for(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.1)
    told = await talk(server, head("/topics/jobs", JSON, "Content-Length: 24"), RECORDS[:5])
    assert told.startswith(b"408 ")
    assert b'"code":"slow_body"' in told
    assert server.v0.serving.concurrency.requests.taken == 0


async def test_requests_in_a_row_are_answered_in_their_order(server: Server) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    one = head("/topics/jobs", JSON, "Content-Length: 24").replace(b"Connection: close\r\n", b"") + RECORDS
    writer.write(one * 20)
    heard = b""
    async with asyncio.timeout(10):
        while heard.count(b'"first_seq":') < 20:
            heard += await reader.read(1 << 16)
    writer.close()
    firsts = [part.split(b",")[0] for part in heard.split(b'"first_seq":')[1:]]
    assert firsts == [str(n).encode() for n in range(1, 21)]


async def test_a_reader_that_goes_away_while_it_waits_is_forgotten(server: Server) -> None:
    await server.put("jobs")
    waiting = asyncio.ensure_future(server.diff("jobs", wait_ms=500))
    await until(lambda: server.log.wakeups._by_topic, "the reader to wait")
    waiting.cancel()
    await until(lambda: not server.log.wakeups._by_topic, "it to be forgotten")
    assert server.v0.serving.concurrency.requests.taken == 0
