"""Opening the database and running plain functions over it. Callers need not know which database it is.

A storage function takes an open `Connection` and commits nothing. `Database.write` runs one on the single
writer thread inside one transaction; `Database.read` runs one on a reader thread over one snapshot. Durability is
the database's strictest by default: an answer given after `write` returned survives a power cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from eventd.errors import DatabaseFault
from eventd.runtime.chance import SYSTEM, Chance
from eventd.runtime.threads import THREADS, ThreadFactory
from eventd.store.engine.address import SqliteUrl, parse_url
from eventd.store.engine.boot import read_boot_id
from eventd.store.engine.changes import ChangeSource, FileChanges, Notifications
from eventd.store.engine.claim import DatabaseClaim, read_claims
from eventd.store.engine.connection import DatabaseConnection, Kind, ProcessFacts
from eventd.store.engine.engines import KEPT_BY_WRITER, Engine, SqliteEngine, open_engine
from eventd.store.engine.fence import ClaimCheck, session_name
from eventd.store.engine.file_guard import FileGuard
from eventd.store.engine.head_file import HeadFile
from eventd.store.engine.thread_pool import ThreadConnections
from eventd.store.engine.translation import FAULT_HINT, translated
from eventd.store.engine.writer_lock import WriterLock

Connection = DatabaseConnection
"""An open transaction, as storage functions get it."""

P = ParamSpec("P")
T = TypeVar("T")

READERS = 3
"""Threads that read for requests, and as many again for deliveries; each has its own connection."""
SQLITE_ROWS = 250
"""Rows per multi-row INSERT, for few statements: each releases the interpreter lock and waits for it again."""
COPY_ROWS = 20
"""Rows from which COPY is faster on Postgres, despite two extra round trips."""
SQLITE_NAMES = 500
"""Values per IN list on SQLite, well below its limit on bound parameters."""
CHANNEL = "eventd_head"
"""The Postgres channel that signals a new head. It has no content: the number is read from the head row."""
LOCK_SECONDS = 5.0
"""Seconds that a transaction waits for a lock of another process."""
BEGIN_WRITING = "BEGIN IMMEDIATE"
"""SQLite: take the write lock first. A transaction that began by reading would fail once another has written."""
SCHEMA_LOCK = 0x6576656E7464  # "eventd"
"""The Postgres advisory lock of a migration."""


class KeyTaken(DatabaseFault):
    """A row with the same key exists. A caller that expects this rolls back and starts again."""


class Database:
    """An open database. Close it with `close()`; its thread pools end there.

    Raises `SettingsError` for an unusable URL, `MissingExtra` when the Postgres driver is absent, `DatabaseUnavailable`
    when it does not respond, and `DatabaseUnusable` when the file is not a database; the last two on first use.
    `shared`: other processes write to it constantly. `claim` names the claim of this node; unless it is held, new
    Postgres sessions are refused. `threads` creates the thread pools, and `boot_id` identifies the boot of the machine
    (empty: it is read); a simulation passes its own. A node passes its `chance`; commands, and the many tests that need
    no seed, leave it out.
    """

    def __init__(
        self,
        url: str,
        *,
        shared: bool = False,
        claim: str = "",
        chance: Chance = SYSTEM,
        threads: ThreadFactory = THREADS,
        boot_id: str = "",
    ) -> None:
        self.url = parse_url(url)
        self.chance = chance
        self.threads = threads
        self.claim_name = claim
        self.restarts = 0
        """How often a restart of SQLite's write-ahead log was tried."""
        self.kind: Kind = "sqlite" if isinstance(self.url, SqliteUrl) else "postgresql"
        self.file_guard = FileGuard(self.path)
        self._label = self.label()
        self._writer_lock = WriterLock(self.path, LOCK_SECONDS) if shared and self.path else None
        writing = self._open_engine(0, ProcessFacts(chance, boot_id or read_boot_id(chance)))
        self._writing = ThreadConnections(writing, KEPT_BY_WRITER.get(self.kind, ""))
        self._reading = ThreadConnections(self._open_engine(2 * READERS))
        self._writer = threads(1, "eventd-writer", self._writing.keep)
        self._readers = threads(READERS, "eventd-reader", self._reading.keep)
        self._delivering = threads(READERS, "eventd-delivery", self._reading.keep)
        self._head_file: HeadFile | None = None

    def _open_engine(self, readers: int, process: ProcessFacts | None = None) -> Engine:
        return open_engine(self.url, readers=readers, patience=LOCK_SECONDS, claim=self.claim_name, process=process)

    @property
    def path(self) -> Path | None:
        """Return the file of a SQLite database; None on Postgres."""
        return Path(self.url.database) if self.kind == "sqlite" and self.url.database else None

    def open_head_file(self) -> HeadFile | None:
        """Return the file that records how far the log was acknowledged; it is opened once, and closed by `close`.

        None on Postgres. Raises `OSError`.
        """
        if self._head_file is None and self.path is not None:
            self._head_file = HeadFile(self.path)
        return self._head_file

    def label(self) -> str:
        """Return the URL of the database for messages, without its password."""
        return self.url.render_as_string(hide_password=True)

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[Connection]:
        """Run the block as one write transaction in this thread, committed at its end.

        If it is not `durable`, the commit reaches the disk a little later, or with the next durable one.
        """
        turn = nullcontext() if self._writer_lock is None else self._writer_lock.hold()
        with turn, translated(self._label), self._writing.use() as conn:
            if self.kind == "sqlite" and conn.info.get("durable", True) != durable:
                conn.driver.execute(
                    f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}"
                )  # no transaction is open yet
                conn.info["durable"] = durable
            with conn.begun(BEGIN_WRITING if self.kind == "sqlite" else ""):
                if self.kind != "sqlite" and not durable:
                    conn.driver.execute("SET LOCAL synchronous_commit = off")
                yield conn
                self.file_guard.require()  # otherwise it would be acknowledged without being stored

    def write_now(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` in one durable write transaction in this thread, committed when it returns; return its result."""
        with self.transaction() as conn:
            return fn(conn, *args, **kwargs)

    def read_now(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` on one snapshot in this thread; return its result."""
        begin = "BEGIN" if self.kind == "sqlite" else ""
        with translated(self._label), self._reading.use() as conn, conn.begun(begin):
            return fn(conn, *args, **kwargs)

    def start_write(self, fn: Callable[[Connection], T], *, durable: bool = True) -> Future[T]:
        """Queue `fn` for the writer thread, as a transaction of its own; return a future of its result.

        The transactions run one after the other, in the order of the calls.
        """
        return self._writer.submit(self._write, fn, durable)

    def _write(self, fn: Callable[[Connection], T], durable: bool) -> T:
        with self.transaction(durable=durable) as conn:
            return fn(conn)

    async def write(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `write_now` on the writer thread."""
        return await asyncio.wrap_future(self._writer.submit(partial(self.write_now, fn, *args, **kwargs)))

    async def read(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `read_now` on a reader thread."""
        return await asyncio.wrap_future(self._readers.submit(partial(self.read_now, fn, *args, **kwargs)))

    async def read_for_delivery(
        self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `read_now` on a thread reserved for consumers' short reads, so that long requests do not delay them."""
        return await asyncio.wrap_future(self._delivering.submit(partial(self.read_now, fn, *args, **kwargs)))

    def change_source(self, sleep: Callable[[float], Awaitable[None]]) -> ChangeSource:
        """Return a new source of signals that another connection, also of this process, may have committed.

        A lost signal costs a poll, never a record.
        """
        if isinstance(self._reading.engine, SqliteEngine):
            with translated(self._label):
                alone = self._reading.engine.open()
            return FileChanges(alone, self.file_guard, sleep, shared=self._writer_lock is not None)
        assert not isinstance(self.url, SqliteUrl)
        return Notifications(self.url, CHANNEL, session_name("eventd-listen", self.claim_name))

    def claim(self, group: str, who: str) -> DatabaseClaim | None:
        """Return the claim, not taken yet, that keeps a second node away; on `group` alone if it is not empty.

        None on SQLite, where a locked file does this.
        """
        if isinstance(self.url, SqliteUrl):
            return None
        return DatabaseClaim(self.url, self.label(), group, who, self.chance)

    def claim_check(self) -> ClaimCheck | None:
        """Return the check whether this node's claim on Postgres is held; None without a claim."""
        if isinstance(self.url, SqliteUrl) or not self.claim_name:
            return None
        return ClaimCheck(self.url, self.claim_name)

    def claims(self) -> list[str]:
        """Return each holder of a claim on this Postgres database, as its process and machine; empty on SQLite."""
        return [] if self.kind == "sqlite" else self.read_now(read_claims)

    async def take_over_checkpoints(self) -> None:
        """SQLite: stop checkpoints inside of commits; from now on the caller runs `checkpoint`."""
        if self.kind == "sqlite":
            with translated(self._label):
                await asyncio.wrap_future(self._writer.submit(self._writing.configure, "PRAGMA wal_autocheckpoint=0"))

    async def checkpoint(self, *, patient_bytes: int = 8 << 20, urgent_bytes: int = 64 << 20) -> None:
        """Move SQLite's write-ahead log into the file, outside of appends, if it has more than `patient_bytes`.

        Postgres does this by itself. Each call flushes the head file: after a power loss it is behind by at most the
        time between two calls. Under constant writes a passive checkpoint never reaches the end, and the write-ahead
        log would grow without limit; beyond `urgent_bytes` the writer thread finishes the rest and restarts the log. It
        hardly waits for readers, because appends wait for it, and a backup may read one snapshot for long.
        """
        size = await asyncio.to_thread(self.wal_bytes)
        if size > patient_bytes:
            await asyncio.wrap_future(self._readers.submit(self._pragma, self._reading, "wal_checkpoint(PASSIVE)"))
        if size > urgent_bytes:
            self.restarts += 1
            await asyncio.wrap_future(self._writer.submit(self._pragma, self._writing, "wal_checkpoint(RESTART)", 0.05))
        if self._head_file is not None:
            await asyncio.wrap_future(self._readers.submit(self._head_file.flush))

    def wal_bytes(self) -> int:
        """Return the size of SQLite's write-ahead log in bytes; 0 without one, as on Postgres."""
        try:
            return Path(f"{self.path}-wal").stat().st_size if self.path else 0
        except OSError:
            return 0

    def _pragma(self, kept: ThreadConnections, text: str, patience: float = LOCK_SECONDS) -> Any:
        turn = nullcontext() if self._writer_lock is None or kept is self._reading else self._writer_lock.hold()
        with turn, translated(self._label), kept.use() as conn:  # a checkpoint cannot run in a transaction
            try:
                conn.driver.execute(f"PRAGMA busy_timeout={patience * 1000:.0f}")
                return conn.driver.execute(f"PRAGMA {text}").fetchone()
            finally:
                conn.driver.execute(f"PRAGMA busy_timeout={LOCK_SECONDS * 1000:.0f}")

    def close(self) -> None:
        """Finish what is queued, then close every connection and thread."""
        for threads in (self._writer, self._readers, self._delivering):
            threads.shutdown(wait=True)
        self._reading.close()
        self._writing.close()
        if self._writer_lock is not None:
            self._writer_lock.close()
        if self._head_file is not None:
            self._head_file.close()


def _is_sqlite(conn: Connection) -> bool:
    return conn.dialect == "sqlite"


def fetch(conn: Connection, sql: str, params: Sequence[Any] = ()) -> list[Any]:
    """Run one statement directly on the driver; returns its rows as tuples. Parameters are `?` on both databases."""
    return _run(conn, sql, params).fetchall()  # type: ignore[no-any-return]


def execute(conn: Connection, sql: str, params: Sequence[Any] = ()) -> int:
    """Run one statement directly on the driver; returns the number of affected rows."""
    return _run(conn, sql, params).rowcount  # type: ignore[no-any-return]


def _run(conn: Connection, sql: str, params: Sequence[Any]) -> Any:
    return conn.driver.execute(sql if _is_sqlite(conn) else sql.replace("?", "%s"), params)


def execute_many(conn: Connection, sql: str, rows: Sequence[Sequence[Any]]) -> int:
    """Run one statement for each of `rows`; returns the total number of affected rows."""
    if not rows:
        return 0
    if _is_sqlite(conn):
        return conn.driver.executemany(sql, rows).rowcount  # type: ignore[no-any-return]
    with conn.driver.cursor() as cursor:
        cursor.executemany(sql.replace("?", "%s"), rows)
        return cursor.rowcount  # type: ignore[no-any-return]


def insert_row(conn: Connection, table: str, values: Mapping[str, Any], end: str = "") -> list[Any]:
    """Insert one row. `end` is the end of the statement, such as `ON CONFLICT (name) DO NOTHING RETURNING id`.

    Returns the rows of RETURNING.
    """
    sql = f"{_insertion(table, tuple(values), 1)} {end}"
    done = _run(conn, sql, list(values.values()))
    return done.fetchall() if "RETURNING" in end else []


def replacing(names: Iterable[str]) -> str:
    """Return the end of `ON CONFLICT … DO UPDATE SET`: these columns get the values of the row that is inserted."""
    return ", ".join(f"{name} = excluded.{name}" for name in names)


def update_rows(conn: Connection, table: str, values: Mapping[str, Any], where: Mapping[str, Any]) -> int:
    """Set columns of the rows whose columns `where` have these values, none of them NULL. Returns their number."""
    changes = ", ".join(f"{name} = ?" for name in values)
    conditions = " AND ".join(f"{name} = ?" for name in where)
    return execute(conn, f"UPDATE {table} SET {changes} WHERE {conditions}", (*values.values(), *where.values()))


def bulk_insert(conn: Connection, table: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Insert many rows with the columns `names` as fast as this database can. Raises `KeyTaken`."""
    if rows:
        copies = not _is_sqlite(conn) and len(rows) >= COPY_ROWS
        with _telling_keys(table):
            (_copy if copies else _insert_chunks)(conn, table, names, rows)


def insert_numbered(
    conn: Connection, table: str, names: Sequence[str], same: int, texts: Sequence[str], first: int
) -> None:
    """Insert a row (`same`, text, number) for each of the texts, numbered from `first`. Raises `KeyTaken`."""
    if len(texts) < 2:
        bulk_insert(conn, table, names, [(same, text, first) for text in texts])
        return
    # One statement with three values for any number of rows: it is prepared once and binds little.
    sql = f"INSERT INTO {table} ({', '.join(names)}) {_NUMBERED[conn.dialect]}"
    with _telling_keys(table):
        execute(conn, sql, (same, first, msgspec.json.encode(texts).decode()))


_NUMBERED = {
    "sqlite": "SELECT ?, value, key + ? FROM json_each(?)",
    "postgresql": "SELECT ?, value, n - 1 + ? FROM json_array_elements_text(?) WITH ORDINALITY AS each(value, n)",
}


def listed_texts(conn: Connection, column: str) -> str:
    """Return SQL for a FROM, after the table of `column`: it adds a row for each text in its JSON list, as `value`."""
    return _LISTED[conn.dialect].format(column=column)


_LISTED = {
    "sqlite": "json_each({column}) AS listed",
    "postgresql": "json_array_elements_text({column}::json) AS listed(value)",
}


@contextmanager
def _telling_keys(table: str) -> Iterator[None]:
    """Raise `KeyTaken` if the block fails because a row with the same key exists."""
    try:
        yield
    except Exception as error:
        if _says_key_taken(error):
            raise KeyTaken(f"{table}: a row with this key already exists", hint=FAULT_HINT) from error
        raise


def _says_key_taken(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorname", None) or getattr(error, "sqlstate", None)
    return code in ("SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_UNIQUE", "23505")


def _copy(conn: Connection, table: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    with conn.driver.cursor() as cursor, cursor.copy(f"COPY {table} ({', '.join(names)}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)


def _insert_chunks(conn: Connection, table: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    for start in range(0, len(rows), SQLITE_ROWS):
        chunk = rows[start : start + SQLITE_ROWS]
        execute(conn, _insertion(table, tuple(names), len(chunk)), list(chain.from_iterable(chunk)))


@lru_cache(maxsize=512)
def _insertion(table: str, names: Sequence[str], rows: int) -> str:
    one = f"({', '.join('?' * len(names))})"
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES {', '.join([one] * rows)}"


def fetch_in(conn: Connection, sql: str, params: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """Like `fetch`, for a statement with one `{in}`, which becomes membership in `values` (any number).

    Example: `fetch_in(conn, "SELECT id FROM t WHERE a = ? AND id {in}", (1,), ids)`. Danger: on SQLite the statement
    runs once for each `SQLITE_NAMES` values, so an ORDER BY, a LIMIT or an aggregate does not cover all of them.
    """
    if not _is_sqlite(conn):
        return fetch(conn, sql.replace("{in}", "= ANY(?)"), (*params, list(values)))
    found: list[Any] = []
    for start in range(0, len(values), SQLITE_NAMES):
        chunk = values[start : start + SQLITE_NAMES]
        found += fetch(conn, sql.replace("{in}", f"IN ({', '.join('?' * len(chunk))})"), (*params, *chunk))
    return found


def has_table(conn: Connection, name: str) -> bool:
    """Return whether the database has this table."""
    if _is_sqlite(conn):
        return bool(fetch(conn, "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)))
    return fetch(conn, "SELECT to_regclass(?)", (name,))[0][0] is not None


def is_new_file(conn: Connection) -> bool:
    """Return whether the database is a SQLite file without tables."""
    return _is_sqlite(conn) and not fetch(conn, "SELECT 1 FROM sqlite_master LIMIT 1")


def lock_schema(conn: Connection) -> None:
    """Lock the schema for this transaction, after a wait. On SQLite a write transaction is exclusive anyway."""
    if not _is_sqlite(conn):
        conn.driver.execute("SELECT pg_advisory_xact_lock(%s)", (SCHEMA_LOCK,))


def begin_anew(conn: Connection) -> None:
    """Roll back the write transaction, including its locks, and begin another. On Postgres the new one is durable."""
    raw = conn.driver
    raw.rollback()
    if _is_sqlite(conn):
        raw.execute(BEGIN_WRITING)


@contextmanager
def savepoint(conn: Connection) -> Iterator[None]:
    """Roll back only the block when it raises, unless the database has rolled back the whole transaction; re-raise."""
    raw = conn.driver
    raw.execute("SAVEPOINT part")
    try:
        yield
    except BaseException:
        if in_transaction(conn):
            raw.execute("ROLLBACK TO SAVEPOINT part")
            raw.execute("RELEASE SAVEPOINT part")
        raise
    raw.execute("RELEASE SAVEPOINT part")


def in_transaction(conn: Connection) -> bool:
    """Return whether the transaction is still open.

    SQLite rolls it back when the disk is full, Postgres when the connection is lost. A statement executed after that
    would be its own transaction, without the locks of the first.
    """
    raw = conn.driver
    if _is_sqlite(conn):
        return bool(raw.in_transaction)
    return raw.info.transaction_status.name in ("INTRANS", "INERROR")


def for_update(conn: Connection) -> str:
    """Return the end of a SELECT that locks its rows; empty on SQLite, where a write transaction excludes others."""
    return "" if _is_sqlite(conn) else " FOR UPDATE"


def chance_of(conn: Connection) -> Chance:
    """Return the source of randomness that the database of a write transaction was opened with."""
    assert conn.process is not None
    return conn.process.chance


def run_of_system(conn: Connection) -> str:
    """Return an id of the run of the system that flushes commits: this machine's boot, or the Postgres server's run.

    When one of its processes is killed, Postgres restarts by itself without commits that were not flushed. Its start
    time stays unchanged then, but its statistics are reset.
    """
    if not _is_sqlite(conn):
        sql = "SELECT pg_postmaster_start_time()::text || ' ' || stats_reset::text FROM pg_stat_bgwriter"
        return str(conn.driver.execute(sql).fetchone()[0])
    assert conn.process is not None
    return conn.process.boot_id


def notify_head(conn: Connection) -> None:
    """Postgres: signal at commit that the head moved. On SQLite other processes poll a counter of the file."""
    if not _is_sqlite(conn):
        conn.driver.execute(f"NOTIFY {CHANNEL}")
