"""Signals that another process has written: a counter of the file on SQLite, LISTEN/NOTIFY on Postgres.

A signal means only "read again", so a lost, repeated or late signal costs at most one poll.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from eventd.store.engine.file_guard import FileGuard
from eventd.store.engine.sessions import open_session

if TYPE_CHECKING:
    import sqlalchemy as sa

POLL = 0.05
"""Seconds between two reads of the file's counter; a read takes microseconds."""
POLL_SHARED = 0.005
"""As `POLL`, for a node that runs as several processes, each of which waits for the appends of the others."""
RELISTEN = 1.0
"""Seconds after which a wait on Postgres ends without a signal; the next wait reopens a lost connection."""


class ChangeSource(Protocol):
    """Interface of a source of signals that another connection may have written."""

    async def wait(self) -> None:
        """Return when another connection may have committed; also after an error, or after `RELISTEN` on Postgres."""
        ...

    async def close(self) -> None:
        """Release the resources of this source of signals."""
        ...


class FileChanges:
    """Polls SQLite's `data_version`, which changes after every commit of any other connection, also of this process.

    The counter is in shared memory and is read on the loop: twenty thread switches a second would cost an idle node a
    hundred times as much.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        place: FileGuard,
        sleep: Callable[[float], Awaitable[None]],
        *,
        shared: bool = False,
    ) -> None:
        self._shared = shared
        self._place = place
        self._sleep = sleep
        self._connection = connection  # its own: the counter compares with the last value this connection saw
        connection.execute("PRAGMA busy_timeout=0")  # the loop must never wait for a lock
        self._seen = self._version()

    def _version(self) -> int:
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    async def wait(self) -> None:
        while True:
            await self._sleep(POLL_SHARED if self._shared else POLL)
            try:
                now = self._version()
            except sqlite3.Error:
                return  # the following read raises the error
            if self._place.is_lost:
                return
            if now != self._seen:
                self._seen = now
                return

    async def close(self) -> None:
        self._connection.close()


class Notifications:
    """A separate connection, `name`, that listens on Postgres's `channel`; the loop watches it, so no thread waits."""

    def __init__(self, url: sa.URL, channel: str, name: str) -> None:
        self._url = url
        self._channel = channel
        self._name = name
        self._connection: Any = None
        self._watched: int | None = None
        self._closed = False
        self._sign = asyncio.Event()

    async def wait(self) -> None:
        if self._connection is None:
            await self._listen()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RELISTEN):
                await self._sign.wait()
        self._sign.clear()

    async def _listen(self) -> None:
        import psycopg

        def connect() -> None:
            connection = open_session(self._url, self._name)
            connection.execute(f"LISTEN {self._channel}")
            # before the wait, so that `close` finds it even when no caller waits any more
            self._connection = connection
            if self._closed:
                connection.close()

        with contextlib.suppress(psycopg.Error):  # the timed wait is the fallback until the server is back
            await asyncio.to_thread(connect)
            # A duplicate of the socket's descriptor: libpq closes a broken socket at once, and the loop must not watch
            # a number that another descriptor may have got meanwhile.
            self._watched = os.dup(self._connection.fileno())
            asyncio.get_running_loop().add_reader(self._watched, self._readable)
            self._sign.set()  # commits before LISTEN sent no notification here

    def _readable(self) -> None:
        import psycopg

        self._sign.set()
        try:
            for _ in self._connection.notifies(timeout=0):
                pass
        except psycopg.Error:
            self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        watched, self._watched = self._watched, None
        if watched is not None:
            asyncio.get_running_loop().remove_reader(watched)
            os.close(watched)
        if connection is not None:
            connection.close()

    async def close(self) -> None:
        self._closed = True
        self._drop()
