"""Writes that are attached to an operation: the operation's first write transaction carries them out, too.

So the changes of an operation and the row that records the operation are committed together or not at all, and the
operation's code need not know about the row. Tasks that the operation starts inherit the attachment; it ends with the
operation.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from eventd.store.engine.connection import DatabaseConnection

T = TypeVar("T")


class AttachedWrite(ABC):
    """A write that the first write transaction of an operation carries out.

    `is_written`: that transaction was committed. If it fails, the operation's next transaction carries the write out.
    """

    def __init__(self) -> None:
        self.is_written = False
        self._is_taken = False
        self._is_over = False

    @abstractmethod
    def begin(self, conn: DatabaseConnection) -> None:
        """Take the locks and make the checks, before the transaction writes anything.

        An error fails the transaction.
        """

    @abstractmethod
    def end(self, conn: DatabaseConnection) -> None:
        """Make the write, after everything else in the transaction was written."""

    def around(self, fn: Callable[[DatabaseConnection], T]) -> Callable[[DatabaseConnection], T]:
        """Return a storage function that runs `fn` and carries out this write."""

        def run(conn: DatabaseConnection) -> T:
            self.begin(conn)
            result = fn(conn)
            self.end(conn)
            return result

        return run

    def settle(self, error: BaseException | None) -> None:
        """Note how the transaction ended: it was committed, or failed with `error`.

        After a cancellation the outcome is not known: the transaction, with this write, may still be committed.
        """
        if error is None:
            self.is_written = True
        elif not isinstance(error, asyncio.CancelledError):
            self._is_taken = False

    @contextmanager
    def carried(self) -> Iterator[None]:
        """Run the transaction in the block, and note how it ends, as `settle` does."""
        try:
            yield
        except BaseException as error:
            self.settle(error)
            raise
        self.settle(None)

    def take(self) -> bool:
        """Return whether the caller must carry out this write: no other transaction does so or has done so, and the
        attachment has not ended."""
        if self._is_taken or self._is_over:
            return False
        self._is_taken = True
        return True

    def close(self) -> None:
        """End the attachment: from now on, no transaction takes this write."""
        self._is_over = True


_attached: ContextVar[AttachedWrite | None] = ContextVar("attached write", default=None)


@contextmanager
def attach(write: AttachedWrite) -> Iterator[None]:
    """Attach a write to the operation that runs in the block."""
    token = _attached.set(write)
    try:
        yield
    finally:
        _attached.reset(token)
        write.close()


def attached() -> AttachedWrite | None:
    """Return the write that is attached to the current operation; None if there is none."""
    return _attached.get()


def take_attached() -> AttachedWrite | None:
    """Return the attached write that the caller's transaction must carry out.

    None if there is none, as for most callers. The caller reports the end of the transaction with `settle`.
    """
    write = _attached.get()
    return write if write is not None and write.take() else None
