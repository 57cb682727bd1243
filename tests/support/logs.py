"""An empty log, quickly: to create a database takes longer than most tests that need one."""

from __future__ import annotations

from eventd.log.cursors.trimmed import NUMBERED
from eventd.store.engine.connection import DatabaseConnection
from eventd.store.schema import migrations
from eventd.store.schema.tables import metadata
from eventd.testing import NOW


def empty(conn: DatabaseConnection) -> None:
    """Remove all records; what is left is the head of a new log, whose numbers begin at 1."""
    tables = [f"DELETE FROM {table.name}" for table in reversed(metadata.sorted_tables)]
    if conn.dialect == "sqlite":
        for statement in tables:
            conn.driver.execute(statement)
    else:  # in one message, and without waiting for the disk: nothing depends on what was removed
        numbers = [f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), 1, false)" for table in NUMBERED]
        script = ";".join(["SET LOCAL synchronous_commit = off", *tables, *numbers])
        conn.driver.execute(script)
    migrations.upgrade(conn, now=NOW)
