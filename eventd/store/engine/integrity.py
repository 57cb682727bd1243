"""Checks the integrity of a database file."""

from __future__ import annotations

from eventd.store.engine.connection import DatabaseConnection
from eventd.store.engine.statements import fetch


def find_damage(conn: DatabaseConnection) -> list[str]:
    """Return the problems that SQLite's quick check finds, at most twenty, empty for none; it reads the whole file.

    For SQLite only: Postgres checks its pages itself.
    """
    return [str(line) for (line,) in fetch(conn, "PRAGMA quick_check(20)") if line != "ok"]


def find_any_damage(conn: DatabaseConnection) -> list[str]:
    """Like `find_damage`, and also find where an index differs from its table: for a copy that is kept for years."""
    return [str(line) for (line,) in fetch(conn, "PRAGMA integrity_check(20)") if line != "ok"]
