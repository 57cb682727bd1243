"""Topics that hold records: their limits, the routers between them, queues, and keys to the API.

Revision ID: 0003
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.ext.compiler import compiles

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_BY_BYTES = sa.Text(collation="C").with_variant(sa.Text(), "sqlite")
_DUE = sa.text("due_at IS NOT NULL")
_OPEN = sa.text("free_at IS NOT NULL")


class _SortByBytes(sa.schema.ExecutableDDLElement):
    """Names of topics sort by their bytes, as they do on SQLite anyway."""


@compiles(_SortByBytes)
def _on_sqlite(_element: Any, _compiler: Any, **_options: Any) -> str:
    return "SELECT 1"


@compiles(_SortByBytes, "postgresql")
def _on_postgres(_element: Any, _compiler: Any, **_options: Any) -> str:
    return 'ALTER TABLE topics ALTER COLUMN name TYPE text COLLATE "C"'


def _extend_heads() -> None:
    """Topics have a version, and commits may be on their way to the disk."""
    for column in (
        sa.Column("topics_version", sa.BigInteger(), nullable=False, server_default=sa.text("1")),
        sa.Column("topics", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column("unsynced", sa.Text(), nullable=False, server_default=sa.text("''")),
    ):
        op.add_column("log_heads", column)


def _extend_topics() -> None:
    """What is there already are the topics of groups."""
    op.execute(_SortByBytes())
    for column in (
        sa.Column("form", sa.Text(), nullable=False, server_default=sa.text("'event'")),
        sa.Column("instance", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column("config", sa.Text(), nullable=False, server_default=sa.text("''")),
        sa.Column("durability", sa.Text(), nullable=False, server_default=sa.text("'fsync'")),
        sa.Column("deleted", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column("written_at", sa.BigInteger(), nullable=True),
        sa.Column("due_at", sa.BigInteger(), nullable=True),
    ):
        op.add_column("topics", column)
    op.create_index("topics_due", "topics", ["due_at"], unique=False, sqlite_where=_DUE, postgresql_where=_DUE)


def _create_books() -> None:
    """What a topic remembers of what it does not hold any more, or must not take twice."""
    op.create_table(
        "topic_losses",
        sa.Column("topic_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("first_seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("topic_id", "first_seq"),
    )
    op.create_table(
        "write_keys",
        sa.Column("topic_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("first_seq", sa.BigInteger(), nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("keep_until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("topic_id", "key"),
    )
    op.create_index("write_keys_keep_until", "write_keys", ["keep_until"], unique=False)


def _create_routers() -> None:
    """What forwards from topic to topic. Their cursors are beside the others."""
    op.create_table(
        "routers",
        sa.Column("id", _SERIAL, nullable=False),
        sa.Column("name", _BY_BYTES, nullable=False),
        sa.Column("source_id", sa.BigInteger(), nullable=False),
        sa.Column("dest_id", sa.BigInteger(), nullable=False),
        sa.Column("options", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("forwarded", sa.BigInteger(), nullable=False),
        sa.Column("refused", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        sqlite_autoincrement=True,
    )
    op.create_index("routers_source", "routers", ["source_id"], unique=False)
    op.create_index("routers_dest", "routers", ["dest_id"], unique=False)


def _create_queues() -> None:
    """Which jobs of a queue are handed out, to whom and until when."""
    op.create_table(
        "queues",
        sa.Column("topic_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("claimed_seq", sa.BigInteger(), nullable=False),
        sa.Column("held", sa.BigInteger(), nullable=False),
        sa.Column("delayed", sa.BigInteger(), nullable=False),
        sa.Column("dead_lettered", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("topic_id"),
    )
    op.create_table(
        "leases",
        sa.Column("topic_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("lease_id", sa.Text(), nullable=False),
        sa.Column("free_at", sa.BigInteger(), nullable=True),
        sa.Column("deliveries", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("topic_id", "seq"),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "leases_free",
        "leases",
        ["topic_id", "free_at", "seq"],
        unique=False,
        sqlite_where=_OPEN,
        postgresql_where=_OPEN,
    )


def _create_keys() -> None:
    """API keys and their permissions."""
    op.create_table(
        "api_keys",
        sa.Column("id", _SERIAL, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("prefixes", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("digest"),
        sa.UniqueConstraint("name"),
        sqlite_autoincrement=True,
    )


def upgrade() -> None:
    _extend_heads()
    _extend_topics()
    _create_books()
    _create_routers()
    _create_queues()
    _create_keys()
