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
        self._kept: dict[DatabaseConnection, None] = {}
        self._troubles = 0

    def keep(self) -> None:
        """Keep a connection for this thread, which will use the engine for the rest of its life."""
        self._of_thread.stays = True

    def configure(self, statement: str) -> None:
        """Execute a statement on this thread's connection, and on each kept connection opened later."""
        if statement not in self._begin:
            self._begin.append(statement)
        with self.use() as conn:
            conn.driver.execute(statement)

    @contextmanager
    def use(self) -> Iterator[DatabaseConnection]:
        """Yield this thread's kept connection, or a borrowed one, outside of a transaction."""
        if not getattr(self._of_thread, "stays", False):
            with lend(self.engine) as conn:
                yield conn
            return
        conn = self._take_own()
        try:
            yield conn
        except BaseException:
            self._troubles += 1
            raise

    def _take_own(self) -> DatabaseConnection:
        """Return this thread's connection, or a new one: at its first use, and after an error of any thread."""
        own: tuple[DatabaseConnection | None, int] = getattr(self._of_thread, "own", (None, 0))
        conn, troubles = own
        if conn is not None and troubles == self._troubles:
            return conn
        if conn is not None:
            self._kept.pop(conn, None)
            self._of_thread.own = None, 0
            self.engine.give_back(conn)
        troubles = self._troubles
        conn = self.engine.take()
        for statement in self._begin:
            conn.driver.execute(statement)
        self._kept[conn] = None
        self._of_thread.own = conn, troubles
        return conn

    def close(self) -> None:
        """Close all connections. The threads that kept some must have ended."""
        for conn in self._kept:
            self.engine.give_back(conn)
        self._kept.clear()
        self.engine.dispose()
