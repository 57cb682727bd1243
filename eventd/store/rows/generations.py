"""The row that says which content of the effective configuration is the latest, so that all processes count alike."""

from __future__ import annotations

from typing import NamedTuple

import sqlalchemy as sa

from eventd.store.engine.database import fetch, insert
from eventd.store.schema.tables import effective_config


class Noted(NamedTuple):
    """A content by its etag, its number, and since when it is in force (microseconds)."""

    generation: int
    etag: str
    changed_at: int


def read_noted(conn: sa.Connection) -> Noted | None:
    """The latest content that a node has noted; None before the first."""
    rows = fetch(conn, "SELECT generation, etag, changed_at FROM effective_config WHERE id = 1")
    return Noted(*rows[0]) if rows else None


def note(conn: sa.Connection, etag: str, *, registry_version: int, parts_version: int, now: int) -> Noted | None:
    """Note a content and what it was made of, in the open transaction, which must hold the head.

    The same content keeps its number. None where one is noted that was made of something later: whoever was slower
    must not take it back. What has changed since, and is not noted yet, is no reason to wait: where parts are written
    all the time, there always is something.
    """
    rows = fetch(
        conn,
        "SELECT generation, etag, changed_at, registry_version, parts_version FROM effective_config WHERE id = 1",
    )
    before, (registry, parts) = (Noted(*rows[0][:3]), rows[0][3:]) if rows else (Noted(0, "", 0), (0, 0))
    if before.etag == etag:
        return before
    if registry > registry_version or parts > parts_version:
        return None
    noted = Noted(before.generation + 1, etag, now)
    values = {**noted._asdict(), "registry_version": registry_version, "parts_version": parts_version}
    fresh = insert(conn, effective_config).values(id=1, **values)
    conn.execute(fresh.on_conflict_do_update(index_elements=[effective_config.c.id], set_=values))
    return noted
