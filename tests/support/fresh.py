"""Databases at the newest schema, quickly: to apply all migrations takes longer than most tests that need one."""

from __future__ import annotations

import atexit
import shutil
import sqlite3
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest
import sqlalchemy as sa

from eventd.runtime.chance import SYSTEM
from eventd.store.engine.connection import DatabaseConnection, ProcessFacts
from eventd.store.engine.database import Database
from eventd.store.schema import migrations
from tests.support.logs import empty
from tests.support.postgres import EMPTYING, PostgresServer

on_sqlite = pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)
"""Runs a test once: when this was measured, other tests executed on Postgres each statement that it executes."""


def make_current(url: str, *, now: int) -> None:
    """Bring a database to the newest schema; a missing SQLite file becomes a copy of the template, with its own history
    id."""
    database = Database(url)
    try:
        if database.path is not None and not database.path.exists():
            shutil.copyfile(template(), database.path)
            database.path.chmod(0o600)
            with closing(sqlite3.connect(database.path)) as file, file:  # its own engine would check the schema first
                file.execute("PRAGMA synchronous = OFF")
                file.execute("UPDATE log_heads SET epoch = ?, instance = ?", _new_ids())
        else:
            database.write_now(migrations.upgrade, now=now)
    finally:
        database.close()


def create_current(server: PostgresServer) -> str:
    """Create a Postgres database at the newest schema, with its own history id; return its URL."""
    url = server.create_database(like=_postgres_template(server))
    with server.connect(url) as session:
        session.execute("UPDATE log_heads SET epoch = %s, instance = %s", _new_ids())
    return url


@cache
def _postgres_template(server: PostgresServer) -> str:
    url = server.create_database()
    make_current(url, now=1)
    return url


def _new_ids() -> tuple[str, str]:
    """Return the ids of a history that a copied database gets."""
    return SYSTEM.token(8).hex(), SYSTEM.token(8).hex()


class SharedDatabase:
    """A Postgres database that tests share one after the other: to empty it takes milliseconds, to create one half a
    second."""

    def __init__(self, url: str, *, now: int) -> None:
        self.url = url
        make_current(url, now=now)
        # One session is kept open: in a new one the server plans the emptying of all tables anew, for ten milliseconds.
        # A test may end it, which the ping notices.
        named = {"application_name": EMPTYING}
        self._engine = sa.create_engine(url, pool_size=1, pool_pre_ping=True, connect_args=named)

    def empty(self) -> None:
        """Leave only the head of a new log, with its own history id. No process may have the database open."""
        with self._engine.begin() as conn:
            driver = conn.connection.driver_connection
            empty(DatabaseConnection("postgresql", driver, lambda: conn, process=ProcessFacts(SYSTEM, "")))

    def close(self) -> None:
        """End the session."""
        self._engine.dispose()


@cache
def template() -> Path:
    """Return a SQLite file at the newest schema, to be copied: the copies share a history."""
    folder = Path(tempfile.mkdtemp(prefix="eventd-template-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    database = Database(f"sqlite:///{folder}/eventd.db")
    try:
        database.write_now(migrations.upgrade, now=1)
    finally:
        database.close()
    return folder / "eventd.db"
