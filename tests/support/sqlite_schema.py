"""The schema of a new SQLite database as text, which spares its first start the migrations.

After a new migration, write it again: `python -m tests.support.sqlite_schema`.
"""

from __future__ import annotations

import tempfile
import textwrap
from contextlib import closing
from pathlib import Path

from eventd.store.engine.database import Connection, Database
from eventd.store.engine.statements import fetch
from eventd.store.schema import migrations

HEAD = """\
-- The schema of a new SQLite database: what all migrations lead to, so that the first start need not load them.
-- Written by `python -m tests.support.sqlite_schema`; a test compares it with the migrations.
"""


def write_schema(conn: Connection) -> str:
    """Return the statements that create what the database holds, without the blanks of their authors."""
    named = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite%' ORDER BY rowid"
    lines = [" ".join(sql.split()) for (sql,) in fetch(conn, named)]
    return HEAD + "".join(f"{textwrap.fill(line, 118, subsequent_indent='    ')};\n" for line in lines)


def migrated_schema(folder: Path) -> str:
    """Return the schema that the migrations lead to, in a new database in the folder."""
    with closing(Database(f"sqlite:///{folder / 'migrated.db'}")) as database:
        database.write_now(migrations.migrate)
        return database.read_now(write_schema)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        migrations.SQLITE_SCHEMA.write_text(migrated_schema(Path(made)), encoding="utf-8")
