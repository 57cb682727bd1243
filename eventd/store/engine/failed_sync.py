"""What follows when a flush of SQLite's write-ahead log fails: the log is written to the disk again.

After an error, a system may mark pages as written although the write failed: later flushes succeed without them. A
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
    """Write the content of a file again and flush it; do nothing if there is no such file. Raises `OSError`."""
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
    """Whether a flush of the write-ahead log `log` may have failed; None: the database has no such log.

    `at_start`: a flush may have failed in an earlier process, which ended before it rewrote the log. Each process sees
    only the failures of its own flushes.
    """

    def __init__(self, log: Path | None, rewrite: RewriteFile, *, at_start: bool) -> None:
        self._log = log
        self._rewrite = rewrite
        self.is_due = at_start

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note whether a flush fails in the block."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_FSYNC:
                self.is_due = True
            raise

    def rewrite_log(self, label: str) -> None:
        """Write the log again. Raises `DatabaseUnavailable` if that fails; it is still due then.

        Call it while no other connection can write, and after a check that the log is still that of the open database:
        a replaced file would get old content. `label` names the database.
        """
        self.is_due = False  # first: a flush that fails meanwhile, in another thread, makes it due again
        try:
            if self._log is not None:
                self._rewrite(self._log)
        except OSError as error:
            self.is_due = True
            raise DatabaseUnavailable(f"{label}: {error.strerror}", hint="check the disk") from error
