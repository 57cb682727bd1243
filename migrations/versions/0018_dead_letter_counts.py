"""How many dead letters each cursor has.

Revision ID: 0018
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "dead_letter_counts",
        sa.Column("topic_id", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("cursor", sa.Text(), primary_key=True),
        sa.Column("letters", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.execute(
        "INSERT INTO dead_letter_counts (topic_id, cursor, letters)"
        " SELECT topic_id, cursor, count(*) FROM dead_letters GROUP BY topic_id, cursor"
    )
