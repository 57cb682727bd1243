"""An answer is read the same however it arrives, and a connection is reused only if no bytes are left on it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from eventd.net.exchange import (
    IDLE_SECONDS,
    MAX_HEAD,
    MAX_INTERIM,
    STEP,
    Answer,
    AnswerTooLarge,
    Exchange,
    NoAnswer,
    Pool,
)
from eventd.testing import ManualClock

OK = b"HTTP/1.1 200 OK\r\n"
WHOLE = OK + b"Content-Length: 5\r\nX-One: a\r\nX-One:  b c \r\n\r\nhello"
CHUNKS = OK + b"Transfer-Encoding: chunked\r\n\r\n"
WAIT = b"HTTP/1.1 100 Continue\r\n\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;why=not\r\nlo\r\n0\r\nTrailer: x\r\n\r\n"


class Wire(asyncio.Transport):
    """Keeps what is sent."""

    def __init__(self, place: object = None) -> None:
        super().__init__({"peername": place})
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


async def ask(
    *arriving: bytes, most: int = 100, ends: bool = False, cut: bool = False, place: object = None
) -> tuple[Answer, Exchange, Wire]:
    wire, exchange = Wire(place), Exchange()
    exchange.connection_made(wire)
    asking = exchange.ask(b"HEAD", b"BODY", most, cut=cut)
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


@pytest.mark.parametrize(
    "text",
    [WHOLE, CHUNKED, CHUNKED.replace(b": chunked", b": Chunked"), b"HTTP/1.1 102 Wait\r\nX: y\r\n\r\n" + WHOLE],
)
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
        OK + b"A: b\r\n folded\r\n\r\n",
        OK.replace(b"\r", b""),
        OK + b"X: a\x01b\r\n\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: gzip\r\n\r\nx",
        OK + b"Content-Length: 99999999999999999999999\r\n\r\n",
        OK + b"X: " + b"y" * MAX_HEAD,
        OK + b"X: " + b" " * MAX_HEAD,
        OK + b"X: y\r\n" * (MAX_HEAD // 6),
        WAIT * (MAX_INTERIM + 1) + WHOLE,
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


async def test_eight_interim_answers_are_read_and_forgotten() -> None:
    answer, exchange, _ = await ask(b"HTTP/1.1 103 Hints\r\nX-One: early\r\n\r\n" + WAIT * (MAX_INTERIM - 1) + WHOLE)
    assert answer.headers == {"content-length": "5", "x-one": "b c"}
    assert exchange.is_free


async def test_a_value_of_blanks_takes_time_in_proportion() -> None:
    answer, _, _ = await ask(OK + b"Content-Length: 0\r\nX: a" + b" " * (MAX_HEAD - 100) + b"b\r\n\r\n")
    assert len(answer.headers["x"]) == MAX_HEAD - 98


async def test_a_trailer_is_no_header() -> None:
    answer, exchange, _ = await ask(CHUNKED.replace(b"Trailer: x", b"Content-Digest: x"))
    assert answer.headers == {"transfer-encoding": "chunked"}
    assert exchange.is_free


@pytest.mark.parametrize(
    "again",
    [b"1;" + b"x" * 30_000 + b"\r\ny\r\n", b"1\r\ny\r\n", b"1;x\r\ny\r\n"],
    ids=["long extensions", "single bytes", "short extensions"],
)
async def test_what_stands_around_chunks_is_bounded_whatever_the_body_may_have(again: bytes) -> None:
    wire, exchange = Wire(), Exchange()
    exchange.connection_made(wire)
    asked = asyncio.get_running_loop().create_task(exchange.ask(b"", b"", 1 << 30))
    await asyncio.sleep(0)
    exchange.data_received(CHUNKS)
    sent = 0
    piece = again * (STEP // len(again) + 1)
    while not asked.done():
        assert sent < 4 * MAX_HEAD
        exchange.data_received(piece)
        sent += len(piece)
        await asyncio.sleep(0)
    with pytest.raises(AnswerTooLarge):
        await asked
    assert wire.ended


async def test_a_large_body_in_usual_chunks_is_read() -> None:
    chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    body = CHUNKS + chunk * 1024 + b"0\r\n\r\n"
    answer, exchange, _ = await ask(*[body[at : at + 100_000] for at in range(0, len(body), 100_000)], most=4 << 20)
    assert len(answer.body) == 4 << 20
    assert exchange.is_free


@pytest.mark.parametrize("more", [b"H", b"\x00", WHOLE, b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"])
async def test_what_comes_behind_an_answer_is_not_taken_for_the_next_one(more: bytes) -> None:
    for text in (WHOLE, CHUNKED, b"HTTP/1.1 204 No\r\n\r\n"):
        answer, exchange, wire = await ask(text + more)
        assert answer.status in (200, 204)
        assert not exchange.is_free
        assert wire.ended


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


# --- cut answers, addresses, pools ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        *(WHOLE, CHUNKED, OK + b"\r\nhello", WHOLE.replace(b": 5", b": 99999999999")),
        OK.replace(b"200", b"500") + b"\r\nhello",
    ],
    ids=["length", "chunks", "to the end", "a huge length", "refusal"],
)
@pytest.mark.parametrize("most", [0, 1, 4])
async def test_an_answer_that_may_be_cut_counts_and_ends_the_connection(text: bytes, most: int) -> None:
    for parts in pieces(text):
        answer, exchange, wire = await ask(*parts, most=most, cut=True)
        assert (answer.status, answer.body) == (int(text[9:12]), b"hello"[:most])
        assert not exchange.is_free
        assert wire.ended


@pytest.mark.parametrize("text", [WHOLE, CHUNKED, b"HTTP/1.1 204 No\r\n\r\n"])
async def test_an_answer_that_need_not_be_cut_is_as_any_other(text: bytes) -> None:
    answer, exchange, wire = await ask(text, most=5, cut=True)
    assert answer.body in (b"hello", b"")
    assert exchange.is_free
    assert not wire.ended


async def test_chunks_of_single_bytes_are_cut_before_their_frames_take_much() -> None:
    wire, exchange = Wire(), Exchange()
    exchange.connection_made(wire)
    asked = asyncio.get_running_loop().create_task(exchange.ask(b"", b"", 1 << 30, cut=True))
    await asyncio.sleep(0)
    exchange.data_received(CHUNKS)
    for _ in range(100):
        exchange.data_received(b"1\r\ny\r\n" * 100)
    answer = await asked
    assert answer.status == 200
    assert 0 < len(answer.body) < MAX_HEAD
    assert wire.ended


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (b"", b"1000;" + b"x" * 1024 + b"\r\n" + b"y" * 4096 + b"\r\n"),
        (b"", b"40;" + b"x" * 30 + b"\r\n" + b"y" * 64 + b"\r\n"),
        (b"0\r\n", b"X: y\r\n"),
    ],
    ids=["extensions", "short extensions", "trailers"],
)
async def test_what_stands_around_chunks_counts_like_the_body_where_an_answer_may_be_cut(
    first: bytes, piece: bytes
) -> None:
    most = 64 << 10
    wire, exchange = Wire(), Exchange()
    exchange.connection_made(wire)
    asked = asyncio.get_running_loop().create_task(exchange.ask(b"", b"", most, cut=True))
    await asyncio.sleep(0)
    exchange.data_received(CHUNKS + first)
    sent, at = 0, 0
    while not asked.done():
        assert sent <= most + 4096
        exchange.data_received(bytes(piece[(at + byte) % len(piece)] for byte in range(1024)))
        sent, at = sent + 1024, at + 1024
        await asyncio.sleep(0)
    assert (await asked).status == 200
    assert wire.ended


async def test_a_header_that_is_not_utf8_is_text_all_the_same() -> None:
    answer, exchange, _ = await ask(OK + b"Content-Length: 0\r\nRetry-After: \xff\xfe\r\nX: a\xe9b\r\n\r\n")
    assert answer.headers == {"content-length": "0", "retry-after": "\ufffd\ufffd", "x": "a\ufffdb"}
    json.dumps(answer.headers, ensure_ascii=False).encode()
    assert exchange.is_free


@pytest.mark.parametrize(
    "text", [b"", OK, WHOLE[:-1], OK + b"X: " + b"y" * MAX_HEAD, b"HTTP/2.0 200 OK\r\n\r\n", CHUNKED[:-1]]
)
async def test_what_is_no_answer_is_none_if_it_may_be_cut(text: bytes) -> None:
    with pytest.raises(NoAnswer):
        await ask(text, ends=True, cut=True)


async def test_an_answer_has_the_address_of_the_other_end() -> None:
    answer, exchange, _ = await ask(WHOLE, place=("FD00::0:1", 443, 0, 0))
    assert answer.address == exchange.address == "fd00::1"
    assert (await ask(WHOLE, place=""))[0].address == ""


def idle(address: str) -> Exchange:
    exchange = Exchange()
    exchange.connection_made(Wire((address, 443)))
    return exchange


async def used(pool: Pool, exchange: Exchange) -> None:
    asked = asyncio.get_running_loop().create_task(pool.ask(exchange, b"", b"", 100))
    await asyncio.sleep(0)
    exchange.data_received(WHOLE)
    await asked


async def test_a_pool_gives_the_connection_used_last_and_only_to_the_addresses_asked_for() -> None:
    clock = ManualClock()
    pool, one, two, other = Pool(clock.monotonic), idle("10.0.0.1"), idle("10.0.0.1"), idle("10.0.0.2")
    for exchange in (one, two, other):
        await used(pool, exchange)
    assert pool.take(["10.0.0.9"]) is None
    assert pool.take(["10.0.0.1", "10.0.0.9"]) is two
    assert pool.take() is other
    clock.advance(IDLE_SECONDS)
    assert not pool.is_empty
    assert pool.take(["10.0.0.1"]) is None
    assert not one.is_free
    assert pool.is_empty


async def test_a_pool_closes_what_is_idle_for_too_long_also_unasked() -> None:
    clock = ManualClock()
    pool, one, two = Pool(clock.monotonic), idle("10.0.0.1"), idle("10.0.0.1")
    await used(pool, one)
    clock.advance(IDLE_SECONDS - 1)
    await used(pool, two)
    clock.advance(1)
    pool.close_idle()
    assert (one.is_free, two.is_free) == (False, True)
    pool.close()
    assert pool.is_empty
