"""What the ledgers say, asked with DuckDB: `before` the damage and `after` it, as two schemas of tables.

The truth of the campaign comes from here. Nothing of the audit takes part.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb

LEDGERS = ("events", "deliveries", "receipts", "inbound", "gaps", "refusals")


class Ledgers:
    """Tables of all ledgers of two lakes: `before.events`, `after.events`, and so on."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

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
        if not _all_can_be_read(*found.values()):
            found = {ledger: [file for file in files if _all_can_be_read([file])] for ledger, files in found.items()}
        for ledger, files in found.items():
            if files:
                self._connection.execute(_CREATE.format(f"{schema}.{ledger}"), {"files": files})


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
    """Yield the ledgers of a lake as `before`."""
    with duckdb.connect(config={"threads": 1}) as connection:
        ledgers = Ledgers(connection)
        connection.execute("SET TimeZone = 'UTC'")
        ledgers.read("before", before)
        yield ledgers
