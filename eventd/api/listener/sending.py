"""Sends to a client that stays connected: without waiting for it, and without letting it delay a node that stops."""

from __future__ import annotations

import asyncio

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

HELD_BYTES = 64 << 10
"""Unread bytes after which a client counts as behind. Besides these, at most one page waits for it."""
PARTING_SECONDS = 0.25
"""How long a client has to read the last message of a stopping node."""
PING = b"\x89\x00"
"""A WebSocket frame that the client answers."""


class ClientStream:
    """The outgoing stream to one client over TCP. A `socket` whose close frame was sent counts as closed."""

    def __init__(
        self,
        transport: asyncio.Transport,
        writer: AbstractStreamWriter,
        socket: web.WebSocketResponse | None = None,
    ) -> None:
        self.transport = transport
        self._socket = socket
        self._writer = writer
        transport.set_write_buffer_limits(high=HELD_BYTES)

    @property
    def closed(self) -> bool:
        """Return whether the connection is closed, by either side."""
        return self.transport.is_closing() or (self._socket is not None and self._socket.closed)

    @property
    def full(self) -> bool:
        """Return whether the client has more than `HELD_BYTES` still to read."""
        return self.transport.get_write_buffer_size() > HELD_BYTES

    def write(self, text: bytes) -> None:
        """Send, without waiting for the client; nothing over a closed connection."""
        if not self.closed:
            self.transport.write(text)

    async def drain(self) -> None:
        """Wait, if the client is behind, until it has read most of what was sent. Raises ConnectionError if it left."""
        await self._writer.drain()

    def abort(self) -> None:
        """Close the connection now, and drop what the client has not read."""
        self.transport.abort()

    def send_last(self, text: bytes) -> None:
        """Send a last message, and disconnect a client that has not read everything after `PARTING_SECONDS`: a stopping
        node must not wait."""
        self.write(text)
        asyncio.get_running_loop().call_later(PARTING_SECONDS, self._abandon)

    def _abandon(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()


def text_frame(payload: bytes) -> bytes:
    """Return a text as one WebSocket frame of a server: unfragmented, unmasked, and so the same for every client."""
    size = len(payload)
    if size < 126:
        return b"\x81%c%b" % (size, payload)
    if size < 1 << 16:
        return b"\x81\x7e%b%b" % (size.to_bytes(2, "big"), payload)
    return b"\x81\x7f%b%b" % (size.to_bytes(8, "big"), payload)
