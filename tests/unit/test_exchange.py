"""An answer is read the same however it arrives, and a connection is used again only where nothing is left on it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from eventd.exchange import MAX_HEAD, Answer, AnswerTooLarge, Exchange, NoAnswer

OK = b"HTTP/1.1 200 OK\r\n"
WHOLE = OK + b"Content-Length: 5\r\nX-One: a\r\nX-One:  b c \r\n\r\nhello"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;why=not\r\nlo\r\n0\r\nTrailer: x\r\n\r\n"


class Wire(asyncio.Transport):
    """Keeps what is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.unsent = 0
        self.ended = False

    def writelines(self, parts: Iterable[Any]) -> None:
        self.sent += b"".join(parts)

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return self.ended

    def abort(self) -> None:
        self.ended = True


async def ask(*arriving: bytes, most: int = 100, ends: bool = False) -> tuple[Answer, Exchange, Wire]:
    wire, exchange = Wire(), Exchange()
    exchange.connection_made(wire)
    asking = exchange.ask(b"HEAD", b"BODY", most)
    asked = asyncio.get_running_loop().create_task(asking)
    await asyncio.sleep(0)
    for part in arriving:
        exchange.data_received(part)
    if ends:
        exchange.connection_lost(None)
    assert wire.sent == b"HEADBODY"
    return await asyncio.wait_for(asked, 5), exchange, wire


def pieces(text: bytes) -> Iterator[list[bytes]]:
    """The text as a whole, cut in two at every place, and byte by byte."""
    yield [text]
    yield from ([text[:at], text[at:]] for at in range(1, len(text)))
    yield [bytes([byte]) for byte in text]


@pytest.mark.parametrize("text", [WHOLE, CHUNKED, b"HTTP/1.1 102 Wait\r\nX: y\r\n\r\n" + WHOLE])
async def test_an_answer_may_arrive_in_any_pieces(text: bytes) -> None:
    for parts in pieces(text):
        answer, exchange, wire = await ask(*parts)
        assert (answer.status, answer.body) == (200, b"hello")
        assert exchange.is_free
        assert not wire.ended


async def test_names_of_headers_are_lower_and_the_last_value_counts() -> None:
    answer, _, _ = await ask(WHOLE)
    assert answer.headers == {"content-length": "5", "x-one": "b c"}


async def test_one_connection_takes_one_request_after_another() -> None:
    _, exchange, _ = await ask(CHUNKED)
    asked = asyncio.get_running_loop().create_task(exchange.ask(b"", b"", 100))
    await asyncio.sleep(0)
    exchange.data_received(b"HTTP/1.1 204 No\r\n\r\n")
    assert await asked == Answer(204, {}, b"")
    assert exchange.is_free


@pytest.mark.parametrize(
    "text",
    [
        WHOLE + b"H",
        WHOLE.replace(b"X-One: a", b"Connection: Close"),
        WHOLE.replace(b"HTTP/1.1", b"HTTP/1.0"),
    ],
    ids=["more than was asked for", "close", "an old server"],
)
async def test_a_connection_that_must_not_be_used_again_is_ended(text: bytes) -> None:
    answer, exchange, wire = await ask(text)
    assert answer.body == b"hello"
    assert not exchange.is_free
    assert wire.ended


async def test_an_answer_without_a_length_goes_to_the_end_of_the_connection() -> None:
    answer, exchange, _ = await ask(OK + b"\r\nhel", b"lo", ends=True)
    assert answer.body == b"hello"
    assert not exchange.is_free


@pytest.mark.parametrize(
    "text",
    [
        b"HTTQ",
        b"HTTP/1.1 20 OK\r\n\r\n",
        OK + b"no colon\r\n\r\n",
        OK + b" folded: x\r\n\r\n",
        OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        OK + b"Content-Length: -1\r\n\r\n",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
        OK + b"X: " + b"y" * MAX_HEAD,
        b"",
        WHOLE[:-1],
        CHUNKED[:-1],
    ],
)
async def test_what_is_no_answer_ends_the_connection(text: bytes) -> None:
    with pytest.raises(NoAnswer):
        await ask(text, ends=True)


@pytest.mark.parametrize("text", [WHOLE, CHUNKED, OK + b"\r\nhello"])
async def test_an_answer_is_read_no_further_than_was_asked_for(text: bytes) -> None:
    for parts in pieces(text):
        with pytest.raises(AnswerTooLarge):
            await ask(*parts, most=4)


async def test_whoever_gives_up_ends_the_connection() -> None:
    wire, exchange = Wire(), Exchange()
    exchange.connection_made(wire)
    asked = asyncio.get_running_loop().create_task(exchange.ask(b"", b"", 1))
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert wire.ended


async def test_what_nobody_has_asked_for_ends_the_connection() -> None:
    _, exchange, wire = await ask(WHOLE)
    exchange.data_received(b"HTTP/1.1 200 OK\r\n\r\n")
    assert wire.ended
    assert not exchange.is_free
