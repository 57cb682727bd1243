"""Sessions of the console: browsers that signed in with an API key. Neither the key nor the cookie is stored."""

from __future__ import annotations

from typing import Final, NamedTuple

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch, insert_row, update_rows

MOST_SESSIONS: Final = 1000
"""Maximum number of sessions: a new one then ends the one that was used longest ago."""
MOST_OF_KEY: Final = 100
"""Maximum number of sessions of one API key, so that the holder of a key cannot end the sessions of other keys."""
ID_LENGTH: Final = 16
IDLE: Final = 3600 * 1_000_000
"""How long a session lasts without a request, in microseconds."""


class SessionRow(NamedTuple):
    """A session. `digest`: SHA-256 of the cookie's value; `key_digest`: that of the API key; both in hexadecimal.

    `key_name` is empty for a key of the settings. Times are microseconds.
    """

    digest: str
    key_digest: str
    key_name: str
    address: str
    created_at: int
    used_at: int
    expires_at: int

    @property
    def id(self) -> str:
        """Return what tells operators which session it is; its cookie cannot be guessed from it."""
        return self.digest[:ID_LENGTH]


_COLUMNS: Final = ", ".join(SessionRow._fields)


def create_session(conn: Connection, row: SessionRow) -> None:
    """Insert a session.

    Of the sessions beyond `MOST_OF_KEY` and `MOST_SESSIONS`, end those that were used longest ago.
    """
    insert_row(conn, "console_sessions", row._asdict())
    _end_oldest(conn, MOST_OF_KEY, " WHERE key_digest = ?", row.key_digest)
    _end_oldest(conn, MOST_SESSIONS)


def _end_oldest(conn: Connection, most: int, condition: str = "", *params: object) -> None:
    """Of the sessions that satisfy the condition, end those that were used longest ago, so that at most `most` are
    left."""
    count = int(fetch(conn, f"SELECT count(*) FROM console_sessions{condition}", params)[0][0])
    if count > most:
        oldest = f"SELECT digest FROM console_sessions{condition} ORDER BY used_at, digest LIMIT ?"
        execute(conn, f"DELETE FROM console_sessions WHERE digest IN ({oldest})", (*params, count - most))


def find_session(conn: Connection, digest: str) -> SessionRow | None:
    """Return the session of a cookie, also an expired one; None without one."""
    rows = fetch(conn, f"SELECT {_COLUMNS} FROM console_sessions WHERE digest = ?", (digest,))
    return SessionRow(*rows[0]) if rows else None


def is_valid(row: SessionRow | None, now: int) -> bool:
    """Return whether a session has not ended, apart from its key.

    One that was used in the future, when the clock was ahead, would last for that much longer, so it has ended.
    """
    return row is not None and now < row.expires_at and abs(now - row.used_at) < IDLE


def read_sessions(conn: Connection) -> list[SessionRow]:
    """Return all sessions, also expired ones, the one that was used last first."""
    rows = fetch(conn, f"SELECT {_COLUMNS} FROM console_sessions ORDER BY used_at DESC, digest")
    return [SessionRow(*row) for row in rows]


def touch_session(conn: Connection, digest: str, now: int) -> None:
    """Note that a session is used."""
    update_rows(conn, "console_sessions", {"used_at": now}, {"digest": digest})


def end_sessions(conn: Connection, digest_prefix: str) -> int:
    """Delete the sessions whose digests begin with a prefix, and return their number."""
    found = [row.digest for row in read_sessions(conn) if row.digest.startswith(digest_prefix)]
    for digest in found:
        execute(conn, "DELETE FROM console_sessions WHERE digest = ?", (digest,))
    return len(found)


def delete_ended_sessions(conn: Connection, now: int) -> int:
    """Delete the sessions that are no longer valid, apart from their keys; return their number."""
    sql = "DELETE FROM console_sessions WHERE expires_at <= ? OR used_at <= ? OR used_at >= ?"
    return execute(conn, sql, (now, now - IDLE, now + IDLE))
