"""Two indexes of the few rows that are asked for apart: ids that were refreshed, and batches of repairs.

Without them, what asks for those looks through all ids and all batches.

Revision ID: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def _index(name: str, table: str, columns: list[str], where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, table, columns, unique=False, sqlite_where=condition, postgresql_where=condition)


def upgrade() -> None:
    _index("event_ids_refreshed", "event_ids", ["topic_id", "position", "first_position"], "first_position IS NOT NULL")
    _index("batches_picked", "batches", ["cursor"], "picked <> ''")
