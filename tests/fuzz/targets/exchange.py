"""Answers of other ends over HTTP: any split of their bytes gives the same answer, within bounded memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

from eventd.egress.transport.retry_after import retry_after
from eventd.egress.transport.url import read_url
from eventd.errors import Invalid
from eventd.net.address import Address
from eventd.net.exchange import MAX_HEAD, STEP, Answer, AnswerTooLarge, Exchange, NoAnswer
from tests.fuzz.target import FuzzTarget, pieces

MOST = 512
NOW = 1780142400 * 1_000_000


class FakeTransport:
    """The methods of a transport that an exchange uses."""

    def __init__(self) -> None:
        self.is_aborted = False

    def get_extra_info(self, _: str) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_aborted

    def writelines(self, _: Any) -> None:
        pass

    def abort(self) -> None:
        self.is_aborted = True


Outcome = tuple[Answer | str, bool]


async def ask(parts: Iterable[bytes], *, cut: bool, ends: bool) -> Outcome:
    """Return the answer, or the name of the error, and whether the connection stays free."""
    exchange, transport = Exchange(), FakeTransport()
    exchange.connection_made(cast(asyncio.Transport, transport))
    asked = asyncio.ensure_future(exchange.ask(b"GET / HTTP/1.1\r\n\r\n", b"", MOST, cut=cut))
    await asyncio.sleep(0)
    for part in parts:
        if not transport.is_aborted:
            exchange.data_received(part)
    if ends and not asked.done():
        exchange.connection_lost(None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if not asked.done():
        asked.cancel()
        await asyncio.wait([asked])
        return "waits", False
    try:
        found: Answer | str = asked.result()
    except (NoAnswer, AnswerTooLarge) as error:
        found = type(error).__name__
    assert exchange.is_free != transport.is_aborted or ends, "a connection is free or closed"
    if isinstance(found, Answer):
        assert len(found.body) <= MOST
        assert sum(map(len, found.headers)) + sum(map(len, found.headers.values())) <= 3 * (MAX_HEAD + STEP)
    return found, exchange.is_free


_LOOP = asyncio.new_event_loop()


def check_exchange(data: bytes) -> None:
    cut, ends = bool(data[:1] and data[0] & 1), bool(data[:1] and data[0] & 2)
    whole, _ = _LOOP.run_until_complete(ask([data[8:]] if data[8:] else [], cut=cut, ends=ends))
    split, _ = _LOOP.run_until_complete(ask(pieces(data), cut=cut, ends=ends))
    # What follows the answer in the same piece may still make it unusable for another request, but not another answer.
    assert split == whole, (split, whole)


def check_retry_after(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    seconds = retry_after(Answer(503, {"retry-after": text}, b""), NOW)
    assert seconds is None or 0 <= seconds < 10**12


def check_url(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    try:
        origin, head = read_url(text)
    except ValueError:
        return
    assert origin.host
    assert 0 < origin.port < 65536
    # One line, of a target and a host: nothing of a URL begins a header of its own.
    target, end = head.split(" HTTP/1.1\r\nHost: ")
    assert end.endswith("\r\n")
    assert target.startswith(" /") or target.startswith(" ")
    for line in (target, end.removesuffix("\r\n")):
        assert "\r" not in line
        assert "\n" not in line
    assert " " not in target[1:]
    assert target.isascii()
    read_url.cache_clear()


def check_address(data: bytes) -> None:
    try:
        address = Address.parse(data.decode("utf-8", "surrogateescape"))
    except Invalid:
        return
    assert "@" not in str(address).partition("/")[2].partition("/")[2].partition("/")[0]
    assert Address.parse(str(address)) == address


def exchange_seeds() -> Iterable[bytes]:
    for answer in (
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nA: b\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 600\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 600\r\n\r\n" + b"x" * 600,
    ):
        for flags in range(4):
            yield bytes([flags, 3, 40, 7, 1, 90, 2, 20]) + answer


def url_seeds() -> Iterable[bytes]:
    yield from (b"https://a.example/v2/events?x=1#y", b"http://u:p@[::1]:8080/a%20b/\xc3\xa9", b"http://h:0/", b"//h/")


def retry_seeds() -> Iterable[bytes]:
    yield from (b"120", b"Sat, 30 May 2026 12:00:00 GMT", b"Sat, 30 May 2026 12:00:00 -0000", b"30 May 26 1:2 +9999")


_WORDS = ("HTTP/1.1 ", "\r\n", "Content-Length: ", "Transfer-Encoding: chunked", "Connection: close", "0\r\n\r\n")
TARGETS = (
    FuzzTarget("exchange", check_exchange, exchange_seeds, _WORDS),
    FuzzTarget("retry-after", check_retry_after, retry_seeds, ("Sat, ", " May ", " GMT", "+0000", " PST")),
    FuzzTarget("urls", check_url, url_seeds, ("https://", "http://", "@", "[", "]", ":", "?", "#", "%")),
    FuzzTarget("addresses", check_address, url_seeds, ("https://", "http://", "@", "[", "]", ":", "?", "#", "%")),
)
