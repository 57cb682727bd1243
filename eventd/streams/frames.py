"""Frames: a header of 12 bytes, big-endian, and as many bytes of payload as it says.

magic `FLX1` (4)   version (2)   flags (2)   length of the payload (4)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

MAGIC: Final = b"FLX1"
VERSION: Final = 1
MAX_PAYLOAD: Final = 16 << 20
"""Maximum bytes of a payload, unless a reader allows fewer."""
HEADER_BYTES: Final = 12
_HEADER: Final = struct.Struct(">4sHHI")


class Flags:
    """The layout of a payload; without any it is a JSON message. Plain numbers, because operators of enums are slow."""

    PUBLISH: Final = 0x0001
    EVENTS: Final = 0x0002  # of one subscription
    SHARED_EVENTS: Final = 0x0004  # the same bytes for several subscriptions
    ACKNOWLEDGED: Final = 0x0008  # of a publish: it is answered
    PUBLISH_ACK: Final = 0x0010
    OFFSETS: Final = 0x0020  # of events: the offset of the first one comes before them


KNOWN: Final = 0x003F
"""All flags that this version understands."""
ASSUMED: Final = 0x0007
"""The flags that are assumed for a peer that announces none."""


class BadFrame(ValueError):
    """A stream that cannot be read any further; the text is sent to the peer as the answer."""


class Frame(NamedTuple):
    """A whole frame."""

    flags: int
    payload: bytes


def encode_frame(flags: int, payload: bytes) -> bytes:
    """Return a frame. Raises ValueError for a payload over `MAX_PAYLOAD`."""
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"a payload of {len(payload)} bytes is over {MAX_PAYLOAD}")
    return _HEADER.pack(MAGIC, VERSION, flags, len(payload)) + payload


class StreamFrameReader:
    """Cuts the bytes of one stream into frames; uses no more memory than the bytes that have arrived.

    `most`: maximum bytes of a payload; may be changed between frames.
    """

    def __init__(self, most: int = MAX_PAYLOAD) -> None:
        self.most = most
        self._bytes = bytearray()

    @property
    def held(self) -> int:
        """Return how many bytes are held of the frame that has not arrived completely."""
        return len(self._bytes)

    @property
    def is_inside_payload(self) -> bool:
        """Return whether the stream, if it ended now, would end within a payload."""
        return len(self._bytes) >= _HEADER.size

    def add(self, data: bytes) -> None:
        """Keep bytes for `take`."""
        self._bytes += data

    def take(self) -> Frame | None:
        """Remove and return the next frame; None if it has not arrived entirely.

        Raises `BadFrame` for a header with a wrong magic, an unknown version or too large a length; what follows is
        not to be read any more.
        """
        held = self._bytes
        if len(held) < _HEADER.size:
            return None
        magic, version, flags, length = _HEADER.unpack_from(held)
        if magic != MAGIC:
            raise BadFrame("invalid magic number")
        if version != VERSION:
            raise BadFrame(f"unsupported version {version}")
        if length > self.most:
            raise BadFrame("frame too large")
        end = _HEADER.size + length
        if len(held) < end:
            return None
        with memoryview(held) as view:
            payload = bytes(view[_HEADER.size : end])
        del held[:end]
        return Frame(flags, payload)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that `data` completes. Exhaust it before the next call.

        Raises `BadFrame` as `take` does.
        """
        self.add(data)
        while (frame := self.take()) is not None:
            yield frame

    def clear(self) -> None:
        """Forget the bytes that are held."""
        self._bytes.clear()
