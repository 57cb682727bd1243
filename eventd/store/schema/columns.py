"""What all tables are made of: one collection of them, and the types that are ours."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

metadata = sa.MetaData()

Micros = sa.BigInteger
by_bytes = sa.Text(collation="C").with_variant(sa.Text(), "sqlite")  # sorted as SQLite sorts
serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite numbers rows itself only under this name


def index_of_some(name: str, *columns: str, where: str) -> sa.Index:
    """An index of those rows alone for which a condition holds."""
    return sa.Index(name, *columns, info={"where": where})


@event.listens_for(metadata, "before_create")
def _state_conditions(target: sa.MetaData, _connection: sa.Connection, **_: Any) -> None:
    """Give the indexes their conditions, before what is declared is made.

    Each database has an option of its own for it, and to name one loads all there is for that database: a process that
    only works with the tables would wait for both.
    """
    for index in (index for table in target.tables.values() for index in table.indexes):
        if where := index.info.get("where"):
            index.dialect_kwargs.update({f"{database}_where": sa.text(where) for database in ("sqlite", "postgresql")})


def beyond(after: str, first: str) -> str:
    """The one lower bound of the names of a page: those that come after one, and none before `first`.

    Given two bounds, SQLite may enter an index by the one that lies far before. No name holds what sorts before `!`.
    """
    return max(first, f"{after}!") if after else first
