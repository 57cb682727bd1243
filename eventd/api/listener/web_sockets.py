"""Opens WebSockets whose messages are limited in size, memory and time."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from aiohttp import WebSocketError, web

from eventd.api.bodies.bodies import BodyMemory
from eventd.api.errors.codes import WEBSOCKET_VERSION, UnsupportedVersion
from eventd.api.listener.messages import IncomingMessages
from eventd.api.listener.runner import MESSAGES
from eventd.errors import Invalid

MAX_MESSAGE_BYTES = 4 << 20
"""The largest message of a client in bytes: it is held until it is complete, and usually decoded on the event loop."""
CLOSE_SECONDS = 1.0
"""How long a client has to answer when the connection is closed."""
LINGER_SECONDS = 2.0
LINGER_BYTES = 4 * MAX_MESSAGE_BYTES
"""For how long, and how many bytes, the rest of what a client sends is discarded after a frame that was refused."""


class LingeringSocket(web.WebSocketResponse):
    """A WebSocket whose client also learns why it is closed if it is still sending (RFC 6455, 7.1.1).

    A connection that is closed with bytes unread is reset, and the client may lose the close frame. So after a frame
    that aiohttp refuses, such as one that is too large, the connection stays open until `linger`.
    """

    _is_refused = False

    def _close_transport(self) -> None:
        if self._reader is not None and isinstance(self._reader.exception(), WebSocketError):
            self._is_refused = True
        else:
            super()._close_transport()

    async def linger(self) -> None:
        """Discard what a refused client still sends until it closes the connection, within limits; then close it."""
        request = self._req
        if not self._is_refused or request is None or request.transport is None or request.transport.is_closing():
            return
        if request.transport.can_write_eof():
            request.transport.write_eof()  # the client need not wait for the end of the connection
        gone = cast(DiscardingProtocol, request.protocol).discard(LINGER_BYTES)
        try:
            await asyncio.wait({gone}, timeout=LINGER_SECONDS)
        finally:
            super()._close_transport()


class DiscardingProtocol(Protocol):
    """The method of a listener's connections that is used here."""

    def discard(self, most: int) -> asyncio.Future[None]: ...


def open_socket(
    request: web.Request, bodies: BodyMemory, key: bytes, most: int
) -> tuple[LingeringSocket, IncomingMessages]:
    """Return a WebSocket to prepare, and the limits on its messages, which the caller closes, after it lets it linger.

    `key`: the digest of the client's key; `most`: the largest message in bytes. Raises `UnsupportedVersion`, and
    `Invalid` for a request that does not ask for a WebSocket.
    """
    if request.headers.get("Upgrade", "").strip().lower() != "websocket":
        raise Invalid("this address is a WebSocket", hint="open it with a WebSocket client: Upgrade: websocket")
    version = request.headers.get("Sec-WebSocket-Version", WEBSOCKET_VERSION)
    if version != WEBSOCKET_VERSION:
        raise UnsupportedVersion(f"Sec-WebSocket-Version {version[:20]!r} is not supported: use {WEBSOCKET_VERSION}")
    socket = LingeringSocket(compress=False, timeout=CLOSE_SECONDS, max_msg_size=most)
    messages = request[MESSAGES] = IncomingMessages(bodies, key, most)
    return socket, messages
