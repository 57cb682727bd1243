"""The sessions of browsers that signed in to the console, the record of actions, bulk jobs, and verifications.

Revision ID: 0014
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create_sessions()
    _create_actions()
    _index_dead_letters()
    _create_jobs()
    _create_verifications()


def _create_sessions() -> None:
    op.create_table(
        "console_sessions",
        sa.Column("digest", sa.Text(), primary_key=True),
        sa.Column("key_digest", sa.Text(), nullable=False),
        sa.Column("key_name", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("used_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
    )


def _create_actions() -> None:
    op.create_table(
        "actions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("object", sa.Text(), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("actions_at", "actions", ["at"])
    op.create_table(
        "action_answers",
        sa.Column("caller", sa.Text(), primary_key=True),
        sa.Column("key", sa.Text(), primary_key=True),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("answer", sa.LargeBinary()),
    )
    op.create_index("action_answers_at", "action_answers", ["at"])


def _index_dead_letters() -> None:
    op.create_index("dead_letters_cursor", "dead_letters", ["topic_id", "cursor", "id"])
    op.create_index("dead_letters_event", "dead_letters", ["topic_id", "event_id"])
    op.create_index("dead_letters_reason", "dead_letters", ["cursor", "reason", "id"])


def _create_jobs() -> None:
    op.create_table(
        "bulk_jobs",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("group_name", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("bound", sa.BigInteger(), nullable=False),
        sa.Column("planned_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("total", sa.BigInteger(), nullable=False),
        sa.Column("exact", sa.SmallInteger(), nullable=False),
        sa.Column("key_digest", sa.Text(), nullable=False),
        sa.Column("started_by", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger()),
        sa.Column("finished_at", sa.BigInteger()),
        sa.Column("after", sa.BigInteger(), nullable=False),
        sa.Column("done", sa.BigInteger(), nullable=False),
        sa.Column("results", sa.Text(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("retry_at", sa.BigInteger(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("runner", sa.Text(), nullable=False),
        sa.Column("leased_until", sa.BigInteger(), nullable=False),
        sa.UniqueConstraint("token", name="bulk_jobs_token"),
        sqlite_autoincrement=True,
    )
    unfinished = sa.text("finished_at IS NULL")
    op.create_index("bulk_jobs_unfinished", "bulk_jobs", ["id"], sqlite_where=unfinished, postgresql_where=unfinished)


def _create_verifications() -> None:
    op.create_table(
        "verifications",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True),
        sa.Column("group_name", sa.Text(), nullable=False),
        sa.Column("peer", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("duration", sa.BigInteger(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("compared", sa.BigInteger(), nullable=False),
        sa.Column("missing", sa.BigInteger(), nullable=False),
        sa.Column("extra", sa.BigInteger(), nullable=False),
        sa.Column("other", sa.BigInteger(), nullable=False),
        sa.Column("unresolved", sa.BigInteger(), nullable=False),
        sa.Column("pending", sa.BigInteger(), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("verifications_peer", "verifications", ["group_name", "peer", "id"])
