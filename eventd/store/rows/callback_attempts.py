"""Rows of callback attempts: those that failed, and the extent of a message before its first attempt.

Successes are rows of `batches`. Rows of attempts that failed in the same way are folded: all but the newest become one
row, with a count. Writes are part of the caller's transaction.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch, insert_row, update_rows

SHOWN = 5
"""How many of the newest attempts of a callback are never folded."""
MOST_ROWS = 10_000
"""Maximum number of rows of one callback; older ones are deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackAttempt:
    """One attempt to deliver a message, or several equal ones. Positions are node-wide; times in microseconds.

    The message has the matching records in `(after, upto]` without those at the positions `omitted`. `attempt` counts
    the attempts of the message, `answers` those that the endpoint answered by refusing the content. `status` 0: no
    answer. An empty `reason`: the attempt is under way, or was interrupted. `folded`: how many attempts the row stands
    for, from `first_at` to `started_at`. `shape` identifies the configuration that the message was made with: under
    another configuration, the same records form another message.
    """

    cursor: str
    message_id: str
    after: int
    upto: int
    events: int
    shape: str = ""
    omitted: Sequence[int] = ()
    attempt: int = 1
    answers: int = 0
    status: int = 0
    reason: str = ""
    detail: str = ""
    started_at: int
    first_at: int
    duration: int = 0
    address: str = ""
    key_ids: str = ""
    answer: str = ""
    retry_at: int | None = None
    folded: int = 1
    id: int = 0


_FIELDS = [name for name in CallbackAttempt.__slots__ if name != "id"]
_COLUMNS = ", ".join([*_FIELDS, "id"])
_TROUBLE = ("message_id", "status", "reason", "answers")
"""The columns that must be equal for attempts to be folded."""


def add_attempt(conn: Connection, attempt: CallbackAttempt) -> None:
    """Store an attempt in place of the row that marks it as under way, and fold older attempts that failed in the same
    way."""
    execute(
        conn,
        "DELETE FROM callback_attempts WHERE cursor = ? AND reason = '' AND message_id = ?",
        (attempt.cursor, attempt.message_id),
    )
    values = {name: getattr(attempt, name) for name in _FIELDS}
    values["omitted"] = json.dumps(list(attempt.omitted), separators=(",", ":")) if attempt.omitted else ""
    insert_row(conn, "callback_attempts", values)
    _fold(conn, attempt.cursor)


def _fold(conn: Connection, cursor: str) -> None:
    """Combine the two rows that follow the newest `SHOWN` ones into one, if they show failures of the same kind."""
    sql = f"SELECT {_COLUMNS} FROM callback_attempts WHERE cursor = ? ORDER BY id DESC LIMIT 2 OFFSET {SHOWN}"
    rows = [_attempt(row) for row in fetch(conn, sql, (cursor,))]
    if len(rows) < 2 or any(getattr(rows[0], name) != getattr(rows[1], name) for name in _TROUBLE):
        return
    newer, older = rows
    update_rows(
        conn,
        "callback_attempts",
        {"first_at": older.first_at, "folded": newer.folded + older.folded},
        {"id": newer.id},
    )
    execute(conn, "DELETE FROM callback_attempts WHERE id = ?", (older.id,))


def end_attempts(conn: Connection, cursor: str) -> None:
    """Delete the row that marks an attempt as under way, because its message was delivered."""
    execute(conn, "DELETE FROM callback_attempts WHERE cursor = ? AND reason = ''", (cursor,))


def last_attempt(conn: Connection, cursor: str) -> CallbackAttempt | None:
    """Return the newest row of a cursor; None if it has none."""
    found = read_attempts(conn, cursor, limit=1)
    return found[0] if found else None


def read_attempts(
    conn: Connection, cursor: str, *, before: int | None = None, below: int | None = None, limit: int = 100
) -> list[CallbackAttempt]:
    """Return up to `limit` rows of a cursor, newest first.

    Only those from before a time (microseconds; None: all), and with ids below one (None: all).
    """
    bounds = [("started_at", before), ("id", below)]
    given = {column: value for column, value in bounds if value is not None}
    bound = "".join(f" AND {column} < ?" for column in given)
    sql = f"SELECT {_COLUMNS} FROM callback_attempts WHERE cursor = ?{bound} ORDER BY id DESC LIMIT ?"
    return [_attempt(row) for row in fetch(conn, sql, (cursor, *given.values(), limit))]


def read_attempts_at(conn: Connection, cursor: str, position: int, *, limit: int) -> list[CallbackAttempt]:
    """Return up to `limit` rows of a cursor whose message covered a position, newest first."""
    sql = f"SELECT {_COLUMNS} FROM callback_attempts WHERE cursor = ? AND after < ? AND upto >= ?"
    return [
        _attempt(row) for row in fetch(conn, f"{sql} ORDER BY id DESC LIMIT ?", (cursor, position, position, limit))
    ]


def _attempt(row: Sequence[Any]) -> CallbackAttempt:
    values = dict(zip([*_FIELDS, "id"], row, strict=True))
    values["omitted"] = tuple(json.loads(values["omitted"])) if values["omitted"] else ()
    return CallbackAttempt(**values)


def forget_attempts(conn: Connection, cursor: str) -> None:
    """Delete all rows of a cursor."""
    execute(conn, "DELETE FROM callback_attempts WHERE cursor = ?", (cursor,))


def delete_old_attempts(conn: Connection, before: int, portion: int) -> int:
    """Delete at most `portion` rows older than `before` (microseconds), and surplus ones; return their number.

    The newest row of a cursor stays, however old: it says which message is tried again.
    """
    newest = "SELECT max(id) FROM callback_attempts GROUP BY cursor"
    old = f"SELECT id FROM callback_attempts WHERE started_at < ? AND id NOT IN ({newest}) LIMIT ?"
    sql = f"DELETE FROM callback_attempts WHERE id IN ({old})"
    deleted = execute(conn, sql, (before, portion))
    crowded = fetch(
        conn, "SELECT cursor, count(*) FROM callback_attempts GROUP BY cursor HAVING count(*) > ?", (MOST_ROWS,)
    )
    for cursor, rows in crowded:
        surplus = "SELECT id FROM callback_attempts WHERE cursor = ? ORDER BY id LIMIT ?"
        deleted += execute(
            conn, f"DELETE FROM callback_attempts WHERE id IN ({surplus})", (cursor, min(portion, rows - MOST_ROWS))
        )
    return deleted
