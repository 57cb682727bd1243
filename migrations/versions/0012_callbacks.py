"""Failed attempts of callbacks, since when a consumer has failed, and how long retention keeps records for it,
and where it began.

Revision ID: 0012
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("cursors", sa.Column("failing_since", sa.BigInteger()))
    op.add_column("cursors", sa.Column("hold", sa.BigInteger()))
    op.add_column("cursors", sa.Column("started_after", sa.BigInteger()))
    op.create_table(
        "callback_attempts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True),
        sa.Column("cursor", sa.Text(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("after", sa.BigInteger(), nullable=False),
        sa.Column("upto", sa.BigInteger(), nullable=False),
        sa.Column("shape", sa.Text(), nullable=False),
        sa.Column("events", sa.BigInteger(), nullable=False),
        sa.Column("omitted", sa.Text(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("answers", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("first_at", sa.BigInteger(), nullable=False),
        sa.Column("duration", sa.BigInteger(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("key_ids", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("retry_at", sa.BigInteger()),
        sa.Column("folded", sa.BigInteger(), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("callback_attempts_cursor", "callback_attempts", ["cursor", "id"])
    op.create_index("callback_attempts_started", "callback_attempts", ["started_at"])
    # After a move back, the newest deliveries are not those of the highest positions.
    op.create_index(
        "batches_callbacks",
        "batches",
        ["cursor", "id"],
        postgresql_where=sa.text("protocol = 'callback'"),
        sqlite_where=sa.text("protocol = 'callback'"),
    )
    # Losses are few, and are shown without reading all deliveries.
    op.create_index(
        "batches_gaps",
        "batches",
        ["cursor"],
        postgresql_where=sa.text("protocol = 'gap'"),
        sqlite_where=sa.text("protocol = 'gap'"),
    )
