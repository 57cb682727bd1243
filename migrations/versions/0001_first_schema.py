"""The first schema: the log, its cursors, the links to peers, and what was declared.

Revision ID: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_GONE = sa.text("gone_at IS NOT NULL")
_OWN = sa.text("own = 1")


def _create_heads() -> None:
    """Where the log ends, and each topic's own line."""
    op.create_table(
        "log_heads",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("next_position", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.Text(), nullable=False),
        sa.Column("incarnation", sa.BigInteger(), nullable=False),
        sa.Column("registry_version", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("id = 1", name="one_head"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "topics",
        sa.Column("id", _SERIAL, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("next_seq", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("ids", sa.BigInteger(), nullable=False),
        sa.Column("evicted_seq", sa.BigInteger(), nullable=False),
        sa.Column("evicted_position", sa.BigInteger(), nullable=False),
        sa.Column("lost_position", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        sqlite_autoincrement=True,
    )


def _create_records() -> None:
    """What is recorded, and the ids it is known by."""
    op.create_table(
        "event_ids",
        sa.Column("topic_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("first_position", sa.BigInteger(), nullable=True),
        sa.Column("gone_at", sa.BigInteger(), nullable=True),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("digest", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("topic_id", "event_id"),
        sqlite_with_rowid=False,
    )
    op.create_index("event_ids_gone", "event_ids", ["gone_at"], sqlite_where=_GONE, postgresql_where=_GONE)
    op.create_table(
        "blocks",
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("topic_id", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("records", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("recorded_at", sa.BigInteger(), nullable=False),
        sa.Column("own", sa.SmallInteger(), nullable=False),
        sa.Column("expires_first", sa.BigInteger(), nullable=True),
        sa.Column("types", sa.Text(), nullable=False),
        sa.Column("sources", sa.Text(), nullable=False),
        sa.Column("paths", sa.Text(), nullable=False),
        sa.Column("lines", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("position"),
        sa.UniqueConstraint("topic_id", "seq", name="blocks_topic_seq"),
    )
    op.create_index("blocks_own", "blocks", ["topic_id", "position"], sqlite_where=_OWN, postgresql_where=_OWN)
    op.create_index("blocks_topic_position", "blocks", ["topic_id", "position"], unique=False)


def _create_cursors() -> None:
    """How far each consumer is, and what it selects."""
    op.create_table(
        "cursors",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("topic_id", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=True),
        sa.Column("sent_upto", sa.BigInteger(), nullable=False),
        sa.Column("sent_epoch", sa.Text(), nullable=False),
        sa.Column("rewound_from", sa.BigInteger(), nullable=True),
        sa.Column("selector_version", sa.BigInteger(), nullable=False),
        sa.Column("selection", sa.Text(), nullable=False),
        sa.Column("protocol", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("paused_at", sa.BigInteger(), nullable=True),
        sa.Column("paused_by", sa.Text(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("attempted_upto", sa.BigInteger(), nullable=False),
        sa.Column("attempted_at", sa.BigInteger(), nullable=True),
        sa.Column("retry_at", sa.BigInteger(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=False),
        sa.Column("succeeded_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "selectors",
        sa.Column("cursor", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("selection", sa.Text(), nullable=False),
        sa.Column("declared_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cursor", "version"),
    )


def _create_books() -> None:
    """Deliveries and dead letters."""
    op.create_table(
        "batches",
        sa.Column("id", _SERIAL, nullable=False),
        sa.Column("cursor", sa.Text(), nullable=False),
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Text(), nullable=False),
        sa.Column("incarnation", sa.BigInteger(), nullable=False),
        sa.Column("after", sa.BigInteger(), nullable=False),
        sa.Column("upto", sa.BigInteger(), nullable=False),
        sa.Column("events", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("selector_version", sa.BigInteger(), nullable=False),
        sa.Column("exceptions", sa.Text(), nullable=False),
        sa.Column("picked", sa.Text(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("sent_at", sa.BigInteger(), nullable=False),
        sa.Column("acked_at", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("protocol", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("receipt", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("batches_acked", "batches", ["acked_at"], unique=False)
    op.create_index("batches_cursor_upto", "batches", ["cursor", "upto"], unique=False)
    op.create_table(
        "dead_letters",
        sa.Column("id", _SERIAL, nullable=False),
        sa.Column("cursor", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("topic_id", sa.BigInteger(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("parked_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("cursor", "position", name="dead_letters_cursor_position"),
        sqlite_autoincrement=True,
    )
    op.create_index("dead_letters_parked", "dead_letters", ["parked_at"], unique=False)


def _create_ingress() -> None:
    """What peers sent us, so that nothing counts twice."""
    op.create_table(
        "inbound_batches",
        sa.Column("topic_id", sa.BigInteger(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("covers", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("receipt", sa.Text(), nullable=False),
        sa.Column("recorded_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("topic_id", "node", "batch_id"),
    )
    op.create_index("inbound_batches_recorded", "inbound_batches", ["recorded_at"], unique=False)
    op.create_table(
        "inbound_gaps",
        sa.Column("id", _SERIAL, nullable=False),
        sa.Column("topic_id", sa.BigInteger(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Text(), nullable=False),
        sa.Column("after", sa.BigInteger(), nullable=False),
        sa.Column("upto", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("recorded_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "inbound_links",
        sa.Column("topic_id", sa.BigInteger(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Text(), nullable=False),
        sa.Column("incarnation", sa.BigInteger(), nullable=False),
        sa.Column("base", sa.BigInteger(), nullable=False),
        sa.Column("upto", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("topic_id", "node"),
    )
    op.create_table(
        "nonces",
        sa.Column("group_name", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("nonce", sa.Text(), nullable=False),
        sa.Column("keep_until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("group_name", "key_id", "nonce"),
    )
    op.create_index("nonces_keep_until", "nonces", ["keep_until"], unique=False)


def _create_registry() -> None:
    """What an operator declared."""
    op.create_table(
        "resources",
        sa.Column("api_version", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("annotations", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("api_version", "kind", "name"),
    )


def upgrade() -> None:
    _create_heads()
    _create_records()
    _create_cursors()
    _create_books()
    _create_ingress()
    _create_registry()
