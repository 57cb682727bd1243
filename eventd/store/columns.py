"""What all tables are made of: one collection of them, and the types that are ours."""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()

Micros = sa.BigInteger
by_bytes = sa.Text(collation="C").with_variant(sa.Text(), "sqlite")  # sorted as SQLite sorts
serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite numbers rows itself only under this name
