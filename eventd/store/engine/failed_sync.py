"""What follows when a flush of SQLite's write-ahead log fails: the log is written to the disk anew.

After an error, a system may take the pages that it could not write for written: later flushes succeed without them. A
power loss then leaves a hole in the log, and SQLite reads nothing behind it, not even what was flushed since.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from eventd.errors import DatabaseUnavailable

_PIECE: Final = 1 << 20
"""Bytes that are read and written at once."""

RewriteFile = Callable[[Path], None]
"""Writes the content of a file again and flushes it. Raises `OSError`."""


def rewrite_file(path: Path) -> None:
    """Write the content of a file again, as it is, and flush it; do nothing without the file. Raises `OSError`."""
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return
    try:
        at = 0
        while piece := os.pread(file, _PIECE, at):
            at += os.pwrite(file, piece, at)
        os.fsync(file)
    finally:
        os.close(file)


class FailedSync:
    """Whether a flush of the write-ahead log of the database at `path` may have failed; None: it has no such log."""

    def __init__(self, path: Path | None, rewrite: RewriteFile) -> None:
        self._log = None if path is None else Path(f"{path}-wal")
        self._rewrite = rewrite
        self._is_due = True  # a flush may have failed in an earlier process, which ended before it made good for it

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note whether a flush fails in the block."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_FSYNC:
                self._is_due = True
            raise

    def make_good(self, label: str) -> None:
        """Write the log anew if a flush may have failed. Raises `DatabaseUnavailable` while that fails.

        Call it while no other connection can write. `label` names the database.
        """
        if not self._is_due or self._log is None:
            return
        self._is_due = False  # first: a flush that fails meanwhile, in another thread, makes it due again
        try:
            self._rewrite(self._log)
        except OSError as error:
            self._is_due = True
            raise DatabaseUnavailable(f"{label}: {error.strerror}", hint="check the disk") from error
