"""Statements for both databases: runs them on the driver, and hides the differences between the two dialects of SQL.

Each function works in the transaction of its connection, and commits nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec

from eventd.errors import DatabaseFault
from eventd.runtime.chance import Chance
from eventd.store.engine.connection import DatabaseConnection as Connection
from eventd.store.engine.translation import FAULT_HINT

SQLITE_ROWS = 250
"""Rows per multi-row INSERT. There should be few statements, because each releases the interpreter lock and waits for
it again."""
COPY_ROWS = 20
"""Number of rows from which on COPY is faster than INSERT on Postgres, despite two extra round trips."""
SQLITE_NAMES = 500
"""Values per IN list on SQLite, well below its limit on bound parameters."""
CHANNEL = "eventd_head"
"""The Postgres channel that signals a new head. It has no content: the number is read from the head row."""
BEGIN_WRITING = "BEGIN IMMEDIATE"
"""SQLite: take the write lock first. A transaction that began by reading would fail once another has written."""
SCHEMA_LOCK = 0x6576656E7464  # "eventd"
"""The Postgres advisory lock of a migration."""
MIGRATION_SECONDS = 60
"""How long a process waits for the migration of another one, on Postgres."""


class KeyTaken(DatabaseFault):
    """A row with the same key exists. A caller that expects this rolls back and starts again."""


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


def indexed_by(conn: Connection, index: str) -> str:
    """Return the words after a table's name that make SQLite use an index; empty for Postgres, which needs none.

    SQLite keeps no statistics here: of two indexes on the same columns, it takes any.
    """
    return f" INDEXED BY {index}" if _is_sqlite(conn) else ""


def listed_texts(conn: Connection, column: str) -> str:
    """Return SQL for a FROM, after the table of `column`: it adds a row for each text in its JSON list, as `value`."""
    return _LISTED[conn.dialect].format(column=column)


_LISTED = {
    "sqlite": "json_each({column}) AS listed",
    "postgresql": "json_array_elements_text({column}::json) AS listed(value)",
}


def listed_in(conn: Connection, column: str) -> str:
    """Return the condition that a column has one of the texts in a parameter, a JSON list of any length."""
    if _is_sqlite(conn):
        return f"{column} IN (SELECT value FROM json_each(?))"
    return f"{column} = ANY(ARRAY(SELECT json_array_elements_text(?)))"  # as an array, so that an index is used


def number_in(conn: Connection, offset: str, digits: int) -> str:
    """Return an expression for the whole number of so many characters in a binary parameter, from the byte `offset`
    on."""
    place = f"CAST(1 + {offset} AS INTEGER), {digits}"
    if _is_sqlite(conn):
        return f"CAST(substr(?, {place}) AS INTEGER)"
    return f"CAST(convert_from(substr(?::bytea, {place}), 'UTF8') AS BIGINT)"


def compares_bytes(conn: Connection) -> bool:
    """Return whether the database is known to order texts by their bytes. On Postgres the collation decides."""
    return _is_sqlite(conn)


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
    """Lock the schema for this transaction, after a wait of up to a minute: another process may migrate it meanwhile.

    On SQLite a write transaction is exclusive anyway.
    """
    if not _is_sqlite(conn):
        conn.driver.execute(f"SET LOCAL lock_timeout = {MIGRATION_SECONDS * 1000}")
        conn.driver.execute("SELECT pg_advisory_xact_lock(%s)", (SCHEMA_LOCK,))
        conn.driver.execute("SET LOCAL lock_timeout TO DEFAULT")


def begin_anew(conn: Connection) -> None:
    """Roll back the write transaction, including its locks, and begin another. On Postgres the new one is durable."""
    raw = conn.driver
    raw.rollback()
    if _is_sqlite(conn):
        raw.execute(BEGIN_WRITING)


@contextmanager
def savepoint(conn: Connection) -> Iterator[None]:
    """If the block raises, roll back only its changes, unless the database has rolled back the whole transaction.

    Then raise the error again.
    """
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


def find_bytes(conn: Connection, column: str) -> str:
    """Return an expression for the place, from 1 on, at which a binary column has the bytes of a parameter; or 0."""
    return f"instr({column}, ?)" if _is_sqlite(conn) else f"position(?::bytea IN {column})"


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


def counter_of(conn: Connection, table: str) -> int:
    """Return the highest id that a table with generated ids has ever given to a row; 0 if it never had a row."""
    if _is_sqlite(conn):
        rows = fetch(conn, "SELECT seq FROM sqlite_sequence WHERE name = ?", (table,))
        return int(rows[0][0]) if rows else 0
    sequence = fetch(conn, "SELECT pg_get_serial_sequence(?, 'id')", (table,))[0][0]
    last, called = fetch(conn, f"SELECT last_value, is_called FROM {sequence}")[0]
    return int(last) if called else 0


def set_counter(conn: Connection, table: str, number: int) -> None:
    """Make a table with generated ids continue after this number."""
    if not number:
        return
    if _is_sqlite(conn):
        if not execute(conn, "UPDATE sqlite_sequence SET seq = ? WHERE name = ?", (number, table)):
            execute(conn, "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, number))
        return
    execute(conn, "SELECT setval(pg_get_serial_sequence(?, 'id'), ?)", (table, number))
