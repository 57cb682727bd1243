"""Frames of a WebSocket client, as the HTTP library should see them.

Frames that are not masked are refused: the protocol forbids them, and the library reads them. The room and the time
that messages take are accounted for: the library bounds the size of one message only.
"""

from __future__ import annotations

from typing import Any, Protocol

from eventd.api.listener.messages import IncomingMessages

_BROKEN = b"\xf0\x00"
"""A frame with reserved bits: the library closes the connection for it with 1002, a protocol error."""
_MASKED, _SIZE = 0x80, 0x7F
_LAST, _CONTROL = 0x80, 0x08
"""Of the first byte: the frame is the last one of its message; it is no part of a message."""
_MASK_BYTES = 4
_WIDE = {126: 2, 127: 8}
"""Bytes of the size, where it does not fit into the second byte of a frame."""


class FrameReader(Protocol):
    """What takes the bytes of a connection: the library's."""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]: ...

    def feed_eof(self) -> None: ...


class MaskedFrames:
    """Hands the bytes of a client on to the reader while every frame is masked.

    The head of a frame is kept back until it is whole: behind a part of one, `_BROKEN` would be read as the rest of it.
    `messages`: takes note of frames with data; once it refuses the client, nothing more is handed on.
    """

    def __init__(self, reader: FrameReader, messages: IncomingMessages | None = None) -> None:
        self._reader = reader
        self._messages = messages
        self._head = b""  # of a frame, as far as it has arrived
        self._rest = 0  # bytes of the frame before that have not
        self._is_broken = False

    def feed_data(self, data: bytes) -> tuple[bool, Any]:
        if self._is_broken:
            return False, b""
        data = self._head + data
        end = self._end_of_masked(data)
        self._head, self._rest = data[end:], max(0, end - len(data))
        if self._messages is not None:
            self._messages.end_of_read(is_whole=not self._rest)
            if self._messages.refusal is not None:
                self._is_broken = True
                return False, b""
        good = data[:end] + (_BROKEN if self._is_broken else b"")
        return self._reader.feed_data(good) if good else (False, b"")

    def feed_eof(self) -> None:
        self._reader.feed_eof()

    def _end_of_masked(self, data: bytes) -> int:
        """Where the last frame ends whose head is whole in these bytes, and before it all others; they are masked."""
        at = self._rest
        while at + 2 <= len(data):
            if not data[at + 1] & _MASKED:
                self._is_broken = True
                break
            size = data[at + 1] & _SIZE
            wide = _WIDE.get(size, 0)
            if at + 2 + wide > len(data):
                break
            if wide:
                size = int.from_bytes(data[at + 2 : at + 2 + wide], "big")
            if self._messages is not None:
                if data[at] & _CONTROL:
                    self._messages.begin_control()
                else:
                    self._messages.begin_frame(size, last=bool(data[at] & _LAST))
            at += 2 + wide + _MASK_BYTES + size
        return at
