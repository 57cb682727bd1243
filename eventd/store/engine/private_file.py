"""Protects the files of a SQLite database from other users: a reader of the files can read every event."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MODE = 0o600
"""The mode of a new database. SQLite gives its write-ahead log and index the mode of the database."""
_OTHERS = stat.S_IRWXO
_FILES = ("", "-wal", "-shm", "-journal")


def create_private(database: Path) -> None:
    """Create an empty file that only its owner may read, unless one exists.

    An existing file is not opened: closing it would release the locks that this process holds on it.
    """
    with suppress(OSError):  # SQLite reports better why a file cannot be created
        os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, MODE))


def close_to_others(database: Path) -> Iterator[Path]:
    """Remove permissions of users outside the files' group; yields each file that was changed.

    Danger: this is a generator, so a file is changed only when the result is iterated. Older versions of the program
    made them readable by every user. What the group may do is the operator's choice. Files that this process may
    not change stay as they are.
    """
    for suffix in _FILES:
        file = Path(f"{database}{suffix}")
        with suppress(OSError):
            mode = stat.S_IMODE(file.stat().st_mode)
            if mode & _OTHERS:
                file.chmod(mode & ~_OTHERS)
                yield file
