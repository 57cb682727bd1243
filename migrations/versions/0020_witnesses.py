"""Witnesses: what is known of the trees and keys of other nodes, what they cosigned, and findings.

Revision ID: 0020
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "witnessed",
        sa.Column("topic_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("log_key", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("root", sa.LargeBinary(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("opened_at", sa.BigInteger(), nullable=False),
        sa.Column("witnessed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("topic_id", "origin"),
    )
    op.create_index("witnessed_node", "witnessed", ["topic_id", "node"])
    op.create_table(
        "history_keys",
        sa.Column("topic_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("pin", sa.LargeBinary(), nullable=True),
        sa.Column("learned_at", sa.BigInteger(), nullable=False),
        sa.Column("refused", sa.LargeBinary(), nullable=True),
        sa.Column("refused_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("topic_id", "node", "kind"),
    )
    op.create_table(
        "history_findings",
        sa.Column("id", serial, nullable=False),
        sa.Column("topic_id", sa.BigInteger(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("other_size", sa.BigInteger(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("other_note", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("found_at", sa.BigInteger(), nullable=False),
        sa.Column("confirmed_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("history_findings_origin", "history_findings", ["topic_id", "origin"])
    op.create_table(
        "witnesses",
        sa.Column("tree", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("peer", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("cosigned_at", sa.BigInteger(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False, server_default=sa.text("''")),
        sa.Column("detail", sa.Text(), nullable=False, server_default=sa.text("''")),
        sa.Column("asked_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tree", "peer"),
    )
