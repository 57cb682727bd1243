"""Whether the ledger of this node confirms the receipt of an event that came back from a peer.

Revision ID: 0017
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("returned_events", sa.Column("confirmed", sa.BigInteger(), nullable=False, server_default="0"))
