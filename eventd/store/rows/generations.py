"""The row with the etag and the generation of the effective configuration, so that all processes show the same."""

from __future__ import annotations

from typing import NamedTuple

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch, insert_row, replacing


class Generation(NamedTuple):
    """A generation of the effective configuration, its etag, and since when it is in effect (microseconds)."""

    generation: int
    etag: str
    changed_at: int


def read_noted(conn: Connection) -> Generation | None:
    """Return the latest stored generation of the effective configuration; None before the first."""
    rows = fetch(conn, "SELECT generation, etag, changed_at FROM effective_config WHERE id = 1")
    return Generation(*rows[0]) if rows else None


def note(conn: Connection, etag: str, *, registry_version: int, parts_version: int, now: int) -> Generation | None:
    """Store the etag of the effective configuration and the versions it was built from; return its generation.

    The head must be locked. An equal etag changes nothing; another one raises the generation. Returns None, and stores
    nothing, if the stored etag is another one that was built from newer versions: a slower process must not replace
    that. The given versions need not be the latest, because parts may be written constantly.
    """
    rows = fetch(
        conn,
        "SELECT generation, etag, changed_at, registry_version, parts_version FROM effective_config WHERE id = 1",
    )
    before, (registry, parts) = (Generation(*rows[0][:3]), rows[0][3:]) if rows else (Generation(0, "", 0), (0, 0))
    if before.etag == etag:
        return before
    if registry > registry_version or parts > parts_version:
        return None
    noted = Generation(before.generation + 1, etag, now)
    values = {**noted._asdict(), "registry_version": registry_version, "parts_version": parts_version}
    end = f"ON CONFLICT (id) DO UPDATE SET {replacing(values)}"
    insert_row(conn, "effective_config", {"id": 1, **values}, end)
    return noted
