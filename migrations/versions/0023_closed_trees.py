"""Trees of which no more than their end is known, and an index of the findings that no operator has confirmed.

Revision ID: 0023
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

_OPEN = sa.text("confirmed_at IS NULL")


def upgrade() -> None:
    op.create_table(
        "closed_trees",
        sa.Column("topic_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("log_key", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("root", sa.LargeBinary(), nullable=False),
        sa.Column("opened_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("topic_id", "origin"),
    )
    op.create_index("closed_trees_node", "closed_trees", ["topic_id", "node"])
    columns = ["topic_id", "node", "kind"]
    op.create_index("history_findings_open", "history_findings", columns, sqlite_where=_OPEN, postgresql_where=_OPEN)
