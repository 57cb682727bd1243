"""Upgrades a database's schema, the same way on both databases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import eventd
from eventd.errors import DatabaseUnusable
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.foreign_file import UNFINISHED_COPY, refuse_foreign
from eventd.store.engine.statements import chance_of, execute, fetch, has_table, insert_row, is_new_file, lock_schema
from eventd.store.engine.translation import SchemaUnusable
from eventd.text.plural import counted

if TYPE_CHECKING:
    from alembic.config import Config


def migrations_folder() -> Path:
    """Return the folder of the migrations: inside of the package in a wheel, beside it in a checkout."""
    package = Path(eventd.__file__).parent
    inside = package / "migrations"
    return inside if inside.is_dir() else package.parent / "migrations"


REVISIONS = tuple(f"{number:04}" for number in range(1, 27))
"""All revisions, oldest first: a constant, so that programs compare them without loading Alembic."""
NEWEST = REVISIONS[-1]
"""The revision this program was built for."""
SQLITE_SCHEMA = Path(__file__).with_name("sqlite.sql")
"""The SQLite schema that results from the migrations; a test compares the two."""


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    return config


def read_revision(conn: Connection) -> str | None:
    """Return the revision of the open database; None if it was never migrated."""
    if not has_table(conn, "alembic_version"):
        return None
    rows = fetch(conn, "SELECT version_num FROM alembic_version")
    return str(rows[0][0]) if rows else None


def pending(conn: Connection) -> list[str]:
    """Return the revisions that were not yet applied to the open database, oldest first.

    Raises `SchemaUnusable` when the database was written by a newer program, or holds an unfinished copy.
    """
    if has_table(conn, UNFINISHED_COPY):
        raise SchemaUnusable(
            "a `routerctl db copy` to this database did not finish",
            hint="run the copy again, which replaces what it has copied, or drop the database and create it again",
        )
    return _pending(conn)


def _pending(conn: Connection) -> list[str]:
    current = read_revision(conn)
    if current == NEWEST:
        return []
    if current is None:
        return [*REVISIONS]
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(_config())
    known = {script.revision for script in scripts.walk_revisions()}
    if current is not None and current not in known:
        raise SchemaUnusable(
            f"the database has the schema {current!r}, which this version does not know",
            hint="run a newer routerd-eventd, or restore a backup made by this one",
        )
    return [script.revision for script in reversed(list(scripts.iterate_revisions("heads", current)))]


def upgrade(conn: Connection, *, now: int, copying: bool = False) -> list[str]:
    """Apply every pending migration in the open transaction; create the head row if it is missing.

    Returns the applied revisions, oldest first. `copying`: an unfinished copy is not refused.
    """
    lock_schema(conn)
    applied = _pending(conn) if copying else pending(conn)
    if applied and is_new_file(conn):
        _create(conn)
    elif applied:
        migrate(conn)
    fresh = {
        "id": 1,
        "next_position": 1,
        "epoch": new_epoch(conn),
        "incarnation": 1,
        "registry_version": 1,
        "instance": chance_of(conn).token(8).hex(),
    }
    insert_row(conn, "log_heads", fresh, "ON CONFLICT DO NOTHING")
    return applied


def _create(conn: Connection) -> None:
    """Create the newest schema in a new SQLite file.

    Running the migrations instead would take half a second, and 26 MB of memory that the node would keep.
    """
    for statement in SQLITE_SCHEMA.read_text(encoding="utf-8").split(";\n"):
        execute(conn, statement)
    execute(conn, "INSERT INTO alembic_version VALUES (?)", (NEWEST,))


def migrate(conn: Connection) -> None:
    """Apply every pending migration in the open transaction."""
    from alembic import command

    if not conn.sqlalchemy.in_transaction():  # otherwise Alembic would commit in between
        conn.sqlalchemy.begin()
    config = _config()
    config.attributes["connection"] = conn.sqlalchemy
    command.upgrade(config, "heads")


def new_epoch(conn: Connection) -> str:
    """Return a random name for an epoch, so that a restored copy of a log is never taken for the original."""
    return chance_of(conn).token(8).hex()


def require_current(database: Database, *, hint: str = "run `routerd-eventd migrate`") -> None:
    """Raise `DatabaseUnusable` for the file of another program, for a newer schema, and for an older one.

    `hint`: of the error for an older schema, with the command that upgrades it.
    """
    refuse_foreign(database.path)
    missing = database.read_now(pending)
    if missing:
        raise DatabaseUnusable(
            f"the database {database.label()} lacks {counted(len(missing), 'migration')}: {', '.join(missing)}",
            hint=hint,
        )
