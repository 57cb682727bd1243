"""The fence on Postgres: of all nodes, only those that hold their claim have sessions that can write.

Each session of a node is named after the node's claim. A node that takes a claim ends the sessions of every claim that
is not held, including their transactions, and a node without its claim gets no new session. So a process that was
frozen or cut off cannot write any more once another has taken its claim.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from eventd.errors import DatabaseUnavailable
from eventd.store.engine.sessions import open_session

if TYPE_CHECKING:
    import sqlalchemy as sa


TOKEN_DIGITS = 8
"""Hexadecimal digits at the end of a claim's name that make it unique."""
ENDING_MILLISECONDS = 5000
"""Milliseconds to wait for the end of a session that was asked to end."""
ANSWER_SECONDS = 1.0
"""Seconds to wait for the database when readiness asks for the claim."""

# A node that waits for the claim of one group already holds the lock of the database, but not exclusively.
_CLAIMS = """
SELECT h.application_name FROM pg_locks l JOIN pg_stat_activity h ON h.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.mode = 'ExclusiveLock'
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND h.application_name LIKE 'eventd-serve %%'
"""
_IS_HELD = f"SELECT EXISTS ({_CLAIMS} AND h.application_name = %s)"
_END_UNCLAIMED = f"""
SELECT a.application_name, pg_terminate_backend(a.pid, %s) FROM pg_stat_activity a
WHERE a.datname = current_database() AND pg_has_role(a.usesysid, 'USAGE')
  AND a.application_name ~ '^eventd-[a-z]+ [0-9a-f]{{{TOKEN_DIGITS}}}$'
  AND right(a.application_name, {TOKEN_DIGITS}) NOT IN
    (SELECT right(c.application_name, {TOKEN_DIGITS}) FROM ({_CLAIMS}) c)
"""

logger = logging.getLogger("eventd.claim")


def session_name(kind: str, claim: str) -> str:
    """Return the name of a session: its purpose, such as `eventd-writer`, and the token of its node's claim, if any."""
    return f"{kind} {claim[-TOKEN_DIGITS:]}" if claim else kind


def is_held(session: Any, claim: str) -> bool:
    """Return whether the claim of that name is held now. Raises `psycopg.Error`."""
    return bool(session.execute(_IS_HELD, (claim,)).fetchone()[0])


def end_unclaimed(session: Any) -> int:
    """End all sessions of nodes that do not hold their claim, log each, and return their number.

    Raises `psycopg.Error`.
    """
    ended = session.execute(_END_UNCLAIMED, (ENDING_MILLISECONDS,)).fetchall()
    for name, gone in ended:
        about = {"session": name}
        if gone:
            logger.warning("unclaimed session ended", extra=about)
        else:
            logger.error("unclaimed session hung", extra=about)
    return len(ended)


def require_claim(session: Any, claim: str) -> None:
    """Check the claim before a new session is used. Raises `DatabaseUnavailable` when it is not held."""
    if not is_held(session, claim):
        raise DatabaseUnavailable(
            "this node does not hold its claim on the database",
            hint="it claims the database again automatically, unless another node serves it",
        )
    session.rollback()


class ClaimCheck:
    """Asks the database, over a session of its own, whether the claim is held. Call `close` at the end."""

    def __init__(self, url: sa.URL, claim: str) -> None:
        self._url = url
        self._claim = claim
        self._session: Any = None
        self._closed = False
        self._asking: asyncio.Future[str] | None = None

    async def ask(self) -> str:
        """Return `ok` or the problem. No answer in time is a problem too: another node may have taken the claim."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().run_in_executor(None, self._ask)
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                return await asyncio.shield(self._asking)
        return f"the database did not answer within {ANSWER_SECONDS:g} s"

    def _ask(self) -> str:
        import psycopg

        try:
            if self._session is None:
                self._session = open_session(self._url, session_name("eventd-ready", self._claim))
            held = is_held(self._session, self._claim)
        except psycopg.Error:
            self._drop()
            return "the database does not answer"
        finally:
            if self._closed:
                self._drop()
        return "ok" if held else "this node does not hold its claim on the database"

    def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    async def close(self) -> None:
        """End the session of the check; one that waits for the server ends when the server responds."""
        self._closed = True
        if self._asking is None or self._asking.done():
            self._drop()
