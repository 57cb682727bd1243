"""Sorted runs of the ids of events that arrive in no order. Ids that are stored already stay where they are.

Revision ID: 0025
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "id_runs",
        sa.Column("id", _SERIAL, nullable=False),
        sa.Column("topic_id", sa.BigInteger(), nullable=False),
        sa.Column("entries", sa.BigInteger(), nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("into_run", sa.BigInteger()),
        sa.Column("mark", sa.LargeBinary(), nullable=False),
        sa.Column("has_filter", sa.SmallInteger(), nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("id_runs_topic", "id_runs", ["topic_id"])
    op.create_table(
        "id_filters",
        sa.Column("run", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("part", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run", "part"),
    )
    op.create_table(
        "id_chunks",
        sa.Column("run", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("low", sa.LargeBinary(), nullable=False),
        sa.Column("lines", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run", "low"),
    )
    op.create_table(
        "id_ranges",
        sa.Column("topic_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("first", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("topic_id", "first"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "gone_ids",
        sa.Column("topic_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("first", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("gone_at", sa.BigInteger(), nullable=False),
        sa.Column("digests", sa.LargeBinary(), nullable=False),
        sa.Column("expiries", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("topic_id", "first"),
    )
    op.create_index("gone_ids_gone", "gone_ids", ["gone_at"])
