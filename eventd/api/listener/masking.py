"""Checks the frames of a WebSocket client before aiohttp reads them.

Unmasked frames are refused: the protocol forbids them, but aiohttp reads them. The memory and time of messages are
accounted for: aiohttp limits only the size of one message.
"""

from __future__ import annotations

from typing import Any, Protocol

from eventd.api.listener.messages import IncomingMessages

_BROKEN = b"\xf0\x00"
"""A frame with reserved bits: aiohttp closes the connection with 1002, a protocol error."""
_MASKED, _SIZE = 0x80, 0x7F
_LAST, _CONTROL = 0x80, 0x08
"""Bits of the first byte: the last frame of its message; a control frame."""
_MASK_BYTES = 4
_EXTENDED_BYTES = {126: 2, 127: 8}
"""Length of the extended size field of a frame, by the size in its second byte; frames with other sizes have no such
field."""


class FrameReader(Protocol):
    """The methods of aiohttp's reader of WebSocket frames that are used here."""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]: ...

    def feed_eof(self) -> None: ...


class MaskedFrames:
    """Passes the bytes of a client to the reader while every frame is masked.

    The head of a frame is kept back until it is complete: after a part of one, `_BROKEN` would be read as its rest.
    `messages` is notified of each frame; once it refuses the client, nothing more is passed on.
    """

    def __init__(self, reader: FrameReader, messages: IncomingMessages | None = None) -> None:
        self._reader = reader
        self._messages = messages
        self._head = b""  # of a frame, as far as it has arrived
        self._rest = 0  # bytes of the previous frame that have not arrived
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
        """Return where the last masked frame with a complete head ends, as an index of `data`, perhaps beyond its end.

        Notifies `messages` of each frame up to there, and marks the connection as broken at an unmasked frame.
        """
        at = self._rest
        while at + 2 <= len(data):
            if not data[at + 1] & _MASKED:
                self._is_broken = True
                break
            size = data[at + 1] & _SIZE
            wide = _EXTENDED_BYTES.get(size, 0)
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
