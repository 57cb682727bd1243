"""The tables of the console: sessions of browsers that signed in, the record of actions, bulk jobs, verifications."""

from __future__ import annotations

import sqlalchemy as sa

from eventd.store.schema.columns import Micros, index_of_some, metadata, serial

console_sessions = sa.Table(
    "console_sessions",
    metadata,
    sa.Column("digest", sa.Text, primary_key=True),  # SHA-256 of the cookie's value (hex)
    sa.Column("key_digest", sa.Text, nullable=False),  # of the API key that signed in (hex): its permissions count
    sa.Column("key_name", sa.Text, nullable=False),  # empty for a key of the settings
    sa.Column("address", sa.Text, nullable=False),  # of the browser
    sa.Column("created_at", Micros, nullable=False),
    sa.Column("used_at", Micros, nullable=False),  # written at most once a minute
    sa.Column("expires_at", Micros, nullable=False),
)

# One row for each action, or for several equal ones that were refused.
actions = sa.Table(
    "actions",
    metadata,
    sa.Column("id", serial, primary_key=True),
    sa.Column("at", Micros, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),  # of the caller
    sa.Column("who", sa.Text, nullable=False),
    sa.Column("address", sa.Text, nullable=False),
    sa.Column("operation", sa.Text, nullable=False),
    sa.Column("object", sa.Text, nullable=False),
    sa.Column("arguments", sa.Text, nullable=False),  # JSON, without payloads and secrets
    sa.Column("result", sa.Text, nullable=False),  # ok, started, or the code of an error
    sa.Column("request", sa.Text, nullable=False),  # its id
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Index("actions_at", "at"),
    sqlite_autoincrement=True,
)

# Answers to requests with an Idempotency-Key, for as long as these may be repeated.
action_answers = sa.Table(
    "action_answers",
    metadata,
    sa.Column("caller", sa.Text, primary_key=True),  # a hash of the caller's key
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("fingerprint", sa.Text, nullable=False),  # a hash of the operation and its arguments
    sa.Column("at", Micros, nullable=False),  # by the steady clock
    sa.Column("status", sa.Integer, nullable=False),  # HTTP status; 0: no answer yet
    sa.Column("answer", sa.LargeBinary),  # compressed; NULL: not kept
    sa.Index("action_answers_at", "at"),
)

# Actions on all dead letters that match a filter: planned, then done step by step.
bulk_jobs = sa.Table(
    "bulk_jobs",
    metadata,
    sa.Column("id", serial, primary_key=True),
    sa.Column("token", sa.Text, nullable=False),  # SHA-256 of the plan's token (hex)
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("group_name", sa.Text, nullable=False),  # empty: of a callback
    sa.Column("target", sa.Text, nullable=False),  # JSON: whose dead letters, and which of them
    sa.Column("bound", sa.BigInteger, nullable=False),  # the newest dead letter when the job was planned
    sa.Column("planned_at", Micros, nullable=False),
    sa.Column("expires_at", Micros, nullable=False),  # of the plan
    sa.Column("total", sa.BigInteger, nullable=False),
    sa.Column("exact", sa.SmallInteger, nullable=False),  # 0: the total is an estimate
    sa.Column("key_digest", sa.Text, nullable=False),  # of the key that started it (hex); empty: needs no key
    sa.Column("started_by", sa.Text, nullable=False),
    sa.Column("started_at", Micros),
    sa.Column("finished_at", Micros),
    sa.Column("after", sa.BigInteger, nullable=False),  # the last dead letter that a step looked at
    sa.Column("done", sa.BigInteger, nullable=False),
    sa.Column("results", sa.Text, nullable=False),  # JSON [[outcome, reason, count], …]
    sa.Column("attempts", sa.BigInteger, nullable=False),  # failures of the present step in a row
    sa.Column("retry_at", Micros, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    sa.Column("runner", sa.Text, nullable=False),  # the process that runs it, until `leased_until`
    sa.Column("leased_until", Micros, nullable=False),
    sa.UniqueConstraint("token", name="bulk_jobs_token"),
    index_of_some("bulk_jobs_unfinished", "id", where="finished_at IS NULL"),
    sqlite_autoincrement=True,
)

# The newest results of comparisons with each peer.
verifications = sa.Table(
    "verifications",
    metadata,
    sa.Column("id", serial, primary_key=True),
    sa.Column("group_name", sa.Text, nullable=False),
    sa.Column("peer", sa.Text, nullable=False),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("at", Micros, nullable=False),
    sa.Column("duration", Micros, nullable=False),
    sa.Column("why", sa.Text, nullable=False),  # it could not be compared; empty: it was
    sa.Column("compared", sa.BigInteger, nullable=False),
    sa.Column("missing", sa.BigInteger, nullable=False),
    sa.Column("extra", sa.BigInteger, nullable=False),
    sa.Column("other", sa.BigInteger, nullable=False),
    sa.Column("unresolved", sa.BigInteger, nullable=False),
    sa.Column("pending", sa.BigInteger, nullable=False),
    sa.Index("verifications_peer", "group_name", "peer", "id"),
    sqlite_autoincrement=True,
)
