"""Cursors by their kind: a declared change reads those of links and subscriptions, and not those of all routers.

Revision ID: 0009
"""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("cursors_kind", "cursors", ["kind", "name"], unique=False)
