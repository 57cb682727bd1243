"""Whose turn it is to write to a SQLite file, among processes that write to it all the time.

SQLite lets one transaction write, and whoever finds it busy sleeps and looks again, for longer each time: with two
processes that write without a pause, one of them may wait for seconds. The kernel wakes who waits for a lock at once,
in the order in which they came.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Turns:
    """The turns of one file's writers. For one thread at a time; other programs that write beside need none."""

    def __init__(self, database: Path) -> None:
        self._file = os.open(f"{database}.turn", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the turn, and hold it. It ends with the process, however that ends."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Take no more turns."""
        os.close(self._file)
