"""A receiver of callbacks for measurements, which answers immediately and keeps the requests that it received."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable
from typing import NamedTuple, cast

from eventd.bench.wire import now
from federation.errors import MessageError
from federation.keys import Key
from federation.webhooks import verify

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_END = b"\r\n\r\n"
BACKLOG = 2048
_ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"


class CallbackRequest(NamedTuple):
    """One request: its path, its head and its body, and when it was complete, in seconds of the monotonic clock."""

    path: str
    head: bytes
    body: bytes
    at: float


class _Connection(asyncio.Protocol):
    def __init__(self, receiver: CallbackReceiver) -> None:
        self._receiver = receiver
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._receiver.open.append(self._transport)

    def data_received(self, data: bytes) -> None:
        self._rest += data
        while (end := self._rest.find(_END)) >= 0:
            head = self._rest[:end]
            length = _LENGTH.search(head)
            size = end + len(_END) + (int(length[1]) if length else 0)
            if len(self._rest) < size:
                return
            body, self._rest = self._rest[end + len(_END) : size], self._rest[size:]
            path = head[: head.index(b"\r\n")].split(b" ")[1].decode()
            self._receiver.take(CallbackRequest(path, head, body, now()), self._transport)


class CallbackReceiver:
    """Listens on a port of `host`.

    `delays` maps paths to the seconds after which a request is answered; other requests are answered immediately.
    `taken` is called with each request, before its answer. With `tls`, it speaks TLS only.
    """

    def __init__(
        self, taken: Callable[[CallbackRequest], None], *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> None:
        self._host = host
        self._tls = tls
        self.delays: dict[str, float] = {}
        self.open: list[asyncio.Transport] = []
        self.port = 0
        self._taken = taken
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen: the first time at a free port, later at the same port again."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self), self._host, self.port, ssl=self._tls, backlog=BACKLOG
        )
        self.port = self._server.sockets[0].getsockname()[1]

    def take(self, request: CallbackRequest, transport: asyncio.Transport) -> None:
        """Record a request, and answer it."""
        self._taken(request)
        delay = self.delays.get(request.path, 0.0)
        if delay:
            asyncio.get_running_loop().call_later(delay, transport.write, _ANSWER)
        else:
            transport.write(_ANSWER)

    async def stop(self) -> None:
        """Close the listener and all connections."""
        if self._server is not None:
            self._server.close()
            for transport in self.open:
                transport.abort()
            self.open.clear()
            self._server = None


def is_signed(request: CallbackRequest, key: Key, moment: int) -> bool:
    """Return whether a key has signed a request; `moment` is the present time in microseconds."""
    lines = request.head.decode("latin-1").split("\r\n")[1:]
    headers = dict(line.split(": ", 1) for line in lines)
    try:
        verify([key], headers, request.body, now=moment)
    except MessageError:
        return False
    return True
