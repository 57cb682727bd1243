"""Events that came back from a peer, and the positions of received batches, by which receipts prove them.

Revision ID: 0016
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "returned_events",
        sa.Column("topic_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("peer", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("unproven", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("topic_id", "event_id"),
    )
    op.add_column("inbound_batches", sa.Column("positions", sa.Text(), nullable=False, server_default=""))
