"""Tables of callbacks. For the conventions see `eventd.store.schema.tables`."""

from __future__ import annotations

import sqlalchemy as sa

from eventd.store.schema.columns import Micros, metadata, serial

# Attempts that failed or are under way; one that succeeded is a row of `batches`.
callback_attempts = sa.Table(
    "callback_attempts",
    metadata,
    sa.Column("id", serial, primary_key=True),
    sa.Column("cursor", sa.Text, nullable=False),
    sa.Column("message_id", sa.Text, nullable=False),
    sa.Column("after", sa.BigInteger, nullable=False),
    sa.Column("upto", sa.BigInteger, nullable=False),
    sa.Column("shape", sa.Text, nullable=False),  # the format, limits and selection that the message was made with
    sa.Column("events", sa.BigInteger, nullable=False),
    sa.Column("omitted", sa.Text, nullable=False),  # JSON [position, …] of matching events that are not in the message
    sa.Column("attempt", sa.BigInteger, nullable=False),
    sa.Column("answers", sa.BigInteger, nullable=False),  # how many of the attempts the endpoint answered as refusals
    sa.Column("status", sa.Integer, nullable=False),  # HTTP status; 0: no answer
    sa.Column("reason", sa.Text, nullable=False),  # empty: under way, or interrupted
    sa.Column("detail", sa.Text, nullable=False),
    sa.Column("started_at", Micros, nullable=False),  # of the last attempt of the row
    sa.Column("first_at", Micros, nullable=False),  # of the first one
    sa.Column("duration", sa.BigInteger, nullable=False),  # microseconds
    sa.Column("address", sa.Text, nullable=False),
    sa.Column("key_ids", sa.Text, nullable=False),
    sa.Column("answer", sa.Text, nullable=False),  # the first characters of the body
    sa.Column("retry_at", Micros),
    sa.Column("folded", sa.BigInteger, nullable=False),  # how many equal attempts the row stands for
    sa.Index("callback_attempts_cursor", "cursor", "id"),
    sa.Index("callback_attempts_started", "started_at"),
    sqlite_autoincrement=True,
)
