"""Why a record lost its id: its node's tree refutes it, or the id was released.

Revision ID: 0024
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("refuted_events", sa.Column("kind", sa.Text(), nullable=False, server_default=sa.text("'refuted'")))
