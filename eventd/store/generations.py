"""The row that says which content of the effective configuration is the latest, so that all processes count alike."""

from __future__ import annotations

from typing import NamedTuple

import sqlalchemy as sa

from eventd.store.database import fetch, insert
from eventd.store.schema import effective_config


class Noted(NamedTuple):
    """A content by its etag, its number, and since when it is in force (microseconds)."""

    generation: int
    etag: str
    changed_at: int


def read_noted(conn: sa.Connection) -> Noted | None:
    """The latest content that a node has noted; None before the first."""
    rows = fetch(conn, "SELECT generation, etag, changed_at FROM effective_config WHERE id = 1")
    return Noted(*rows[0]) if rows else None


def note(conn: sa.Connection, etag: str, now: int) -> Noted:
    """Note a content in the open transaction, which must hold the head; the same content keeps its number."""
    before = read_noted(conn)
    if before is not None and before.etag == etag:
        return before
    noted = Noted(before.generation + 1 if before else 1, etag, now)
    fresh = insert(conn, effective_config).values(id=1, **noted._asdict())
    conn.execute(fresh.on_conflict_do_update(index_elements=[effective_config.c.id], set_=noted._asdict()))
    return noted
