"""Opens WebSockets whose messages are limited in size, memory and time."""

from __future__ import annotations

from aiohttp import web

from eventd.api.bodies.bodies import BodyMemory
from eventd.api.errors.codes import WEBSOCKET_VERSION, UnsupportedVersion
from eventd.api.listener.messages import IncomingMessages
from eventd.api.listener.runner import MESSAGES
from eventd.errors import Invalid

MAX_MESSAGE_BYTES = 4 << 20
"""The largest message of a client in bytes: it is held until it is complete, and usually decoded on the event loop."""
CLOSE_SECONDS = 1.0
"""How long a client has to answer when the connection is closed."""


def open_socket(
    request: web.Request, bodies: BodyMemory, key: bytes, most: int
) -> tuple[web.WebSocketResponse, IncomingMessages]:
    """Return a WebSocket to prepare, and the limits on its messages, which the caller closes.

    `key`: the digest of the client's key; `most`: the largest message in bytes. Raises `UnsupportedVersion`, and
    `Invalid` for a request that does not ask for a WebSocket.
    """
    if request.headers.get("Upgrade", "").strip().lower() != "websocket":
        raise Invalid("this address is a WebSocket", hint="open it with a WebSocket client: Upgrade: websocket")
    version = request.headers.get("Sec-WebSocket-Version", WEBSOCKET_VERSION)
    if version != WEBSOCKET_VERSION:
        raise UnsupportedVersion(f"Sec-WebSocket-Version {version[:20]!r} is not supported: use {WEBSOCKET_VERSION}")
    socket = web.WebSocketResponse(compress=False, timeout=CLOSE_SECONDS, max_msg_size=most)
    messages = request[MESSAGES] = IncomingMessages(bodies, key, most)
    return socket, messages
