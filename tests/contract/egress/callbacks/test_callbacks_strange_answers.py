"""Endpoints that speak HTTP oddly, over real sockets: what counts as an answer, and that none holds the callback."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from eventd.egress.callbacks.tester import CallbackTester
from eventd.resources.subscriber_configuration import SubscriberLimits
from eventd.runtime.chance import SYSTEM
from eventd.runtime.clock import SystemClock
from tests.support.called_back import LOOPBACK, CalledBack, callback

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\n"
HEX = f"{1 << 20:x}".encode()


@asynccontextmanager
async def talking(talk: Talk) -> AsyncIterator[str]:
    """Yield the URL of a server that does what `talk` does with each connection."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()
        for task in [*tasks]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def says(*parts: bytes, then: str = "hang") -> Talk:
    """Read a request, send the parts, and then `hang`, `close` or `reset`."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for part in parts:
            writer.write(part)
            await writer.drain()
        if then == "hang":
            await asyncio.sleep(60)
        if then == "reset":
            await asyncio.sleep(0.05)
            raw: socket.socket = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    return talk


def drips(first: bytes, again: bytes, seconds: float = 0.01) -> Talk:
    """Read a request, and send the same bytes again and again."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(first)
        while True:
            writer.write(again)
            await writer.drain()
            await asyncio.sleep(seconds)

    return talk


async def at_once(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer before a byte of the request is read."""
    writer.write(OK + b"Content-Length: 0\r\n\r\n")
    await asyncio.sleep(60)


DELIVERED: dict[str, Talk] = {
    "HTTP/1.0, to the end": says(b"HTTP/1.0 200 OK\r\n\r\nhello", then="close"),
    "100 first": says(b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 204 No Content\r\n\r\n"),
    "102 and 103 first": says(
        b"HTTP/1.1 102 P\r\n\r\n", b"HTTP/1.1 103 E\r\nLink: x\r\n\r\n", OK + b"Content-Length: 0\r\n\r\n"
    ),
    "a whole answer, then a reset": says(OK + b"Content-Length: 2\r\n\r\nok", then="reset"),
    "a megabyte": says(OK + b"Content-Length: 1048576\r\n\r\n", b"x" * (1 << 20)),
    "a megabyte in a chunk": says(OK + b"Transfer-Encoding: chunked\r\n\r\n" + HEX + b"\r\n", b"x" * (1 << 20)),
    "a megabyte to the end": says(OK + b"\r\n", b"x" * (1 << 20)),
    "before the request is read": at_once,
    "an unusual status": says(b"HTTP/1.1 299 X\r\nContent-Length: 2\r\n\r\nok"),
    "chunks without an end": drips(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"400\r\n" + b"x" * 1024 + b"\r\n", 0),
    "extensions without an end": drips(OK + b"Transfer-Encoding: chunked\r\n\r\n1;", b"x" * 1024, 0),
    "trailers without an end": drips(OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n" * 100, 0),
}
FAILED: dict[str, tuple[Talk, str]] = {
    "closes": (says(then="close"), "unreachable"),
    "resets": (says(then="reset"), "unreachable"),
    "two lengths": (says(OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nok"), "unreachable"),
    "only 100": (says(b"HTTP/1.1 100 Continue\r\n\r\n"), "timeout"),
    "1xx without an end": (drips(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), "unreachable"),
    "headers without an end": (drips(OK, b"X: y\r\n" * 100, 0), "unreachable"),
    "a header without an end": (drips(OK + b"X: ", b"y" * 1024, 0), "unreachable"),
    "another protocol": (says(b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"), "unreachable"),
    "not HTTP": (says(b"SSH-2.0-OpenSSH_9.6\r\n"), "unreachable"),
    "a head, byte by byte": (drips(OK + b"X: ", b"y"), "timeout"),
    "a body, byte by byte": (drips(OK + b"Content-Length: 9999\r\n\r\n", b"y"), "timeout"),
    "nothing": (says(), "timeout"),
}


@pytest.mark.parametrize("name", DELIVERED)
async def test_any_complete_2xx_is_a_success(called: CalledBack, name: str) -> None:
    async with talking(DELIVERED[name]) as url:
        await called.declare(callback(url, timeout=5.0))
        await called.emit("e1")
        cursor = await called.caught_up()
    assert (cursor.attempts, cursor.last_error) == (0, "")


@pytest.mark.parametrize("name", FAILED)
async def test_all_else_ends_in_time_and_is_tried_again(called: CalledBack, name: str) -> None:
    talk, reason = FAILED[name]
    async with talking(talk) as url:
        await called.declare(callback(url, timeout=0.5 if reason == "timeout" else 3600.0))
        await called.emit("e1")
        cursor = await called.failed(1)
    assert (cursor.state, cursor.reason) == ("backing-off", reason)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (b"soon", 1),
        (b"-5", 1),
        (b"\xff\xfe", 1),
        (b"\xd9\xa3", 1),  # a digit of another script
        (b"1e9", 1),
        (b"9" * 5000, 3600),
        (b"99999999999999999999", 3600),
        (b"Fri, 31 Dec 9999 23:59:59 GMT", 3600),
        (b"Mon, 01 Jan 0001 00:00:00 GMT", 1),
        (b"10", 10),
    ],
    ids=lambda value: repr(value)[:20],
)
async def test_a_strange_wish_for_a_pause_is_bounded(called: CalledBack, text: bytes, seconds: int) -> None:
    answer = b"HTTP/1.1 503 X\r\nRetry-After: " + text + b"\r\nX-One: \xe9\r\nContent-Length: 4\r\n\r\n\xff\x00\x1b["
    async with talking(says(answer)) as url:
        await called.declare(callback(url))
        await called.emit("e1")
        cursor = await called.failed(1)
    assert cursor.retry_at is not None
    assert round((cursor.retry_at - called.clock.now()) / 1e6) == seconds
    (attempt,) = await called.attempts()
    assert (attempt.status, attempt.answer) == (503, "\ufffd  [")


async def test_a_test_message_shows_an_answer_that_is_not_utf8(called: CalledBack) -> None:
    answer = OK + b"X-One: \xff\xfe\r\nContent-Length: 2\r\n\r\n\xff\xfe"
    async with talking(says(answer)) as url:
        tester = CallbackTester(called.transport, LOOPBACK, SystemClock(), SYSTEM, called.files, SubscriberLimits())
        result = await tester.test(callback(url))
    assert result.outcome.status == 200
    assert result.outcome.headers["x-one"] == "\ufffd\ufffd"


async def test_an_endpoint_that_takes_no_body_does_not_hold_the_callback(called: CalledBack) -> None:
    async def idle(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        _reader._transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(60)

    async with talking(idle) as url:
        await called.declare(callback(url, timeout=0.5))
        await called.emit("e1", payload={"large": "x" * 900_000})
        cursor = await called.failed(1)
    assert cursor.reason == "timeout"
