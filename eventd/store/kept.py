"""Connections that the threads of a pool keep: to take one out and put it back costs as much as a small read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa


class Kept:
    """The connections of one engine. A thread that said `stay` keeps its own; any other takes one out for each use."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self._of_thread = threading.local()
        self._kept: set[sa.Connection] = set()

    def stay(self) -> None:
        """This thread will use the engine for as long as it lives."""
        self._of_thread.stays = True

    @contextmanager
    def use(self) -> Iterator[sa.Connection]:
        """A connection in no transaction. Where something goes wrong with it, the next use gets another one."""
        conn: sa.Connection = getattr(self._of_thread, "conn", None) or self.engine.connect()
        done = False
        try:
            yield conn
            done = True
        finally:
            if done and getattr(self._of_thread, "stays", False):
                self._of_thread.conn = conn
                self._kept.add(conn)
            else:
                self._of_thread.conn = None
                self._kept.discard(conn)
                conn.close()

    def close(self) -> None:
        """Let go of all of them. The threads that kept some have ended."""
        for conn in self._kept:
            conn.close()
        self._kept.clear()
        self.engine.dispose()
