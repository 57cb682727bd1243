"""The right to serve a Postgres database: session locks, which end with the session.

A node for all groups takes the database exclusively. Nodes for one group each share the database, and each takes its
group.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from eventd.errors import Conflict, DatabaseUnavailable
from eventd.runtime.chance import Chance
from eventd.store.engine.connection import DatabaseConnection
from eventd.store.engine.fence import ENDING_MILLISECONDS, TOKEN_DIGITS, end_unclaimed
from eventd.store.engine.sessions import open_session
from eventd.store.engine.translation import translated

if TYPE_CHECKING:
    import sqlalchemy as sa


T = TypeVar("T")

CHECK_SECONDS = 1.0
"""Seconds between two checks of the claim, and between two attempts to claim again after it was lost."""
SILENT_SECONDS = 15.0
"""Seconds after which a holder that has not checked its claim counts as frozen or cut off; a standby then ends its
claim.
"""
PATIENCE_MILLISECONDS = 2000
"""How long `take` waits for a lock that is held: the server notices the end of a killed process a moment later."""
SERVE_LOCK = 0x7365727665  # "serve"
"""The advisory lock of a serving node: exclusive for all groups, shared for one."""
NAME = "eventd-serve "
"""The prefix of a session's name; it continues with the holder and ends with a token unique to the claim."""
NAME_BYTES = 63
"""Maximum bytes of a session's name: Postgres truncates longer ones."""

_HELD = """
SELECT coalesce(a.application_name, ''), a.pid,
  CASE a.state WHEN 'idle' THEN coalesce(a.query_start::text, '') ELSE '' END
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND ((l.classid::bigint << 32) | l.objid::bigint) = %s AND (l.mode = 'ExclusiveLock' OR %s)
ORDER BY 1
"""
_END_SILENT = """
SELECT pg_terminate_backend(pid, %s) FROM pg_stat_activity
WHERE pid = %s AND application_name = %s AND state = 'idle' AND query_start::text = %s
  AND pg_has_role(usesysid, 'USAGE')
"""
_STILL_MINE = """
SELECT EXISTS (SELECT FROM pg_locks
  WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock' AND pid = pg_backend_pid())
"""

logger = logging.getLogger("eventd.claim")


def group_lock(group: str) -> int:
    """Return the number of the advisory lock for the node that serves one group."""
    return int.from_bytes(blake2b(group.encode(), digest_size=8, person=b"eventd group").digest(), signed=True)


class ClaimHolder(NamedTuple):
    """A session that holds a claim. `checked` is when its node last checked it, empty during a check or if unknown.

    The time is the server's, and is only compared for equality.
    """

    name: str
    pid: int
    checked: str


def read_claims(conn: DatabaseConnection) -> list[str]:
    """Return each holder of a claim on this database, as its process and machine; `of another user` if hidden."""
    return [_who(holder.name) for holder in _holders(conn.driver, SERVE_LOCK)]


def _holders(driver: Any, lock: int, *, shared: bool = True) -> list[ClaimHolder]:
    """Return who holds a lock, also those that share it if `shared`."""
    return [ClaimHolder(*row) for row in driver.execute(_HELD, (lock, shared)).fetchall()]


def _who(name: str) -> str:
    return name.removeprefix(NAME).rpartition(" ")[0] if name.startswith(NAME) else "of another user"


async def _to_the_end(work: Callable[[], T]) -> T:
    """Return the result of `work`, run in a thread.

    Even a cancelled caller waits until the work has ended: otherwise the work could open a session that is never
    closed.
    """
    working = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait({working})
        working.exception()
        raise


class DatabaseClaim:
    """A claim on a Postgres database, or on one `group` of it; `take` takes it.

    `label` names the database, `who` the process that claims it.
    """

    def __init__(self, url: sa.URL, label: str, group: str, who: str, chance: Chance) -> None:
        self._url = url
        self._label = label
        self._group = group
        token = f" {chance.token(TOKEN_DIGITS // 2).hex()}"
        self.name = (NAME + who).encode()[: NAME_BYTES - len(token)].decode(errors="ignore") + token
        """The name of the claim's session in the database. It ends with a token; the names of all sessions of the node
        end with the same token."""
        self._session: Any = None
        self.holders: list[ClaimHolder] = []
        """The holders when the claim could not be taken."""

    @property
    def holder(self) -> str:
        """Return the first of `holders` as a text, its process and machine; `another process` if none is known."""
        return f"process {_who(self.holders[0].name)}" if self.holders else "another process"

    def take(self) -> None:
        """Take the claim, and end all sessions in this database of nodes that do not hold their own claim.

        Raises `Conflict`, which names the holder, and `DatabaseUnavailable`.
        """
        self.close()
        try:
            with translated(self._label):
                self._session = open_session(self._url, self.name)
                if not self._try_locks():
                    raise self._conflict()
                end_unclaimed(self._session)
        except BaseException:
            self.close()
            raise

    async def take_in_thread(self) -> None:
        """Take the claim as `take` does, in a thread."""
        await _to_the_end(self.take)

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
            # The server notices the end of this session late: until then, another claim could name it as the holder.
            self._session.execute("SELECT pg_advisory_unlock_all()")
            return False
        return True

    def _conflict(self) -> Conflict:
        mine = group_lock(self._group) if self._group else SERVE_LOCK
        # Nodes of other groups share the database, and hold nothing of this one.
        self.holders = _holders(self._session, mine) or _holders(self._session, SERVE_LOCK, shared=False)
        what = f"group {self._group} of the database" if self._group else "the database"
        return Conflict(
            f"{self.holder} serves {what} {self._label}",
            hint="stop it first, wait for its end with --standby, choose another database, or serve one group in each"
            " process with --group",
        )

    def end_silent(self, holder: ClaimHolder) -> bool:
        """End a holder's session.

        Return False if the session has ended already, has checked its claim since `holder` was read, or does not end.
        Raises `DatabaseUnavailable`.
        """
        with translated(self._label), closing(open_session(self._url, "eventd-standby")) as session:
            ended = session.execute(_END_SILENT, (ENDING_MILLISECONDS, holder.pid, holder.name, holder.checked))
            return any(gone for (gone,) in ended.fetchall())  # false: the session did not end in time

    async def keep(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Check the claim every `CHECK_SECONDS`, until cancelled. Raises `Conflict` when another node has taken it.

        A claim that was lost with the server or the network is taken again as soon as the server is back: a restart of
        the server is no reason to stop.
        """
        while True:
            await sleep(CHECK_SECONDS)
            if await asyncio.to_thread(self._holds):
                continue
            logger.warning("claim lost")
            while not await _to_the_end(self._retake):
                await sleep(CHECK_SECONDS)
            logger.info("claim regained")

    def _holds(self) -> bool:
        """Return whether the session still holds its exclusive lock.

        False if the session failed, or a connection pooler has replaced it.
        """
        import psycopg

        with suppress(psycopg.Error):
            return bool(self._session.execute(_STILL_MINE).fetchone()[0])
        return False

    def _retake(self) -> bool:
        try:
            self.take()
        except DatabaseUnavailable:
            return False
        except Conflict:
            lost = [holder for holder in self.holders if holder.name == self.name]
            if self.holders and not lost:  # without any, the lock was released a moment ago
                raise
            with suppress(DatabaseUnavailable):  # the server still considers the session alive that this node has lost
                for holder in lost:
                    self.end_silent(holder)
            return False
        return True

    def close(self) -> None:
        """Release the claim."""
        session, self._session = self._session, None
        if session is not None:
            session.close()
