"""The text of a block under another name, so that a program of before 0006 fails instead of writing lines of its form.

Revision ID: 0007
"""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE blocks RENAME COLUMN lines TO text")
