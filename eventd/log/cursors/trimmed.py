"""How far the numbered books were forgotten: who reads them later is told that rows may be missing.

Rows go by their age, or with the peer they are of, and not strictly in the order of their numbers. So what is kept is
the highest number that went: what a reader finds beyond it is all there ever was.
"""

from __future__ import annotations

import sqlalchemy as sa

from eventd.store.engine.database import execute, fetch
from eventd.store.schema.tables import batches, inbound_batches, inbound_gaps, refusals

NUMBERED = (batches, inbound_batches, inbound_gaps, refusals)
"""The tables that others read by the ids of their rows."""


def note_forgotten(conn: sa.Connection, table: str, upto: int) -> None:
    """Rows of a table up to this id were removed; 0: none. The head must be locked."""
    if upto:
        sql = (
            "INSERT INTO forgotten (book, upto) VALUES (?, ?) ON CONFLICT (book) DO UPDATE SET upto ="
            " CASE WHEN excluded.upto > forgotten.upto THEN excluded.upto ELSE forgotten.upto END"
        )
        execute(conn, sql, (table, upto))


def read_forgotten(conn: sa.Connection, table: str) -> int:
    """Up to which id rows of a table may be missing; 0: none is."""
    rows = fetch(conn, "SELECT upto FROM forgotten WHERE book = ?", (table,))
    return int(rows[0][0]) if rows else 0
