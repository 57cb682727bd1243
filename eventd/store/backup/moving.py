"""Copies a whole database into an empty one, also between SQLite and Postgres, and compares both afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from eventd.errors import Conflict, DatabaseUnusable, Invalid
from eventd.store.backup.backup import remove_database, sync
from eventd.store.backup.part_file import PartFile
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.foreign_file import UNFINISHED_COPY, is_unfinished_copy, refuse_foreign, unfinished_copy
from eventd.store.engine.head_file import forget_head
from eventd.store.engine.statements import bulk_insert, counter_of, execute, fetch, has_table, set_counter
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


def copy_to_file(source: Database, path: Path, *, now: int, report: Callable[[str, int], None]) -> list[TableCopy]:
    """Copy all rows of `source` into the SQLite file `path`, which is missing or holds no rows; return the tables.

    The file is filled under another name and renamed after the comparison, so that a killed copy is never taken for a
    whole one. It gets the owner and mode of the source, or from Postgres the owner of its folder. Raises as
    `copy_database` does, and `Conflict` or `Invalid` if one of the three names is that of another file.
    """
    path = path.parent.resolve() / path.name
    partial = unfinished_copy(path)
    _require_apart(source.path, path, partial)
    if partial.exists() or partial.is_symlink():
        if not is_unfinished_copy(partial):
            raise Conflict(f"{partial} is not of an unfinished copy", hint="move it away, and run the copy again")
        remove_database(partial)
    if path.exists():
        refuse_foreign(path)
        with closing(Database(f"sqlite:///{path}")) as present:
            present.read_now(_require_empty, present.label())
    part = PartFile.create(partial)
    try:
        with closing(Database(f"sqlite:///{partial}")) as target:
            copied = copy_database(source, target, now=now, report=report)
        part.give_to_owner(source.path or path)
        sync(partial)
        part.replace(path)
        sync(path.parent)
    finally:
        remove_database(partial)
        part.close()
    forget_head(path)
    return copied


def _require_apart(source: Path | None, path: Path, partial: Path) -> None:
    """Raise `Invalid` for a link, and `Conflict` if the copy would be filled in the place of its source, or of a file
    that commands take for an unfinished copy of it."""
    if path.is_symlink():  # another user of the folder could have made it
        raise Invalid(f"{path} is a symbolic link", hint="name the file itself")
    if source is None:
        return
    source = source.resolve()
    if source == partial or path == unfinished_copy(source):
        raise Conflict(
            f"a copy of {source} cannot be {path}: one has the name of an unfinished copy of the other",
            hint="name another file",
        )


def copy_database(
    source: Database, target: Database, *, now: int, report: Callable[[str, int], None]
) -> list[TableCopy]:
    """Copy all rows of `source` into the empty `target`, in one transaction, and compare both; return the tables.

    Nothing writes to either meanwhile: the caller holds their locks. The log keeps its epoch and continues in the copy,
    so only one of the two may be served afterwards. `report` gets the name of each table and its number of rows.
    Raises `DatabaseUnusable` for a source with another schema, and if the copy differs; `Conflict` unless the target is
    empty or an unfinished copy. It is marked as one until the comparison: programs refuse it.
    """
    migrations.require_current(source)
    target.write_now(_mark, target.label())
    with target.transaction() as into:
        _make_empty(into, target, now)
        label = target.label()
        copied = source.read_now(lambda conn: [_copy_table(conn, into, table, label, report) for table in _tables()])
    found = target.read_now(lambda conn: [_summed(conn, table) for table in _tables()])
    if differing := [one.table for one, other in zip(copied, found, strict=True) if one != other]:
        raise DatabaseUnusable(
            f"the copy in {target.label()} differs in {', '.join(differing)}", hint="drop it, and copy again"
        )
    target.write_now(execute, f"DROP TABLE IF EXISTS {UNFINISHED_COPY}")
    return copied


def _mark(conn: Connection, label: str) -> None:
    """Mark a database as an unfinished copy. Raises `Conflict` if it holds rows, unless it is marked already."""
    if not has_table(conn, UNFINISHED_COPY):
        _require_empty(conn, label)
        execute(conn, f"CREATE TABLE {UNFINISHED_COPY} (id integer)")


def _make_empty(conn: Connection, target: Database, now: int) -> None:
    """Bring an empty database, or an unfinished copy, to the newest schema, without rows.

    Raises `Conflict` for any other database that holds rows.
    """
    if not has_table(conn, UNFINISHED_COPY):
        _require_empty(conn, target.label())
    migrations.upgrade(conn, now=now, copying=True)
    for table in _tables():
        execute(conn, f"DELETE FROM {table.name}")


def _require_empty(conn: Connection, label: str) -> None:
    """Raise `Conflict` if a database holds rows."""
    if migrations.read_revision(conn) is None:
        return
    for table in _tables():
        if not has_table(conn, table.name):  # of an older schema
            continue
        where = " WHERE next_position > 1 OR registry_version > 1" if table.name == "log_heads" else ""
        if fetch(conn, f"SELECT 1 FROM {table.name}{where} LIMIT 1"):
            raise Conflict(f"{label} is not empty: it has rows in {table.name}", hint="name a new database")


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
