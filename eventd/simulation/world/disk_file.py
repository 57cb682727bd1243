"""A file of a simulated disk: what the system has written to the disk, and what is only in its memory.

A kill of a process leaves what is in memory. A power loss leaves, of each sector, either what the disk had at the last
sync or any version written since, and it may take the file's name if the file was never synced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from eventd.simulation.world.streams import Stream

WAL_HEAD: Final = 32
"""Bytes of the head of a write-ahead log."""
SECTORS: Final = (512, 4096)
"""Bytes that a disk writes as a whole."""


class PendingWrite(NamedTuple):
    """Bytes written at an offset since the last sync; `data` None: the file was cut to `offset` bytes."""

    offset: int
    data: bytes | None


@dataclass(slots=True)
class DiskFile:
    """`image` is the content at the last sync, `pending` what was written since, oldest first.

    `is_named`: the disk has the file's name. `forgotten` counts writes that a failed sync has dropped: they are visible
    until the power is lost.
    """

    image: bytearray = field(default_factory=bytearray)
    pending: list[PendingWrite] = field(default_factory=list)
    is_named: bool = False
    forgotten: int = 0
    on_restart: Callable[[], None] | None = None
    """Called when a write-ahead log is restarted over its old frames."""

    def write(self, offset: int, data: bytes) -> None:
        """Note a write that the disk may not have yet."""
        if self.on_restart is not None and offset == 0 and len(data) == WAL_HEAD < len(self.image):
            self.on_restart()
        self.pending.append(PendingWrite(offset, data))

    def truncate(self, size: int) -> None:
        """Note that the file was cut."""
        self.pending.append(PendingWrite(size, None))

    def sync(self) -> None:
        """Write everything to the disk."""
        image = self.image
        for change in self.pending:
            offset, data = change
            if data is None or len(image) < offset:
                _apply(image, change)
            else:  # nearly all of them: a call for each would take as long as the write
                image[offset : offset + len(data)] = data
        self.pending.clear()
        self.is_named = True

    def forget(self) -> None:
        """Drop what is pending: a failed sync marks it as written, and later syncs do not write it again."""
        self.forgotten += len(self.pending)
        self.pending.clear()

    def after_power_loss(self, stream: Stream) -> bytes | None:
        """Return the content after a power loss, drawn from a stream; None if the file does not exist any more."""
        if not self.is_named and stream.random() < 0.5:
            return None
        share = stream.choice((0.0, 1.0, stream.random()))  # of the sectors that were written
        sector = stream.choice(SECTORS)
        content = bytearray(self.image)
        for change in self.pending:
            if change.data is None:
                if stream.random() < share:
                    _apply(content, change)
                continue
            for begin, part in _sectors(change, sector):
                if stream.random() < share:
                    _apply(content, PendingWrite(begin, part))
        return bytes(content)


def _sectors(change: PendingWrite, size: int) -> list[tuple[int, bytes]]:
    """Return a write, cut where sectors of the disk end."""
    data = change.data or b""
    parts = []
    at = change.offset
    while data:
        taken = size - at % size
        parts.append((at, data[:taken]))
        at += taken
        data = data[taken:]
    return parts


def _apply(content: bytearray, change: PendingWrite) -> None:
    if change.data is None:
        del content[change.offset :]
        return
    if len(content) < change.offset:
        content.extend(bytes(change.offset - len(content)))
    content[change.offset : change.offset + len(change.data)] = change.data
