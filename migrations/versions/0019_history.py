"""Trees of what a node admitted, with their tiles and checkpoints, and the leaf indices of stored records.

Revision ID: 0019
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.add_column("topics", sa.Column("tree", sa.BigInteger(), nullable=True))
    op.add_column("topics", sa.Column("next_leaf", sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    op.add_column("blocks", sa.Column("tree", sa.BigInteger(), nullable=True))
    op.add_column("blocks", sa.Column("leaf", sa.BigInteger(), nullable=True))
    op.create_table(
        "trees",
        sa.Column("id", serial, nullable=False),
        sa.Column("topic_id", sa.BigInteger(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("log_key", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Text(), nullable=False),
        sa.Column("opening", sa.LargeBinary(), nullable=False),
        sa.Column("opened_at", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("trouble", sa.Text(), nullable=False, server_default=sa.text("''")),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("origin", name="trees_origin"),
        sqlite_autoincrement=True,
    )
    op.create_index("trees_topic", "trees", ["topic_id"])
    op.create_table(
        "tiles",
        sa.Column("tree", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("level", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("hashes", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("tree", "level", "number"),
    )
    op.create_table(
        "checkpoints",
        sa.Column("tree", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("size", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("root", sa.LargeBinary(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("signed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tree", "size"),
    )
    op.create_index("checkpoints_signed", "checkpoints", ["signed_at"])
