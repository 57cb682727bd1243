"""The files of a SQLite database belong to the node's user: who may read them could read every event."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MODE = 0o600
"""Of a new database. SQLite gives its write-ahead log and its index the mode of the database."""
_OTHERS = stat.S_IRWXO
_FILES = ("", "-wal", "-shm", "-journal")


def create_private(database: Path) -> None:
    """Make an empty file that only its owner may read, unless there is one.

    A file that is there is not opened: closing it would take back the locks that this process holds on it.
    """
    with suppress(OSError):  # SQLite says better why a file cannot be made
        os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, MODE))


def close_to_others(database: Path) -> Iterator[Path]:
    """Take away what users outside the files' group may do with them; yields the files it was taken from.

    An older program made them readable by every user. What the group may do is the operator's choice. Files of other
    users are left as they are.
    """
    for suffix in _FILES:
        file = Path(f"{database}{suffix}")
        with suppress(OSError):
            mode = stat.S_IMODE(file.stat().st_mode)
            if mode & _OTHERS:
                file.chmod(mode & ~_OTHERS)
                yield file
