"""A proxy in the place of a node: it answers requests itself, without passing them on."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Final, cast

_LENGTH: Final = re.compile(rb"\r\nContent-Length: *(\d+)\r\n", re.IGNORECASE)
_PAGE: Final = b"<html><body>Something went wrong.</body></html>"
ANSWERS: Final = {
    "413": b"413 Request Entity Too Large\r\n",
    "415": b"415 Unsupported Media Type\r\n",
    "429": b"429 Too Many Requests\r\nRetry-After: 1\r\n",
    "502": b"502 Bad Gateway\r\n",
}
"""What a proxy may answer: the status line, and a header."""


class MessageReader:
    """Cuts what is written to a connection into HTTP messages, and passes on the head and the body of each."""

    def __init__(self, take: Callable[[bytes, bytes], None]) -> None:
        self._take = take
        self._text = b""

    def take(self, data: bytes) -> None:
        """Take the next bytes."""
        self._text += data
        while (end := self._text.find(b"\r\n\r\n") + 4) > 3:
            length = _LENGTH.search(self._text[:end])
            whole = end + (int(length[1]) if length is not None else 0)
            if len(self._text) < whole:
                return
            head, body, self._text = self._text[:end], self._text[end:whole], self._text[whole:]
            self._take(head, body)


def with_length(head: bytes, length: int) -> bytes:
    """Return the head of a message with another length of its body."""
    return _LENGTH.sub(b"\r\nContent-Length: %d\r\n" % length, head)


class ProxyConnection(asyncio.Protocol):
    """A connection to a proxy that gives one of `ANSWERS` to each request."""

    def __init__(self, answer: str) -> None:
        self._line = ANSWERS[answer]
        self._reader = MessageReader(self._answer)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._reader.take(data)

    def _answer(self, _head: bytes, _body: bytes) -> None:
        assert self._transport is not None
        head = b"HTTP/1.1 " + self._line + b"Content-Type: text/html\r\n"
        self._transport.write(head + b"Content-Length: %d\r\n\r\n" % len(_PAGE) + _PAGE)
