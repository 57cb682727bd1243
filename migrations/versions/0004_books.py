"""The delivery ledger for external readers: numbered receipts, refused requests, rows evicted before they were read.

Revision ID: 0004
"""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_RECEIPT = "topic_id, node, batch_id, key_id, covers, digest, receipt, recorded_at"


def _name_instance() -> None:
    """A database has a name of its own, whatever its history."""
    op.add_column("log_heads", sa.Column("instance", sa.Text(), nullable=False, server_default=sa.text("''")))
    op.execute(f"UPDATE log_heads SET instance = '{secrets.token_hex(8)}'")


def _number_receipts() -> None:
    """A table gets its serial when it is made: so it is made anew, its rows in the order in which they were written."""
    op.execute("CREATE TABLE receipts_before AS SELECT * FROM inbound_batches")
    op.drop_table("inbound_batches")
    op.create_table(
        "inbound_batches",
        sa.Column("id", _SERIAL, nullable=False),
        sa.Column("topic_id", sa.BigInteger(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("covers", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("receipt", sa.Text(), nullable=False),
        sa.Column("recorded_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("topic_id", "node", "batch_id", name="inbound_batches_link_batch"),
        sqlite_autoincrement=True,
    )
    op.create_index("inbound_batches_recorded", "inbound_batches", ["recorded_at"], unique=False)
    op.execute(
        f"INSERT INTO inbound_batches ({_RECEIPT}) SELECT {_RECEIPT} FROM receipts_before"
        " ORDER BY recorded_at, topic_id, node, batch_id"
    )
    op.drop_table("receipts_before")


def _create_books() -> None:
    """Refused requests, trim marks, and losses of ledger rows."""
    op.add_column("inbound_gaps", sa.Column("book", sa.Text(), nullable=False, server_default=sa.text("''")))
    op.create_table(
        "refusals",
        sa.Column("id", _SERIAL, nullable=False),
        sa.Column("group_name", sa.Text(), nullable=False),
        sa.Column("peer", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("first_at", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("refusals_last", "refusals", ["last_at"], unique=False)
    op.create_table(
        "forgotten",
        sa.Column("book", sa.Text(), nullable=False),
        sa.Column("upto", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("book"),
    )


def upgrade() -> None:
    _name_instance()
    _number_receipts()
    _create_books()
