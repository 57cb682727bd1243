"""A fair lock for processes that write constantly to one SQLite file.

SQLite allows one write transaction at a time; a writer that has to wait sleeps, longer each time, so of two processes
that write without a pause, one may wait for seconds. The kernel, however, wakes those that wait for a file lock
immediately and in order.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

from eventd.errors import DatabaseUnavailable


class WriterLock:
    """The lock that processes of a node take to write to one SQLite file; a wait for it ends after `patience` seconds.

    One object serves one thread at a time; other programs may write without the lock.
    """

    def __init__(self, database: Path, patience: float) -> None:
        self._path = Path(f"{database}.turn")
        self._patience = patience
        self._file = self._open()
        self._waits: SimpleQueue[_Wait | None] = SimpleQueue()
        self._waiter: threading.Thread | None = None

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the lock for the block. Raises `DatabaseUnavailable` after a wait of `patience` seconds."""
        held = self._take()
        try:
            yield
        finally:
            fcntl.flock(held, fcntl.LOCK_UN)

    def _take(self) -> int:
        """Return the descriptor that holds the lock."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return self._wait()
        return self._file

    def _wait(self) -> int:
        """Let a thread wait for the lock, so that the wait can be abandoned; return that thread's descriptor."""
        if self._waiter is None:
            self._waiter = threading.Thread(target=self._wait_for_each, name="eventd-turn", daemon=True)
            self._waiter.start()
        wait = _Wait()
        self._waits.put(wait)
        if not wait.done.acquire(timeout=self._patience) and wait.give_up():
            raise DatabaseUnavailable(
                f"other processes held {self._path} for {self._patience:g} s",
                hint="a hanging worker is killed and restarted; if another program holds it, stop that program",
            )
        return wait.held

    def _wait_for_each(self) -> None:
        # A separate descriptor: on a shared one, the lock would belong to all users of it, and any of them could
        # release it.
        file = self._open()
        try:
            while (wait := self._waits.get()) is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
                if not wait.grant(file):
                    fcntl.flock(file, fcntl.LOCK_UN)
        finally:
            os.close(file)

    def close(self) -> None:
        """Close the file; the lock must not be used any more."""
        self._waits.put(None)
        if self._waiter is not None:
            self._waiter.join(self._patience)
        os.close(self._file)


class _Wait:
    """One wait for the lock. It is either granted or abandoned, whichever comes first."""

    def __init__(self) -> None:
        self.held = -1
        self.done = threading.Lock()
        """Can be acquired once the lock was granted."""
        self.done.acquire()
        self._deciding = threading.Lock()
        self._given_up = False

    def grant(self, file: int) -> bool:
        """Hand over the descriptor, which has the lock now; return False if the waiter has given up."""
        with self._deciding:
            if self._given_up:
                return False
            self.held = file
        self.done.release()
        return True

    def give_up(self) -> bool:
        """Abandon the wait; return False if the lock was granted meanwhile."""
        with self._deciding:
            self._given_up = self.held < 0
            return self._given_up
