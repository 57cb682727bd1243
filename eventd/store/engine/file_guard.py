"""Detects that the file of a SQLite database was deleted or replaced: a process could still write to the old file."""

from __future__ import annotations

import os
from pathlib import Path

from eventd.errors import DatabaseUnavailable


class FileGuard:
    """The file at a path, as it was when it was first checked. Without a path nothing can be lost."""

    def __init__(self, path: Path | None) -> None:
        self._path = None if path is None else str(path)
        self._file: tuple[int, int] | None = None

    @property
    def is_lost(self) -> bool:
        """Return whether the path leads to another file than when it was first checked, or to none any more."""
        if self._path is None:
            return False
        try:
            status = os.stat(self._path)
        except OSError:
            return self._file is not None
        found = status.st_dev, status.st_ino
        if self._file is None:
            self._file = found
        return found != self._file

    def require(self) -> None:
        """Raise `DatabaseUnavailable` if the file is lost: data written to the open file would vanish when this
        process ends."""
        if self.is_lost:
            raise DatabaseUnavailable(
                f"{self._path}: the open file was deleted, moved or replaced",
                hint="move it back, or stop the node and restore a backup; until then nothing is written",
            )
