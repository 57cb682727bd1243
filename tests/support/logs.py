"""An empty log, quickly: to create a database takes longer than most tests that need one."""

from __future__ import annotations

import sqlalchemy as sa

from eventd.log.cursors.trimmed import NUMBERED
from eventd.store.schema import migrations
from eventd.store.schema.tables import metadata
from eventd.testing import NOW


def empty(conn: sa.Connection) -> None:
    """Remove all records; what is left is the head of a new log, whose numbers begin at 1."""
    for table in reversed(metadata.sorted_tables):
        conn.execute(table.delete())
        if table in NUMBERED and conn.dialect.name != "sqlite":
            conn.execute(sa.text(f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), 1, false)"))
    migrations.upgrade(conn, now=NOW)
