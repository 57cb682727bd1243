"""SQLAlchemy engines for both databases, and the settings of each connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy import event

from eventd.errors import MissingExtra
from eventd.store.engine.fence import require_claim, session_name
from eventd.store.engine.foreign_file import connect_untouched
from eventd.store.engine.private_file import create_private
from eventd.store.engine.sessions import KEEPALIVES, SERVER_OPTIONS

Kind = Literal["sqlite", "postgresql"]

OTHERS = 2
"""Connections of an engine for threads that are not of a pool: the threads of a pool keep theirs."""

IDLE_SECONDS = 30
"""Seconds that a write transaction on Postgres may idle: a frozen process would block all others."""

KEPT_BY_WRITER: dict[Kind, str] = {"sqlite": "PRAGMA temp_store=MEMORY"}
"""Settings of the writer's connection: without them, a savepoint keeps its undo data in a file. Migrations, which sort
whole tables, use connections without them.
"""


def open_engine(url: sa.URL, kind: Kind, *, readers: int, patience: float, claim: str = "") -> sa.Engine:
    """Create an engine for the writer (`readers` = 0) or so many `readers`, which wait `patience` seconds for a lock.

    Postgres: with a `claim`, connections are refused unless that claim on the database is held. Raises `MissingExtra`
    when the Postgres driver is absent.
    """
    size = max(1, readers)
    if kind == "sqlite":
        engine = sa.create_engine(
            url, pool_size=size, max_overflow=OTHERS, connect_args={"check_same_thread": False, "timeout": patience}
        )
        event.listen(engine, "connect", _prepare_sqlite)
        if url.database:
            event.listen(engine, "do_connect", lambda *_: create_private(Path(url.database or "")))
        return engine
    # regardless of the defaults of the server or the role
    options = f"-c synchronous_commit=on -c lock_timeout={patience * 1000:.0f} {SERVER_OPTIONS}"
    if not readers:
        options += f" -c idle_in_transaction_session_timeout={IDLE_SECONDS * 1000}"
    try:
        engine = sa.create_engine(
            url,
            pool_size=size,
            max_overflow=OTHERS,
            isolation_level="REPEATABLE READ" if readers else "READ COMMITTED",
            connect_args={
                "connect_timeout": 5,
                "application_name": session_name("eventd-reader" if readers else "eventd-writer", claim),
                "options": options,
                **KEEPALIVES,
            },
        )
    except ModuleNotFoundError:
        raise MissingExtra(
            "the Postgres driver is not installed", hint="install the extra, in a clone: pip install '.[postgres]'"
        ) from None
    if claim:
        event.listen(engine, "do_connect", partial(_connect_under, claim))
    return engine


def open_untouched(path: Path, patience: float) -> sa.Engine:
    """Create an engine for reading a SQLite file, which may be in a read-only folder, with `connect_untouched`.

    A connection waits `patience` seconds for a lock.
    """
    return sa.create_engine(
        "sqlite://", creator=lambda: connect_untouched(path, seconds=patience), poolclass=sa.NullPool
    )


def _connect_under(claim: str, dialect: sa.Dialect, _record: object, args: Any, kwargs: Any) -> Any:
    connection: Any = dialect.connect(*args, **kwargs)
    try:
        require_claim(connection, claim)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def begun(conn: sa.Connection, begin: str) -> Iterator[None]:
    """Run the block as one transaction, committed at its end. `begin`: the statement that begins it, for SQLite.

    It is the driver's transaction. SQLAlchemy also begins one with its first statement, which means nothing to either
    driver; using SQLAlchemy's would cost as much as writing one event.
    """
    raw = driver_of(conn)
    if begin:
        raw.execute(begin)
    try:
        yield
        raw.commit()
    except BaseException:
        with suppress(Exception):  # the first error is the one that matters
            if not conn.in_transaction():
                conn.begin()
            conn.rollback()  # SQLAlchemy knows what a lost connection means for the others
        raise
    if conn.in_transaction():
        conn.rollback()


def driver_of(conn: sa.Connection) -> Any:
    """Return the driver's own connection, for statements that need nothing of SQLAlchemy."""
    return conn.connection.driver_connection


def _prepare_sqlite(connection: Any, _record: object) -> None:
    # transactions are begun explicitly: the driver's own are deferred and fail at once
    connection.isolation_level = None
    for pragma in (
        "page_size=8192",  # for a new file: bodies of a few hundred bytes need fewer pages, half the frames per commit
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        "cache_size=-16384",
        "journal_size_limit=67108864",
    ):
        connection.execute(f"PRAGMA {pragma}")
