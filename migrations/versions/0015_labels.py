"""Labels of declared resources, by which commands select them.

Revision ID: 0015
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("resources", sa.Column("labels", sa.Text(), nullable=False, server_default="{}"))
