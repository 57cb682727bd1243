"""The Routemaster surface: tokens beside the API keys, its topics, its subscribers, and what each of these is to get.

Revision ID: 0013
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name, default in (("surface", "'api'"), ("label", "''"), ("identity", "''")):
        op.add_column("api_keys", sa.Column(name, sa.Text(), nullable=False, server_default=sa.text(default)))
    by_bytes = sa.Text(collation="C").with_variant(sa.Text(), "sqlite")
    op.create_table(
        "rm_topics",
        sa.Column("name", by_bytes, primary_key=True),
        sa.Column("publisher", sa.Text(), nullable=False),
        sa.Column("events", sa.BigInteger(), nullable=False),
        sa.Column("base", sa.BigInteger(), nullable=False),
        sa.Column("recent", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "rm_subscribers",
        sa.Column("identity", sa.Text(), primary_key=True),
        sa.Column("callback", sa.Text(), nullable=False),
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("timeout_ms", sa.BigInteger(), nullable=False),
        sa.Column("max_events", sa.BigInteger(), nullable=False),
        sa.Column("sent", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "rm_signing",
        sa.Column("identity", sa.Text(), primary_key=True),
        sa.Column("keys", sa.Text(), nullable=False),
    )
    op.create_table(
        "rm_intervals",
        sa.Column("subscriber", sa.Text(), primary_key=True),
        sa.Column("topic", sa.Text(), primary_key=True),
        sa.Column("after", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("upto", sa.BigInteger()),
    )
    op.create_index("rm_intervals_topic", "rm_intervals", ["topic"])
