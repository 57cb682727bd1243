"""What the ledgers say, asked with DuckDB: `before` the damage and `after` it, as two schemas of tables.

The truth of the campaign comes from here. Nothing of the audit takes part.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

LEDGERS = ("events", "deliveries", "receipts", "inbound", "gaps", "refusals", "history")


class Ledgers:
    """Tables of all ledgers of two lakes: `before.events`, `after.events`, and so on."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._readable = set[_File]()
        self._first: dict[str, set[_File]] = {}

    def ask(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        return self._connection.execute(query, values).fetchall()

    def column(self, query: str, *values: Any) -> list[Any]:
        """Return the first column of a query."""
        return [row[0] for row in self.ask(query, *values)]

    def read(self, schema: str, lake: Path) -> None:
        """Read the ledgers of a lake; files that cannot be read are left out."""
        self._connection.execute(f"CREATE OR REPLACE SCHEMA {schema}")
        found = {ledger: sorted(map(str, lake.glob(f"landing/{ledger}/**/*.parquet"))) for ledger in LEDGERS}
        files = {name: _File.of(Path(name), lake) for names in found.values() for name in names}
        new = {name for name, file in files.items() if file not in self._readable}
        unreadable = set[str]()
        if not _all_can_be_read(*([name for name in names if name in new] for names in found.values())):
            unreadable = {name for name in new if not _all_can_be_read([name])}
        if not self._readable:  # of the first lake, which stays as it is
            self._readable = {file for name, file in files.items() if name not in unreadable}
        for ledger, names in found.items():
            readable = [name for name in names if name not in unreadable]
            content = {files[name] for name in readable}
            if not readable:
                continue
            if schema == "before":
                self._first[ledger] = content
            if schema == "before" or self._first.get(ledger) != content:
                self._connection.execute(_CREATE.format(f"{schema}.{ledger}"), {"files": readable})
            else:  # what was not damaged is not read again
                self._connection.execute(f"CREATE VIEW {schema}.{ledger} AS SELECT * FROM before.{ledger}")

    def forget(self, schema: str) -> None:
        """Remove the tables of a lake."""
        self._connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


class _File(NamedTuple):
    """A file by its path in the lake, its size and the time of its last change, which copies of a lake keep."""

    path: str
    size: int
    changed: int

    @classmethod
    def of(cls, file: Path, lake: Path) -> _File:
        status = file.stat()
        return cls(str(file.relative_to(lake)), status.st_size, status.st_mtime_ns)


_CREATE = "CREATE TABLE {} AS SELECT * FROM read_parquet($files, hive_partitioning = false)"


def _all_can_be_read(*ledgers: list[str]) -> bool:
    """Return whether all rows of these files can be read: a count of them reads no more than their ends.

    Of many files at once, because to connect takes longer than to read them. A connection that has failed is not used
    again.
    """
    with contextlib.suppress(duckdb.Error), duckdb.connect(config={"threads": 1}) as connection:
        for number, files in enumerate(ledgers):
            if files:
                connection.execute(_CREATE.format(f"ledger_{number}"), {"files": files})
        return True
    return False


@contextlib.contextmanager
def open_ledgers(before: Path) -> Iterator[Ledgers]:
    """Yield the ledgers of a lake as `before`. They are read once: the lake that damages are done to stays as it is."""
    ledgers = _ledgers_of(before)
    try:
        yield ledgers
    finally:
        ledgers.forget("after")


@cache
def _ledgers_of(before: Path) -> Ledgers:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    ledgers = Ledgers(connection)
    ledgers.read("before", before)
    return ledgers
