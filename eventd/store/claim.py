"""The right to serve a Postgres database: locks of a session, which end with it, however it ends.

A node for all groups takes the database for itself. Nodes that serve one group each share it, and each takes its group.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import blake2b
from typing import Any

import sqlalchemy as sa

from eventd.errors import Conflict, DatabaseUnavailable
from eventd.store.engines import driver_of
from eventd.store.sessions import open_session
from eventd.store.translation import translated

CHECK_SECONDS = 2.0
"""How often it is looked at whether the session still is there, and how long to wait for a server that is away."""
PATIENCE_MILLISECONDS = 2000
"""How long to wait for the claim of a process that has just been killed: the server notices a moment later."""
SERVE_LOCK = 0x7365727665  # "serve"
"""The advisory lock of whoever serves: alone for all groups, shared for one."""
NAME = "eventd-serve "
"""What the name of a session begins with; then comes who holds it, and last what tells this claim from all others."""
NAME_BYTES = 63
"""Postgres keeps no more of a name."""

_HELD = """
SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND ((l.classid::bigint << 32) | l.objid::bigint) = %s
"""
_STILL_MINE = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid()"

logger = logging.getLogger("eventd.claim")


def group_lock(group: str) -> int:
    """The advisory lock of whoever serves one group."""
    return int.from_bytes(blake2b(group.encode(), digest_size=8, person=b"eventd group").digest(), signed=True)


def read_claims(conn: sa.Connection) -> list[str]:
    """Who serves this database, each as it called itself."""
    return [_who(name) for name in _holders(driver_of(conn), SERVE_LOCK)]


def _holders(driver: Any, lock: int) -> list[str]:
    return sorted(name or "" for (name,) in driver.execute(_HELD, (lock,)).fetchall())


def _who(name: str) -> str:
    return name.removeprefix(NAME).rpartition(" ")[0] if name.startswith(NAME) else "of another user"


class Claim:
    """A claim on a database, or on one `group` of it. `label` names the database, `who` whoever claims it."""

    def __init__(self, url: sa.URL, label: str, group: str, who: str) -> None:
        self._url = url
        self._label = label
        self._group = group
        token = f" {secrets.token_hex(4)}"
        self._name = (NAME + who).encode()[: NAME_BYTES - len(token)].decode(errors="ignore") + token
        self._session: Any = None
        self._taken_by = ""

    @property
    def holder(self) -> str:
        """Who held it when it could not be had: a process, and its machine."""
        return f"process {_who(self._taken_by)}" if self._taken_by else "another process"

    def take(self) -> None:
        """Raises `Conflict`, which says who holds it, and `DatabaseUnavailable`."""
        self.close()
        try:
            with translated(self._label):
                self._session = open_session(self._url, self._name)
                if not self._try_locks():
                    raise self._conflict()
        except BaseException:
            self.close()
            raise

    def _try_locks(self) -> bool:
        from psycopg.errors import LockNotAvailable

        wanted = [("pg_advisory_lock", SERVE_LOCK)]
        if self._group:
            wanted = [("pg_advisory_lock_shared", SERVE_LOCK), ("pg_advisory_lock", group_lock(self._group))]
        self._session.execute(f"SET lock_timeout = {PATIENCE_MILLISECONDS}")
        try:
            for function, lock in wanted:
                self._session.execute(f"SELECT {function}(%s)", (lock,))
        except LockNotAvailable:
            return False
        return True

    def _conflict(self) -> Conflict:
        mine = group_lock(self._group) if self._group else SERVE_LOCK
        holders = _holders(self._session, mine) or _holders(self._session, SERVE_LOCK)
        self._taken_by = holders[0] if holders else ""
        what = f"group {self._group} of the database" if self._group else "the database"
        return Conflict(
            f"{self.holder} serves {what} {self._label}",
            hint="stop it first, wait for its end with --standby, choose another database, or serve one group in each"
            " process with --group",
        )

    async def keep(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Watch over the claim, without end. Raises `Conflict` when it was lost and another node has it now.

        The session is lost with the server, or on the way to it. Then nobody holds the claim, and it is taken again as
        soon as the server is back: a restart of the server is no reason to stop.
        """
        while True:
            await sleep(CHECK_SECONDS)
            if await asyncio.to_thread(self._holds):
                continue
            logger.warning("lost the claim on the database: claiming it again")
            while not await asyncio.to_thread(self._retake):
                await sleep(CHECK_SECONDS)
            logger.info("claimed the database again")

    def _holds(self) -> bool:
        """Whether the session still is the one that took the locks; a pooler may have put another in its place."""
        import psycopg

        with suppress(psycopg.Error):
            return int(self._session.execute(_STILL_MINE).fetchone()[0]) > 0
        return False

    def _retake(self) -> bool:
        try:
            self.take()
        except DatabaseUnavailable:
            return False
        except Conflict:
            if self._taken_by != self._name:
                raise
            return False  # our own session, which the server takes for alive: until it notices, nobody else gets it
        return True

    def close(self) -> None:
        """Let go of it."""
        session, self._session = self._session, None
        if session is not None:
            session.close()
