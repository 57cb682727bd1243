"""How long the lease or the delay of a job was asked for, so that it never stands longer after a restart.

Revision ID: 0026
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("leases", sa.Column("length", sa.BigInteger(), nullable=False, server_default=sa.text("0")))
