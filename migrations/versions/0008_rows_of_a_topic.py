"""Indexes of the rows that belong to a topic, where there was none: removing deleted topics looked through all rows.

Revision ID: 0008
"""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("dead_letters_topic", "dead_letters", ["topic_id", "id"], unique=False)
    op.create_index("inbound_gaps_topic", "inbound_gaps", ["topic_id"], unique=False)
