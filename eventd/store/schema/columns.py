"""The metadata of all tables, and column types that behave the same on both databases."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

metadata = sa.MetaData()

Micros = sa.BigInteger
by_bytes = sa.Text(collation="C").with_variant(sa.Text(), "sqlite")  # sorted as SQLite sorts
serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite numbers rows by itself only under this type name


def index_of_some(name: str, *columns: str, where: str) -> sa.Index:
    """Return a partial index, which contains only the rows that satisfy the SQL condition `where`."""
    return sa.Index(name, *columns, info={"where": where})


@event.listens_for(metadata, "before_create")
def _set_conditions(target: sa.MetaData, _connection: sa.Connection, **_: Any) -> None:
    """Set the conditions of the indexes before the tables are created.

    Each database has its own option for it, and naming one loads that dialect: a process that only uses the tables
    would load both.
    """
    for index in (index for table in target.tables.values() for index in table.indexes):
        if where := index.info.get("where"):
            index.dialect_kwargs.update({f"{database}_where": sa.text(where) for database in ("sqlite", "postgresql")})
