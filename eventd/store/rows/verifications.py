"""Rows of verifications: the results of comparisons with peers. Writes are part of the caller's transaction."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch, insert_row

MOST_VERIFICATIONS: Final = 20
"""Maximum number of verifications of one peer; with a new one, the oldest is deleted."""


class Verification(NamedTuple):
    """The result of one comparison.

    `at`: when the comparison began; `duration`: how long it took; both in microseconds. `why`: why the peer could not
    be compared; empty if it was. The numbers are those of `Findings`.
    """

    group_name: str
    peer: str
    run: str
    at: int
    duration: int
    why: str
    compared: int = 0
    missing: int = 0
    extra: int = 0
    other: int = 0
    unresolved: int = 0
    pending: int = 0
    id: int = 0


_COLUMNS: Final = ", ".join(Verification._fields)


def add_verification(conn: Connection, verification: Verification) -> None:
    """Insert a verification, and delete the oldest of the peer beyond `MOST_VERIFICATIONS`."""
    values = {name: value for name, value in verification._asdict().items() if name != "id"}
    insert_row(conn, "verifications", values)
    of = (verification.group_name, verification.peer)
    newest = "SELECT id FROM verifications WHERE group_name = ? AND peer = ? ORDER BY id DESC LIMIT 1 OFFSET ?"
    if rows := fetch(conn, newest, (*of, MOST_VERIFICATIONS)):
        sql = "DELETE FROM verifications WHERE group_name = ? AND peer = ? AND id <= ?"
        execute(conn, sql, (*of, rows[0][0]))


def read_verifications(conn: Connection, group: str, peer: str = "", *, limit: int) -> list[Verification]:
    """Return up to `limit` verifications of a group, or of one peer of it, newest first."""
    where, values = "group_name = ?", list[Any]([group])
    if peer:
        where, values = f"{where} AND peer = ?", [group, peer]
    sql = f"SELECT {_COLUMNS} FROM verifications WHERE {where} ORDER BY id DESC LIMIT ?"
    return [Verification(*row) for row in fetch(conn, sql, (*values, limit))]


def delete_old_verifications(conn: Connection, before: int, portion: int) -> int:
    """Delete at most `portion` verifications that began before a time (microseconds); return their number."""
    old = "SELECT id FROM verifications WHERE at < ? ORDER BY id LIMIT ?"
    return execute(conn, f"DELETE FROM verifications WHERE id IN ({old})", (before, portion))
