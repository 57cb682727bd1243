"""Opening connections to either database; every engine of SQLAlchemy is created here."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from eventd.errors import MissingExtra
from eventd.store.engine.address import SqliteUrl
from eventd.store.engine.connection import DatabaseConnection, Kind, ProcessFacts
from eventd.store.engine.fence import require_claim, session_name
from eventd.store.engine.foreign_file import connect_untouched, refuse_orphaned_log, refuse_unfinished_copy
from eventd.store.engine.private_file import create_private
from eventd.store.engine.sessions import KEEPALIVES, SERVER_OPTIONS

if TYPE_CHECKING:
    import sqlalchemy as sa

OTHERS = 2
"""Number of connections of an engine for threads outside of its pool; each thread of the pool keeps a connection of
its own."""

IDLE_SECONDS = 30
"""Seconds that a write transaction on Postgres may idle: a frozen process would block all others."""

KEPT_BY_WRITER: dict[Kind, str] = {"sqlite": "PRAGMA temp_store=MEMORY"}
"""Settings of the writer's connection: without them, a savepoint keeps its undo data in a file. Migrations, which sort
whole tables, use connections without them.
"""


class Engine(Protocol):
    """Opens connections to a database, and keeps some that are not in use. Each is used by one thread at a time."""

    def take(self) -> DatabaseConnection:
        """Return a connection that is not in use."""
        ...

    def give_back(self, conn: DatabaseConnection) -> None:
        """Return a connection that was taken. An open transaction is rolled back."""
        ...

    def dispose(self) -> None:
        """Close the connections that are not in use."""
        ...


@contextmanager
def lend(engine: Engine) -> Iterator[DatabaseConnection]:
    """Yield a connection of the engine for the block."""
    conn = engine.take()
    try:
        yield conn
    finally:
        engine.give_back(conn)


WAL_ATTEMPTS = 20
"""Maximum number of attempts to switch a new file to WAL. An attempt fails only while another process switches it, or
has just begun to write.
"""


class SqliteEngine:
    """The connections to a SQLite file. They wait `patience` seconds for a lock."""

    def __init__(self, url: SqliteUrl, patience: float, process: ProcessFacts | None) -> None:
        self._url = url
        self._patience = patience
        self._origin = process
        self._unused: list[DatabaseConnection] = []

    def take(self) -> DatabaseConnection:
        try:
            return self._unused.pop()
        except IndexError:
            driver = self.open()
            return DatabaseConnection("sqlite", driver, partial(_adopt, driver), process=self._origin)

    def give_back(self, conn: DatabaseConnection) -> None:
        try:
            conn.driver.rollback()
        except sqlite3.Error:
            conn.driver.close()
            return
        if len(self._unused) < OTHERS:
            self._unused.append(conn)
        else:
            conn.driver.close()

    def open(self) -> sqlite3.Connection:
        """Open a connection that the caller closes."""
        path = Path(self._url.database)
        refuse_orphaned_log(path)
        refuse_unfinished_copy(path)
        create_private(path)
        driver = self._url.connect(self._patience)
        try:
            _prepare_sqlite(driver)
        except BaseException:
            driver.close()
            raise
        return driver

    def dispose(self) -> None:
        while self._unused:
            self._unused.pop().driver.close()


class PostgresEngine:
    """The connections to a Postgres database, pooled by SQLAlchemy."""

    def __init__(self, engine: sa.Engine, process: ProcessFacts | None) -> None:
        self._engine = engine
        self._origin = process

    def take(self) -> DatabaseConnection:
        conn = self._engine.connect()
        driver = conn.connection.driver_connection
        return DatabaseConnection("postgresql", driver, lambda: conn, info=conn.info, process=self._origin)

    def give_back(self, conn: DatabaseConnection) -> None:
        conn.sqlalchemy.close()

    def dispose(self) -> None:
        self._engine.dispose()


class _BorrowedDriver:
    """A driver's connection that is lent to SQLAlchemy, which must not end the transaction: the caller does that."""

    def __init__(self, driver: sqlite3.Connection) -> None:
        self._driver = driver

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def commit(self) -> None:
        """Leave the transaction open."""

    rollback = close = commit


def _adopt(driver: sqlite3.Connection) -> sa.Connection:
    """Return SQLAlchemy's connection over one to a SQLite file."""
    import sqlalchemy as sa

    creator: Callable[[], Any] = partial(_BorrowedDriver, driver)
    return sa.create_engine("sqlite://", creator=creator, poolclass=sa.NullPool).connect()


def open_engine(
    url: SqliteUrl | sa.URL, *, readers: int, patience: float, claim: str = "", process: ProcessFacts | None = None
) -> Engine:
    """Create an engine for the writer (`readers` = 0) or for `readers` readers, which wait `patience` seconds for a
    lock.

    Postgres: with a `claim`, connections are refused unless that claim on the database is held. Raises `MissingExtra`
    when the Postgres driver is absent.
    """
    if isinstance(url, SqliteUrl):
        return SqliteEngine(url, patience, process)
    import sqlalchemy as sa
    from sqlalchemy import event

    # regardless of the defaults of the server or the role
    options = f"-c synchronous_commit=on -c lock_timeout={patience * 1000:.0f} {SERVER_OPTIONS}"
    if not readers:
        options += f" -c idle_in_transaction_session_timeout={IDLE_SECONDS * 1000}"
    try:
        engine = sa.create_engine(
            url,
            pool_size=max(1, readers),
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
    if not readers:
        event.listen(engine, "connect", _compress_fast)
    return PostgresEngine(engine, process)


_LZ4 = (
    "SELECT set_config('default_toast_compression', 'lz4', false) FROM pg_settings"
    " WHERE name = 'default_toast_compression' AND source = 'default' AND 'lz4' = ANY(enumvals)"
)


def _compress_fast(connection: Any, _record: object) -> None:
    """Compress new blocks with LZ4, if the server was built with it and no operator chose another method.

    Storing an event takes a third less of the CPU of the server than with pglz, and about as much space.
    """
    connection.execute(_LZ4)
    connection.commit()


@contextmanager
def reading_untouched(path: Path, patience: float) -> Iterator[DatabaseConnection]:
    """Yield a snapshot of a SQLite file, which may be in a read-only folder, opened with `connect_untouched`.

    It waits `patience` seconds for a lock.
    """
    driver = connect_untouched(path, seconds=patience)
    try:
        driver.execute("BEGIN")
        yield DatabaseConnection("sqlite", driver, partial(_adopt, driver))
    finally:
        driver.close()


def _connect_under(claim: str, dialect: sa.Dialect, _record: object, args: Any, kwargs: Any) -> Any:
    connection: Any = dialect.connect(*args, **kwargs)
    try:
        require_claim(connection, claim)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare_sqlite(connection: sqlite3.Connection) -> None:
    # transactions are begun explicitly: the driver's own are deferred and fail at once
    connection.isolation_level = None
    for pragma in (
        "page_size=8192",  # for a new file: bodies of a few hundred bytes need fewer pages, half the frames per commit
        "synchronous=FULL",
        "foreign_keys=ON",
        "cache_size=-16384",
        "journal_size_limit=67108864",
    ):
        connection.execute(f"PRAGMA {pragma}")
    _use_wal(connection)


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch the file to WAL; several processes may do so with a new file at the same time.

    For this switch, SQLite does not wait for the lock of another process but fails immediately; a transaction does
    wait.
    """
    for attempt in range(WAL_ATTEMPTS):
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or attempt == WAL_ATTEMPTS - 1:
                raise
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("COMMIT")
