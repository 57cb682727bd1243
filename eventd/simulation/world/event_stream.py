"""The client's end of a stream of server-sent events: it reads at its own pace, and keeps what it was sent."""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple, cast

import msgspec
from httptools import HttpParserError, HttpResponseParser

from eventd.simulation.world.loop import VirtualLoop
from eventd.simulation.world.machine import API_PORT, Machine

COMMENT: Final = "comment"
"""The kind of a comment, which shows that the node is up."""
_OK: Final = 200


class SentEvent(NamedTuple):
    """An event, when it had arrived: its id, its kind, and its data as JSON."""

    at: float
    kind: str
    id: str
    data: Any


class WatchStream(asyncio.Protocol):
    """One stream. `pause`: seconds for which it does not read after each piece. `status` is 0 without an answer."""

    def __init__(self, loop: VirtualLoop, pause: float = 0.0) -> None:
        self.status = 0
        self.events: list[SentEvent] = []
        self.over: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._pause = pause
        self._parser = HttpResponseParser(self)
        self._text = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def ask(self, head: bytes) -> None:
        """Send the request for the stream."""
        self._transport.write(head)

    def close(self) -> None:
        """Abort the connection: what has not arrived is lost."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except HttpParserError:
            self.close()
        if self._pause:
            self._transport.pause_reading()
            self._loop.call_later(self._pause, self._transport.resume_reading)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.over.done():
            self.over.set_result(None)

    # --- what the parser calls ------------------------------------------------------------------------------------

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        if self.status != _OK:
            return
        *whole, self._text = (self._text + body).split(b"\n\n")
        for text in whole:
            self._take(text)

    def on_message_complete(self) -> None:
        self.close()

    def _take(self, text: bytes) -> None:
        fields = dict(line.split(b": ", 1) for line in text.split(b"\n"))
        kind = COMMENT if b"" in fields or b"retry" in fields else fields[b"event"].decode()
        data = msgspec.json.decode(fields[b"data"]) if b"data" in fields else None
        self.events.append(SentEvent(self._loop.time(), kind, fields.get(b"id", b"").decode(), data))


async def open_stream(loop: VirtualLoop, machine: Machine, path: str, last_id: str, pause: float) -> WatchStream:
    """Return a stream that was asked for. Raises OSError."""
    _, made = await loop.create_connection(lambda: WatchStream(loop, pause), machine.address, API_PORT)
    head = f"GET {path} HTTP/1.1\r\nHost: {machine.address}:{API_PORT}\r\nAccept: text/event-stream\r\n"
    made.ask(f"{head}{f'Last-Event-ID: {last_id}{chr(13)}{chr(10)}' if last_id else ''}\r\n".encode())
    return cast(WatchStream, made)
