"""The client's end of a WebSocket: it sends commands as text, and keeps what it was sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

import msgspec

from eventd.net.web_socket import client_frame
from eventd.simulation.world.loop import VirtualLoop
from eventd.simulation.world.machine import API_PORT, Machine

OPENED: Final = 101
"""The status of the answer that opens a connection."""
_TEXT: Final = 1
_PING: Final = 9
_PONG: Final = 10
_CLOSE: Final = 8
_MASK: Final = b"mask"
"""What every frame of this client is masked with."""


class SocketMessage(NamedTuple):
    """A message, when it had arrived."""

    at: float
    data: dict[str, Any]


class WebSocketClient(asyncio.Protocol):
    """One connection. `status` is 0 without an answer to the request; `messages` are what the node has sent since,
    unless `on_message` takes them."""

    def __init__(self, loop: VirtualLoop, head: bytes) -> None:
        self.status = 0
        self.messages: list[SocketMessage] = []
        self.on_message: Callable[[SocketMessage], None] = self.messages.append
        self.over: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._head = head
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._head)

    def send(self, command: dict[str, Any]) -> None:
        """Send a command."""
        self._write(_TEXT, msgspec.json.encode(command))

    def close(self) -> None:
        """Abort the connection: what has not arrived is lost."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self.status:
            head, end, rest = self._received.partition(b"\r\n\r\n")
            if not end:
                return
            self.status, self._received = int(head.split()[1]), rest
        while self.status == OPENED and (found := _frame(self._received)) is not None:
            kind, payload, self._received = found
            if kind == _TEXT:
                self.on_message(SocketMessage(self._loop.time(), msgspec.json.decode(payload)))
            elif kind == _PING:
                self._write(_PONG, payload)
            elif kind == _CLOSE:
                self.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.over.done():
            self.over.set_result(None)

    def _write(self, kind: int, payload: bytes) -> None:
        self._transport.write(client_frame(payload, _MASK, kind))


def _frame(data: bytes) -> tuple[int, bytes, bytes] | None:
    """Return the kind and the payload of the first frame of a server, and what follows it; None if it is not whole."""
    if len(data) < 2:
        return None
    size, begin = data[1], 2
    if size >= 126:
        begin = 4 if size == 126 else 10
        size = int.from_bytes(data[2:begin], "big")
    if len(data) < begin + size:
        return None
    return data[0] & 0x0F, data[begin : begin + size], data[begin + size :]


async def open_socket(loop: VirtualLoop, machine: Machine, path: str = "/v0/ws") -> WebSocketClient:
    """Return a WebSocket that was asked for, that of the topics API unless `path` is another. Raises OSError."""
    head = f"GET {path} HTTP/1.1\r\nHost: {machine.address}:{API_PORT}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    head += "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: c2ltdWxhdGVkIHNvY2tldA==\r\n\r\n"
    _, made = await loop.create_connection(lambda: WebSocketClient(loop, head.encode()), machine.address, API_PORT)
    return cast(WebSocketClient, made)
