"""The highest row id noted as deleted from each numbered table, for readers that follow the table by id.

Rows are deleted by age, or with their peer, and not strictly in the order of their ids: up to that id rows may be
missing, after it none is. Rows of deleted topics are not noted.
"""

from __future__ import annotations

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch

NUMBERED = ("batches", "inbound_batches", "inbound_gaps", "refusals")
"""The tables that are read by row id."""


def note_forgotten(conn: Connection, table: str, upto: int) -> None:
    """Record `upto` as the highest id of rows just deleted from a table; 0, or less than is recorded, changes nothing.

    The head must be locked.
    """
    if upto:
        sql = (
            "INSERT INTO forgotten (book, upto) VALUES (?, ?) ON CONFLICT (book) DO UPDATE SET upto ="
            " CASE WHEN excluded.upto > forgotten.upto THEN excluded.upto ELSE forgotten.upto END"
        )
        execute(conn, sql, (table, upto))


def read_forgotten(conn: Connection, table: str) -> int:
    """Return the id up to which rows of a table may have been deleted; 0: no row has been."""
    rows = fetch(conn, "SELECT upto FROM forgotten WHERE book = ?", (table,))
    return int(rows[0][0]) if rows else 0
