"""How many bytes topics of records hold together: a limit on that summed up all topics in every writing transaction.

Revision ID: 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("log_heads", sa.Column("record_bytes", sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    op.execute("UPDATE log_heads SET record_bytes = (SELECT coalesce(sum(bytes), 0) FROM topics WHERE form = 'record')")
