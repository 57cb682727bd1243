"""A connection that stays open, and one request over it at a time: as much of HTTP/1.1 (RFC 9112) as nodes need of it.

A client for everything takes four times as long for a request, most of it for what is never used here.
An answer is read strictly, and no further than was asked for.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, cast

MAX_HEAD: Final = 32 << 10
"""Bytes of an answer before its body."""
IDLE_SECONDS: Final = 15.0
"""How long a connection may have rested to be used again: what lies in between may have forgotten it."""
_END: Final = b"\r\n\r\n"
_BEGIN: Final = b"HTTP/1."
_STATUS: Final = re.compile(r"HTTP/1\.([01]) ([1-9][0-9]{2})(?: .*)?")
_FIELD: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*")
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?")
_LENGTH: Final = re.compile(r"[0-9]{1,15}")


class NoAnswer(Exception):
    """The connection ended before the answer did, or what came is no answer."""


class AnswerTooLarge(Exception):
    """The answer is larger than was asked for."""


class Answer(NamedTuple):
    """What came back. Header names in lower case; of several of one name it is the last."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Head(NamedTuple):
    """The beginning of an answer. `length`: of its body; None, where it is not `chunked`: up to the end of all."""

    status: int
    headers: dict[str, str]
    length: int | None
    chunked: bool
    stays: bool


class Exchange(asyncio.Protocol):
    """One connection. After an answer it may be used again as long as `is_free`."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: _Head | None = None
        self._at = 0
        self._parts: list[bytes] = []
        self._size = 0
        self._most = 0
        self._asked: asyncio.Future[Answer] | None = None
        self.is_free = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.is_free = True

    async def ask(self, head: bytes, body: bytes, most: int) -> Answer:
        """Send a request, and read an answer with a body of at most so many bytes.

        Raises `NoAnswer`, `AnswerTooLarge`. Whoever is cancelled here has ended the connection.
        """
        self.is_free = False
        self._most = most
        self._asked = asyncio.get_running_loop().create_future()
        self._transport.writelines([head, body])
        try:
            return await self._asked
        finally:
            self._asked = None
            if not self.is_free:
                self.close()

    def close(self) -> None:
        """End it at once."""
        self.is_free = False
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._asked is None or self._asked.done():  # nobody has asked for that
            self.close()
            return
        self._buffer += data
        try:
            self._read()
        except (NoAnswer, AnswerTooLarge) as error:
            self._asked.set_exception(error)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_free = False
        if self._asked is None or self._asked.done():
            return
        head = self._head
        if error is None and head is not None and head.length is None and not head.chunked:
            self._finish(bytes(self._buffer[self._at :]), len(self._buffer))
            self.is_free = False
        else:
            said = "the peer closed the connection without an answer"
            self._asked.set_exception(NoAnswer(said if error is None else f"{said}: {error}"))

    # --- reading ----------------------------------------------------------------------------------------------

    def _read(self) -> None:
        while self._head is None or self._head.status < 200:
            if not self._read_head():
                return
        if self._head.chunked:
            self._read_chunks()
            return
        have, length = len(self._buffer) - self._at, self._head.length
        if max(have if length is None else 0, length or 0) > self._most:
            raise AnswerTooLarge
        if length is not None and have >= length:
            self._finish(bytes(self._buffer[self._at : self._at + length]), self._at + length)

    def _read_head(self) -> bool:
        """Whether there was a whole one."""
        self._head = None
        if not self._buffer.startswith(_BEGIN[: len(self._buffer)]):
            raise NoAnswer("what the peer says is no HTTP/1.1")
        end = self._buffer.find(_END)
        if (end if end >= 0 else len(self._buffer)) > MAX_HEAD:
            raise NoAnswer(f"the head of the peer's answer is larger than {MAX_HEAD} bytes")
        if end < 0:
            return False
        self._head = _parse_head(bytes(self._buffer[:end]))
        if self._head.status < 200:
            del self._buffer[: end + len(_END)]
        else:
            self._at = end + len(_END)
        return True

    def _read_chunks(self) -> None:
        while (end := self._buffer.find(b"\r\n", self._at)) >= 0:
            size = _SIZE.fullmatch(self._buffer[self._at : end])
            if size is None:
                raise NoAnswer("a chunk of the peer's answer has no size")
            count = int(size[1], 16)
            start = end + 2
            self._size += count
            if self._size > self._most:
                raise AnswerTooLarge
            if not count:
                self._read_trailer(end)
                return
            if len(self._buffer) < start + count + 2:
                self._size -= count
                break
            if self._buffer[start + count : start + count + 2] != b"\r\n":
                raise NoAnswer("a chunk of the peer's answer is longer than it says")
            self._parts.append(bytes(self._buffer[start : start + count]))
            self._at = start + count + 2
        if len(self._buffer) - self._at > self._most + MAX_HEAD:
            raise AnswerTooLarge

    def _read_trailer(self, last: int) -> None:
        """What may come after the last chunk, whose line ends at `last`, says nothing to us."""
        end = self._buffer.find(_END, last)
        if end >= 0:
            self._finish(b"".join(self._parts), end + len(_END))
        elif len(self._buffer) - last > MAX_HEAD:
            raise NoAnswer(f"the trailer of the peer's answer is larger than {MAX_HEAD} bytes")

    def _finish(self, body: bytes, end: int) -> None:
        head, asked, way = self._head, self._asked, self._transport
        assert head is not None
        assert asked is not None
        is_whole = len(self._buffer) == end and not way.get_write_buffer_size()
        self.is_free = is_whole and head.stays and not way.is_closing()
        self._buffer, self._head, self._at, self._parts, self._size = bytearray(), None, 0, [], 0
        asked.set_result(Answer(head.status, head.headers, body))


class Pool:
    """Connections to one place, which stay open to be used again. `monotonic` gives seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._resting: list[tuple[float, Exchange]] = []
        self._at_work: set[Exchange] = set()

    async def ask(self, connect: Callable[[], Awaitable[Exchange]], head: bytes, body: bytes, most: int) -> Answer:
        """As `Exchange.ask`, over a connection that is there already or else is made with `connect`."""
        exchange = self._rested() or await connect()
        self._at_work.add(exchange)
        try:
            return await exchange.ask(head, body, most)
        finally:
            self._at_work.discard(exchange)
            if exchange.is_free:
                self._rest(exchange)

    def _rest(self, exchange: Exchange) -> None:
        now = self._monotonic()
        while self._resting and now - self._resting[0][0] >= IDLE_SECONDS:
            self._resting.pop(0)[1].close()
        self._resting.append((now, exchange))

    def _rested(self) -> Exchange | None:
        """A connection that is there already: the one that was used last."""
        while self._resting:
            since, exchange = self._resting.pop()
            if exchange.is_free and self._monotonic() - since < IDLE_SECONDS:
                return exchange
            exchange.close()
        return None

    def close(self) -> None:
        """End every connection."""
        for exchange in [*self._at_work, *(exchange for _, exchange in self._resting)]:
            exchange.close()
        self._resting.clear()


def _parse_head(raw: bytes) -> _Head:
    first, *lines = raw.decode("utf-8", "surrogateescape").split("\r\n")
    status = _STATUS.fullmatch(first)
    fields = [*map(_FIELD.fullmatch, lines)]
    if status is None or not all(fields):
        raise NoAnswer("the head of the peer's answer is not as HTTP/1.1 has it")
    pairs = [(field[1].lower(), field[2]) for field in fields if field is not None]
    headers, code = dict(pairs), int(status[2])
    lengths = {value for name, value in pairs if name == "content-length"}
    coding = headers.get("transfer-encoding")
    if len(lengths) > 1 or not all(map(_LENGTH.fullmatch, lengths)) or coding not in (None, "chunked"):
        raise NoAnswer("the peer's answer does not say how long it is")
    if code < 200 or code in (204, 304):
        length: int | None = 0
    else:
        length = int(lengths.pop()) if lengths and coding is None else None
    stays = status[1] == "1" and "close" not in headers.get("connection", "").lower()
    return _Head(code, headers, length, coding is not None, stays)
