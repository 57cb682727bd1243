"""Connections that the threads of a pool keep: checking one out and in costs as much as a small read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from eventd.store.engine.connection import DatabaseConnection
from eventd.store.engine.engines import Engine, lend


class ThreadConnections:
    """The connections of one engine. A thread that called `keep` has its own; any other checks one out for each use.

    `begin` is a statement that is executed on each kept connection before its first use, and so are the statements of
    `configure`. When a block that uses one of the kept connections raises, all of them are replaced: if the server was
    lost, all are affected.
    """

    def __init__(self, engine: Engine, begin: str = "") -> None:
        self.engine = engine
        self._begin = [begin] if begin else []
        self._of_thread = threading.local()
        self._owned: list[_OwnConnection] = []
        self._troubles = 0

    def keep(self) -> None:
        """Keep a connection for this thread, which will use the engine for the rest of its life."""
        if self._of_this_thread is None:
            self._of_thread.own = _OwnConnection()
            self._owned.append(self._of_thread.own)

    @property
    def _of_this_thread(self) -> _OwnConnection | None:
        return getattr(self._of_thread, "own", None)

    @property
    def has_one_thread(self) -> bool:
        """Return whether exactly one thread has called `keep`."""
        return len(self._owned) == 1

    @contextmanager
    def borrowed(self) -> Iterator[None]:
        """Let this thread use the connection of the only thread that called `keep`, which does not use it meanwhile."""
        before = self._of_this_thread
        (self._of_thread.own,) = self._owned
        try:
            yield
        finally:
            self._of_thread.own = before

    def configure(self, statement: str) -> None:
        """Execute a statement on this thread's connection, and on each kept connection opened later."""
        if statement not in self._begin:
            self._begin.append(statement)
        with self.use() as conn:
            conn.driver.execute(statement)

    @contextmanager
    def use(self) -> Iterator[DatabaseConnection]:
        """Yield this thread's kept connection, or a borrowed one, outside of a transaction."""
        own = self._of_this_thread
        if own is None:
            with lend(self.engine) as conn:
                yield conn
            return
        conn = self._current(own)
        try:
            yield conn
        except BaseException:
            self._troubles += 1
            raise

    def _current(self, own: _OwnConnection) -> DatabaseConnection:
        """Return a thread's connection, or a new one: at its first use, and after an error of any thread."""
        if own.conn is not None and own.troubles == self._troubles:
            return own.conn
        if own.conn is not None:
            conn, own.conn = own.conn, None
            self.engine.give_back(conn)
        troubles = self._troubles
        conn = self.engine.take()
        for statement in self._begin:
            conn.driver.execute(statement)
        own.conn, own.troubles = conn, troubles
        return conn

    def close(self) -> None:
        """Close all connections. The threads that kept some must have ended."""
        for own in self._owned:
            if own.conn is not None:
                self.engine.give_back(own.conn)
        self._owned.clear()
        self.engine.dispose()


class _OwnConnection:
    """The connection that a thread keeps; None before its first use. `troubles`: how many errors preceded it."""

    __slots__ = ("conn", "troubles")

    def __init__(self) -> None:
        self.conn: DatabaseConnection | None = None
        self.troubles = 0
