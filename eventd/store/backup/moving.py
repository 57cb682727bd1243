"""Copies a whole database into an empty one, also between SQLite and Postgres, and compares both afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from eventd.errors import Conflict, DatabaseUnusable
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.statements import bulk_insert, counter_of, execute, fetch, set_counter
from eventd.store.engine.translation import translated
from eventd.store.schema import migrations
from eventd.store.schema.tables import metadata

_PAGE: Final = 2000
"""Rows that are read at a time."""
_PAGE_BYTES: Final = 8 << 20
"""Approximate bytes of texts after which a page ends: a block may have some MiB."""
_BITS: Final = 1 << 256


@dataclass(frozen=True, slots=True)
class TableCopy:
    """A table in both databases: the number of its rows, and a digest of them that does not depend on their order."""

    table: str
    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class _Table:
    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    is_numbered: bool


def _tables() -> list[_Table]:
    """Return all tables of the schema, by name."""
    return [
        _Table(
            table.name,
            tuple(column.name for column in table.columns),
            tuple(column.name for column in table.primary_key.columns),
            bool(table.dialect_options["sqlite"]["autoincrement"]),
        )
        for table in sorted(metadata.tables.values(), key=lambda table: table.name)
    ]


def copy_database(
    source: Database, target: Database, *, now: int, report: Callable[[str, int], None]
) -> list[TableCopy]:
    """Copy all rows of `source` into the empty `target`, in one transaction, and compare both; return the tables.

    Nothing writes to either meanwhile: the caller holds their locks. The log keeps its epoch and continues in the copy,
    so only one of the two may be served afterwards. `report` gets the name of each table and its number of rows.
    Raises `DatabaseUnusable` for a source with another schema, and if the copy differs; `Conflict` unless the target is
    empty. Then the target is as it was.
    """
    migrations.require_current(source)
    with target.transaction() as into:
        _make_empty(into, target, now)
        label = target.label()
        copied = source.read_now(lambda conn: [_copy_table(conn, into, table, label, report) for table in _tables()])
    found = target.read_now(lambda conn: [_summed(conn, table) for table in _tables()])
    if differing := [one.table for one, other in zip(copied, found, strict=True) if one != other]:
        raise DatabaseUnusable(
            f"the copy in {target.label()} differs in {', '.join(differing)}", hint="drop it, and copy again"
        )
    return copied


def _make_empty(conn: Connection, target: Database, now: int) -> None:
    """Bring an empty database to the newest schema, without rows. Raises `Conflict` if it holds any."""
    is_new = migrations.read_revision(conn) is None
    migrations.upgrade(conn, now=now)
    for table in _tables():
        if table.name == "log_heads":
            used = fetch(conn, "SELECT 1 FROM log_heads WHERE next_position > 1 OR registry_version > 1")
        else:
            used = fetch(conn, f"SELECT 1 FROM {table.name} LIMIT 1")
        if used and not is_new:
            raise Conflict(f"{target.label()} is not empty: it has rows in {table.name}", hint="name a new database")
        execute(conn, f"DELETE FROM {table.name}")


def _copy_table(
    conn: Connection, into: Connection, table: _Table, label: str, report: Callable[[str, int], None]
) -> TableCopy:
    """Copy the rows of a table. `label` names the target: the reader around this call names the source in errors."""
    total = _Sum(table.name)
    for rows in _pages(conn, table):
        with translated(label):
            bulk_insert(into, table.name, table.columns, rows)
        total.add(rows)
    if table.is_numbered:
        with translated(label):
            set_counter(into, table.name, counter_of(conn, table.name))
    report(table.name, total.rows)
    return total.result()


def _summed(conn: Connection, table: _Table) -> TableCopy:
    total = _Sum(table.name)
    for rows in _pages(conn, table):
        total.add(rows)
    return total.result()


def _pages(conn: Connection, table: _Table) -> Iterator[Sequence[Sequence[Any]]]:
    """Yield the rows of a table in portions, in the order of its key."""
    columns, key = ", ".join(table.columns), ", ".join(table.key)
    places = [table.columns.index(name) for name in table.key]
    marks = ", ".join("?" for _ in table.key)
    size, after = _PAGE, ()
    while True:
        where = f" WHERE ({key}) > ({marks})" if after else ""
        rows = fetch(conn, f"SELECT {columns} FROM {table.name}{where} ORDER BY {key} LIMIT {size}", after)
        if not rows:
            return
        yield [tuple(map(_plain, row)) for row in rows]
        after = tuple(rows[-1][place] for place in places)
        bytes_of_row = sum(len(value) for row in rows for value in row if isinstance(value, str | bytes)) / len(rows)
        size = max(1, min(_PAGE, int(_PAGE_BYTES / max(bytes_of_row, 1))))


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


class _Sum:
    """The number of rows, and the sum of their hashes: the same in whichever order a database returns them."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._sum = 0
        self.rows = 0

    def add(self, rows: Sequence[Sequence[Any]]) -> None:
        for row in rows:
            self._sum += int.from_bytes(hashlib.sha256(msgspec.msgpack.encode(row)).digest(), "big")
        self.rows += len(rows)

    def result(self) -> TableCopy:
        return TableCopy(self._table, self.rows, f"{self._sum % _BITS:064x}")
