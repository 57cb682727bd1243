"""Reads the rows of a node's tables from the database of a node that was stopped, with SQL of their own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

Row = Mapping[str, Any] | sqlite3.Row
"""A row, by the names of its columns."""
_ORDERS = {"blocks": " ORDER BY position", "batches": " ORDER BY id"}


class StoredRows(Protocol):
    """The tables of one database."""

    def damage(self) -> list[str]:
        """Return what the database says of damage to itself."""
        ...

    def rows(self, table: str) -> list[Any]:
        """Return the rows of a table, those of blocks and batches in their order."""
        ...


class FileRows:
    """The tables of a SQLite file."""

    def __init__(self, session: sqlite3.Connection) -> None:
        self._session = session

    def damage(self) -> list[str]:
        return [str(line) for (line,) in self._session.execute("PRAGMA integrity_check(20)") if line != "ok"]

    def rows(self, table: str) -> list[Any]:
        return self._session.execute(_query(table)).fetchall()


class ServerRows:
    """The tables of a database on Postgres, which has no damage that a node could do to it."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def damage(self) -> list[str]:
        return []

    def rows(self, table: str) -> list[Any]:
        found = self._session.execute(_query(table))
        names = [column.name for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


@contextmanager
def open_file(file: Path) -> Iterator[FileRows]:
    """Yield the tables of a SQLite file that no process has open."""
    with closing(sqlite3.connect(file)) as session:
        session.row_factory = sqlite3.Row
        yield FileRows(session)


def _query(table: str) -> str:
    return f"SELECT * FROM {table}{_ORDERS.get(table, '')}"
