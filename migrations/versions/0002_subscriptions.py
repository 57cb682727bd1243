"""Subscriptions: runs of plugins, the parts they give, and the effective configuration made of these.

Revision ID: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_CAPTURES = sa.text("captures <> ''")


def _extend_heads() -> None:
    """Parts have a version as declarations have one."""
    op.add_column("log_heads", sa.Column("parts_version", sa.BigInteger(), nullable=False, server_default=sa.text("1")))


def _create_runs() -> None:
    """What plugins were handed, and what became of it."""
    op.create_table(
        "plugin_runs",
        sa.Column("id", _SERIAL, nullable=False),
        sa.Column("plugin", sa.Text(), nullable=False),
        sa.Column("trigger", sa.Text(), nullable=False),
        sa.Column("subscription", sa.Text(), nullable=False),
        sa.Column("cursor", sa.Text(), nullable=False),
        sa.Column("after", sa.BigInteger(), nullable=False),
        sa.Column("upto", sa.BigInteger(), nullable=False),
        sa.Column("group_name", sa.Text(), nullable=False),
        sa.Column("event_ids", sa.Text(), nullable=False),
        sa.Column("coalesced", sa.Text(), nullable=False),
        sa.Column("events", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("completed_at", sa.BigInteger(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("stdout_digest", sa.Text(), nullable=False),
        sa.Column("stderr", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("plugin_runs_subscription", "plugin_runs", ["subscription", "id"], unique=False)
    op.create_index("plugin_runs_cursor", "plugin_runs", ["cursor", "id"], unique=False)
    op.create_index("plugin_runs_plugin", "plugin_runs", ["plugin", "id"], unique=False)
    op.create_index("plugin_runs_completed", "plugin_runs", ["completed_at"], unique=False)


def _create_parts() -> None:
    """What they derived."""
    op.create_table(
        "parts",
        sa.Column("id", _SERIAL, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("group_name", sa.Text(), nullable=False),
        sa.Column("plugin", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("observed_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("ends_at", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("resources", sa.Text(), nullable=False),
        sa.Column("directives", sa.Text(), nullable=False),
        sa.Column("action_plans", sa.Text(), nullable=False),
        sa.Column("event_ids", sa.Text(), nullable=False),
        sa.Column("subjects", sa.Text(), nullable=False),
        sa.Column("ends", sa.Text(), nullable=False),
        sa.Column("grace", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("source"),
        sqlite_autoincrement=True,
    )
    op.create_index("parts_owner", "parts", ["owner"], unique=False)
    op.create_index("parts_ends", "parts", ["ends_at"], unique=False)
    op.create_index("parts_revision", "parts", ["revision"], unique=False)


def _create_claims() -> None:
    """Which part gives which resource, and what each is about."""
    op.create_table(
        "part_claims",
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("api_version", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("part_id", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("ends_at", sa.BigInteger(), nullable=False),
        sa.Column("captures", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "api_version", "kind", "name"),
    )
    op.create_index("part_claims_part", "part_claims", ["part_id"], unique=False)
    op.create_index(
        "part_claims_captures", "part_claims", ["captures"], sqlite_where=_CAPTURES, postgresql_where=_CAPTURES
    )
    op.create_table(
        "part_subjects",
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("part_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("owner", "subject", "part_id"),
    )
    op.create_index("part_subjects_part", "part_subjects", ["part_id"], unique=False)


def _create_effective() -> None:
    """Which content of the effective configuration is the latest."""
    op.create_table(
        "effective_config",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("etag", sa.Text(), nullable=False),
        sa.Column("registry_version", sa.BigInteger(), nullable=False),
        sa.Column("parts_version", sa.BigInteger(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("id = 1", name="one_effective_config"),
        sa.PrimaryKeyConstraint("id"),
    )


def upgrade() -> None:
    _extend_heads()
    _create_runs()
    _create_parts()
    _create_claims()
    _create_effective()
