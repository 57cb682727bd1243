"""Frames: a header of 12 bytes, big-endian, and as many bytes of payload as it says.

magic `FLX1` (4)   version (2)   flags (2)   length of the payload (4)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntFlag
from typing import Final, NamedTuple

MAGIC: Final = b"FLX1"
VERSION: Final = 1
MAX_PAYLOAD: Final = 16 << 20
"""Maximum bytes of a payload, unless a reader allows fewer."""
_HEADER: Final = struct.Struct(">4sHHI")


class Flags(IntFlag):
    """The layout of a payload; without any it is a JSON message."""

    PUBLISH = 0x0001
    EVENTS = 0x0002  # of one subscription
    SHARED_EVENTS = 0x0004  # the same bytes for several subscriptions
    ACKNOWLEDGED = 0x0008  # of a publish: it is answered
    PUBLISH_ACK = 0x0010
    OFFSETS = 0x0020  # of events: the offset of the first one comes before them


KNOWN: Final = 0x003F
"""All flags that this version understands."""
ASSUMED: Final = 0x0007
"""What a peer understands that did not announce its flags."""


class BadFrame(ValueError):
    """A stream that cannot be read on; the message is the answer to it."""


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
    """Cuts the bytes of one stream into frames; keeps no more than has arrived.

    `most`: maximum bytes of a payload; may be changed between frames.
    """

    def __init__(self, most: int = MAX_PAYLOAD) -> None:
        self.most = most
        self._bytes = bytearray()

    @property
    def held(self) -> int:
        """Return the bytes of the frame that has not arrived entirely."""
        return len(self._bytes)

    @property
    def is_inside_payload(self) -> bool:
        """Return whether the stream, if it ended now, would end within a payload."""
        return len(self._bytes) >= _HEADER.size

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that `data` completes. Exhaust it before the next call.

        Raises `BadFrame` once it comes to a header with a wrong magic, an unknown version or too large a length; what
        follows is not read any more.
        """
        held, at = self._bytes, 0
        held += data
        try:
            while len(held) - at >= _HEADER.size:
                magic, version, flags, length = _HEADER.unpack_from(held, at)
                if magic != MAGIC:
                    raise BadFrame("invalid magic number")
                if version != VERSION:
                    raise BadFrame(f"unsupported version {version}")
                if length > self.most:
                    raise BadFrame("frame too large")
                end = at + _HEADER.size + length
                if len(held) < end:
                    break
                payload = bytes(memoryview(held)[at + _HEADER.size : end])
                at = end
                yield Frame(flags, payload)
        finally:
            del held[:at]
