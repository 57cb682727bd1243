"""Reads all stored records directly, for tests that look below the API of the log."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from eventd.log.core.blocks import Block, unpack
from eventd.log.core.values import Record
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch

_SQL = f"SELECT {', '.join(Block._fields)} FROM blocks"


def read_stored(conn: Connection, topic_id: int | None = None) -> list[Record]:
    """Return all records of a topic, or of the log, in order."""
    where, params = ("", ()) if topic_id is None else (" WHERE topic_id = ?", (topic_id,))
    return _records(fetch(conn, f"{_SQL}{where} ORDER BY position", params))


def read_file(file: Path) -> list[Record]:
    """Return all records of a SQLite file, as any program could read it."""
    with closing(sqlite3.connect(file)) as conn:
        return _records(conn.execute(f"{_SQL} ORDER BY position").fetchall())


def _records(rows: list[tuple[object, ...]]) -> list[Record]:
    return [record for row in rows for record in unpack(Block._make(row))]
