"""A persistent HTTP connection with one request at a time: the subset of HTTP/1.1 (RFC 9112) that nodes need.

A general client takes four times as long for a request, mostly for features that are unused here. Answers are parsed
strictly by llhttp. The memory for an answer is limited: the body by the request, all else to `MAX_HEAD` and 1/64 of
the body.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from eventd.net.name_cache import address_of

MAX_HEAD: Final = 32 << 10
"""Maximum bytes of an answer besides its body: interim answers, head, chunk framing and trailer."""
CHUNK_BYTES: Final = 64
"""Bytes of a body for which one byte is allowed in addition to `MAX_HEAD`, for chunk framing."""
MAX_INTERIM: Final = 8
"""Maximum number of interim answers (1xx) before the answer."""
LINE_BYTES: Final = 1 << 10
"""Bytes that the limit of a cut answer adds for the uncounted parts of its head: the first line and blanks."""
STEP: Final = 16 << 10
"""Bytes that are parsed at a time; the limits are checked in between."""
IDLE_SECONDS: Final = 15.0
"""Seconds after which an idle connection is not used again: a middlebox may have dropped it."""


class NoAnswer(Exception):
    """The connection ended without a complete answer, or the answer is not usable HTTP/1.1 or its head is too large."""


class AnswerTooLarge(Exception):
    """The head of the answer is complete, but the body, or everything else, is larger than allowed."""


class Answer(NamedTuple):
    """An answer.

    Header names are in lower case; of repeated headers the last value is kept, and what is not UTF-8 in it is
    replaced. `address` is that of the other end, empty over a Unix socket.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    address: str = ""


class AnswerReader:
    """Parses one answer with a body of at most `most` bytes. The parser calls the methods `on_…`.

    `cut`: a larger answer is complete after `most` bytes of its body, or of all that follows the head; the rest is
    dropped with the connection.
    """

    def __init__(self, most: int, address: str, *, cut: bool) -> None:
        self._parser = HttpResponseParser(self)
        self._most = most
        self._address = address
        self._cut = cut
        self._received = 0
        self._named = 0  # bytes of the headers
        self._interim = 0
        self._trouble: Exception | None = None
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []
        self._size = 0
        self._has_head = False
        self._goes_to_the_end = False
        self.answer: Answer | None = None
        self.stays = False
        """Whether the connection may be used again after the answer."""

    def feed(self, data: bytes) -> None:
        """Parse more data, and set `answer` once it is complete. Raises `NoAnswer`, `AnswerTooLarge`."""
        for at in range(0, len(data), STEP):
            self._received += min(len(data) - at, STEP)
            try:
                self._parser.feed_data(data[at : at + STEP])
            except HttpParserUpgrade:
                self._trouble = NoAnswer("the other end requests another protocol")
            except HttpParserError as error:
                self._trouble = self._trouble or NoAnswer(f"the answer is not valid HTTP/1.1: {error}")
            if self.answer is not None:
                self.stays = self.stays and self._trouble is None and at + STEP >= len(data)
                return
            if self._exceeds():
                return

    def end(self) -> Answer | None:
        """Note that the connection has ended; return the answer, or None if it is incomplete."""
        if self.answer is None and self._goes_to_the_end:
            self._finish(stays=False)
        return self.answer

    def _exceeds(self) -> bool:
        """Return whether the answer is complete because its rest is cut off. Raises what is wrong with it."""
        if self._trouble is not None:
            raise self._trouble
        if self._received - self._size > MAX_HEAD + self._size // CHUNK_BYTES:
            if not self._has_head:
                raise NoAnswer(f"the head of the answer is larger than {MAX_HEAD} bytes")
            self._exceed()
            if self._trouble is not None:
                raise self._trouble
            return True
        if self._cut and self._has_head and self._received > self._most + self._named + LINE_BYTES:
            self._finish(stays=False)
            return True
        return False

    def _exceed(self) -> None:
        if self._cut:
            self._finish(stays=False)
        else:
            self._trouble = AnswerTooLarge()

    def on_message_begin(self) -> None:
        if self.answer is not None:
            self.stays = False  # more than requested

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._has_head:  # trailers are not used
            return
        self._named += len(name) + len(value) + len(": \r\n")
        self._headers[name.lower().decode("ascii")] = value.decode("utf-8", "replace").rstrip(" \t")

    def on_headers_complete(self) -> None:
        if self.answer is not None:
            return
        status, coding = self._parser.get_status_code(), self._headers.get("transfer-encoding")
        has_body = status >= 200 and status not in (204, 304)
        length = self._headers.get("content-length") if coding is None else None
        if self._parser.get_http_version() not in ("1.0", "1.1"):
            self._trouble = NoAnswer("the answer is not HTTP/1.1")
        elif coding is not None and coding.lower() != "chunked":
            self._trouble = NoAnswer(f"the answer has the transfer coding {coding[:40]!r}, not chunked")
        elif has_body and length is not None and int(length) > self._most and not self._cut:
            self._trouble = AnswerTooLarge()
        self._goes_to_the_end = has_body and length is None and coding is None
        self._has_head = status >= 200

    def on_body(self, data: bytes) -> None:
        if self.answer is not None or self._trouble is not None:
            return
        self._size += len(data)
        if self._size <= self._most:
            self._parts.append(data)
            return
        if self._cut:
            self._parts.append(data[: self._most - self._size])
        self._exceed()

    def on_message_complete(self) -> None:
        if self.answer is not None or self._trouble is not None:
            return
        if self._has_head:
            self._finish(stays=self._parser.should_keep_alive() and self._parser.get_http_version() == "1.1")
            return
        self._headers = {}
        self._interim += 1
        if self._interim > MAX_INTERIM:
            self._trouble = NoAnswer(f"the other end sent more than {MAX_INTERIM} interim answers")

    def _finish(self, *, stays: bool) -> None:
        self.stays = stays
        self.answer = Answer(self._parser.get_status_code(), self._headers, b"".join(self._parts), self._address)


class Exchange(asyncio.Protocol):
    """One HTTP connection, which can take the next request while `is_free`.

    `address` is that of the other end, as `address_of` returns it; empty over a Unix socket.
    """

    def __init__(self) -> None:
        self._reading: AnswerReader | None = None
        self._asked: asyncio.Future[Answer] | None = None
        self._lost: Exception | None = None
        self.is_free = False
        self.address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        place = transport.get_extra_info("peername")
        self.address = address_of(place) if isinstance(place, tuple) else ""
        self.is_free = True

    async def ask(self, head: bytes, body: bytes, most: int, *, cut: bool = False) -> Answer:
        """Send a request; return its answer, with a body of at most `most` bytes. Raises `NoAnswer`, `AnswerTooLarge`.

        `cut`: the rest of a larger answer is dropped, instead of `AnswerTooLarge`. An error, a cancellation, a cut, or
        an answer that forbids reuse ends the connection.
        """
        if self._lost is not None:  # it ended before the first request, perhaps with an alert
            raise self._lost
        self.is_free = False
        self._reading = AnswerReader(most, self.address, cut=cut)
        self._asked = asyncio.get_running_loop().create_future()
        self._transport.writelines([head, body])
        try:
            return await self._asked
        finally:
            self._asked = self._reading = None
            if not self.is_free:
                self.close()

    def close(self) -> None:
        """Close the connection immediately."""
        self.is_free = False
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._reading is None or self._asked is None or self._asked.done():  # data without a request
            self.close()
            return
        try:
            self._reading.feed(data)
        except (NoAnswer, AnswerTooLarge) as error:
            self._asked.set_exception(error)
            return
        if self._reading.answer is not None:
            way = self._transport
            self.is_free = self._reading.stays and not way.get_write_buffer_size() and not way.is_closing()
            self._asked.set_result(self._reading.answer)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_free = False
        message = "the other end closed the connection without an answer"
        self._lost = NoAnswer(message if error is None else f"{message}: {error}")
        if isinstance(error, ssl.SSLError):  # an alert: it says why the other end refuses the connection
            self._lost = error
        if self._reading is None or self._asked is None or self._asked.done():
            return
        answer = self._reading.end() if error is None else None
        if answer is not None:
            self._asked.set_result(answer)
        else:
            self._asked.set_exception(self._lost)


class Pool:
    """Persistent connections to one origin, perhaps at several addresses. `monotonic` returns seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._idle: list[tuple[float, Exchange]] = []  # the one used last is the last
        self._at_work: dict[Exchange, None] = {}

    @property
    def is_empty(self) -> bool:
        """Return whether the pool holds no connection."""
        return not self._idle and not self._at_work

    def take(self, addresses: Collection[str] | None = None) -> Exchange | None:
        """Take and return the idle connection used last, of those to these `addresses` if they are given, or None.

        Closes connections that it finds ended, or idle for too long.
        """
        for at in range(len(self._idle) - 1, -1, -1):
            since, exchange = self._idle[at]
            is_usable = exchange.is_free and self._monotonic() - since < IDLE_SECONDS
            if is_usable and addresses is not None and exchange.address not in addresses:
                continue
            del self._idle[at]
            if is_usable:
                return exchange
            exchange.close()
        return None

    async def ask(self, exchange: Exchange, head: bytes, body: bytes, most: int, *, cut: bool = False) -> Answer:
        """Like `Exchange.ask`, over a connection from `take` or a new one; then keep it, if it can be used again."""
        self._at_work[exchange] = None
        try:
            return await exchange.ask(head, body, most, cut=cut)
        finally:
            self._at_work.pop(exchange, None)
            if exchange.is_free:
                self.close_idle()
                self._idle.append((self._monotonic(), exchange))

    def close_idle(self) -> None:
        """Close connections that have been idle for too long."""
        now = self._monotonic()
        while self._idle and now - self._idle[0][0] >= IDLE_SECONDS:
            self._idle.pop(0)[1].close()

    def close(self) -> None:
        """Close every connection immediately, also those with a request under way."""
        for exchange in [*self._at_work, *(exchange for _, exchange in self._idle)]:
            exchange.close()
        self._idle.clear()
