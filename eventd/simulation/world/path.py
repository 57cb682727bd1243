"""The way from one machine to another: delays, pieces, breaks and walls, each drawn from the stream of this way."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from eventd.simulation.world.streams import Stream

SLOW_SHARE: Final = 0.01
"""The share of deliveries that take `SLOW_TIMES` as long: the tail of the delays."""
SLOW_TIMES: Final = 30.0
BUFFER_BYTES: Final = 256 << 10
"""Bytes on their way that the buffers of the two machines hold: only what is beyond counts as unwritten."""
PIECES: Final = 0.15
"""The share of writes that arrive in several pieces."""


class Wall(StrEnum):
    """What a wall between two machines does to what comes from one of them."""

    NONE = ""
    DROP = "drop"  # nothing arrives, and nothing is reported
    REFUSE = "refuse"  # new connections are refused, and present ones are reset
    BREAK = "break"  # every connection breaks within what is written next


class Path:
    """The way from the machine `source` to the machine `dest`. Faults set its fields.

    `mean` is the mean delay in seconds, `cut` the share of writes that break the connection in their middle, `flip` the
    share of writes that arrive with a bit changed, and `buffer` the bytes that the machines take before they are read.
    """

    def __init__(self, source: str, dest: str, stream: Stream, mean: float) -> None:
        self.source = source
        self.dest = dest
        self.mean = mean
        self.cut = 0.0
        self.flip = 0.0
        self.buffer = BUFFER_BYTES
        self.wall = Wall.NONE
        self._stream = stream

    def is_lost(self) -> bool:
        """Return whether nothing passes at present."""
        return self.wall is Wall.DROP

    def delay(self) -> float:
        """Return the seconds that the next delivery takes."""
        seconds = self._stream.expovariate(1.0) * self.mean
        return seconds * SLOW_TIMES if self._stream.random() < SLOW_SHARE else seconds

    def carry(self, data: bytes) -> Iterator[tuple[float, bytes | None]]:
        """Yield the pieces in which data arrives, each with its delay; None: the connection breaks there."""
        broken = self.wall in (Wall.REFUSE, Wall.BREAK) or self._stream.random() < self.cut
        if broken:
            data = data[: self._stream.randrange(len(data) + 1)]
        if data and self.flip and self._stream.random() < self.flip:
            data = _flipped(data, self._stream.randrange(8 * len(data)))
        if data and self._stream.random() < PIECES:
            for _ in range(self._stream.randint(1, 3)):
                at = self._stream.randrange(len(data) + 1)
                piece, data = data[:at], data[at:]
                if piece:
                    yield self.delay(), piece
                if not data:
                    break
        if data:
            yield self.delay(), data
        if broken:
            yield self.delay(), None


def _flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)
