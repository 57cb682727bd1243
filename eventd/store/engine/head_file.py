"""The head file beside a SQLite database records how far the log was acknowledged.

A restored older copy of the database cannot know that it is one; this file shows it. It is written after each commit,
before any caller is answered, into memory of the system: that survives the process and costs no flush. After a power
loss the file may be behind the database, but is ahead of it only if commits were lost. So the check may overlook a
recent copy, but never mistakes a complete database for an older copy.

Danger: if the file were mapped into memory, truncating it would end the process with a signal.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

SUFFIX = ".head"
_BYTES = 512
"""Bytes of the file: one sector, so that a power loss leaves the old or the new content."""
_FORM = b"eventd-head-1"


class HeadMark(NamedTuple):
    """The content of a head file: `last` is the last position acknowledged in an epoch of the database `instance`."""

    instance: str
    epoch: str
    last: int


class HeadFile:
    """The head file of the SQLite database at `database`, created if it is missing. Raises `OSError`."""

    def __init__(self, database: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(f"{database}{SUFFIX}", flags, 0o600)
        try:
            if len(known := self._content()) < _BYTES:
                os.pwrite(self._file, known.ljust(_BYTES, b"\0"), 0)  # not sparse: a full disk must not show up later
                owner = database.stat()
                with suppress(PermissionError):  # root's commands must not keep the node from its own file
                    os.fchown(self._file, owner.st_uid, owner.st_gid)
            self._written = b""
        except OSError:
            os.close(self._file)
            raise

    def read(self) -> HeadMark | None:
        """Return the mark that was written last; None for a new or damaged file. Raises `OSError`."""
        return _parse(self._content())

    def write(self, mark: HeadMark) -> None:
        """Write the mark, unless the file has the same or a later one of its instance and epoch. Raises `OSError`."""
        begin = f"{_FORM.decode()} {mark.instance or '-'} {mark.epoch} ".encode()
        at = len(begin)
        known = self._content()
        if known[:at] == begin and known[at : at + 20] >= b"%020d" % mark.last:
            return
        line = b"%b%020d" % (begin, mark.last)
        line += b" %b\n" % _sum(line)
        os.pwrite(self._file, line, 0)

    def flush(self) -> None:
        """Flush the file to the disk. Raises `OSError`."""
        now = self._content()
        if now != self._written:
            os.fdatasync(self._file)
            self._written = now

    def close(self) -> None:
        """Flush and close the file."""
        try:
            with suppress(OSError):
                self.flush()
        finally:
            os.close(self._file)

    def _content(self) -> bytes:
        return os.pread(self._file, _BYTES, 0)


def read_mark(database: Path) -> HeadMark | None:
    """Return the mark in a database's head file; None if it is missing, unreadable or damaged. Creates nothing."""
    try:
        return _parse(Path(f"{database}{SUFFIX}").read_bytes()[:_BYTES])
    except OSError:
        return None


def _parse(content: bytes) -> HeadMark | None:
    words = content.partition(b"\n")[0].split(b" ")
    if len(words) != 5 or words[0] != _FORM or words[4] != _sum(b" ".join(words[:4])):
        return None
    try:
        return HeadMark(words[1].decode().strip("-"), words[2].decode(), int(words[3]))
    except ValueError:
        return None


def forget_head(database: Path) -> None:
    """Delete the head file of a database that was replaced or has a new epoch, if there is one."""
    Path(f"{database}{SUFFIX}").unlink(missing_ok=True)


def _sum(line: bytes) -> bytes:
    return b"%08x" % crc32(line)
