"""How far hints at leaves of other nodes were checked, and which events their node's tree refutes.

Revision ID: 0022
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

_DUE = sa.text("due IS NOT NULL")


def upgrade() -> None:
    op.add_column("leaf_hints", sa.Column("checked", sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    op.add_column("leaf_hints", sa.Column("due", sa.BigInteger(), nullable=True))
    op.create_index("leaf_hints_due", "leaf_hints", ["topic_id", "due"], sqlite_where=_DUE, postgresql_where=_DUE)
    op.create_table(
        "refuted_events",
        sa.Column("topic_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("leaf", sa.BigInteger(), nullable=False),
        sa.Column("refuted_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("topic_id", "position"),
    )
    op.create_index("refuted_events_id", "refuted_events", ["topic_id", "event_id"])
