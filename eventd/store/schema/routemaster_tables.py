"""The tables of the Routemaster surface: its topics, its subscribers, and which events each of these is to get."""

from __future__ import annotations

import sqlalchemy as sa

from eventd.store.schema.columns import Micros, by_bytes, metadata

rm_topics = sa.Table(
    "rm_topics",
    metadata,
    sa.Column("name", by_bytes, primary_key=True),
    sa.Column("publisher", sa.Text, nullable=False),  # the identity that claimed it; empty: none did
    sa.Column("events", sa.BigInteger, nullable=False),  # accepted so far
    # The times that the node gave events, in ms: `recent` is JSON {mark of a URL: last time}, for URLs whose last time
    # is not before `base`; no later time is before `base`.
    sa.Column("base", sa.BigInteger, nullable=False),
    sa.Column("recent", sa.Text, nullable=False),
    sa.Column("created_at", Micros, nullable=False),
)

rm_subscribers = sa.Table(
    "rm_subscribers",
    metadata,
    sa.Column("identity", sa.Text, primary_key=True),  # of its tokens; its cursor is `callback:rm/IDENTITY`
    sa.Column("callback", sa.Text, nullable=False),
    sa.Column("uuid", sa.Text, nullable=False),  # what callbacks authenticate with: never shown, logged or shipped
    sa.Column("timeout_ms", sa.BigInteger, nullable=False),
    sa.Column("max_events", sa.BigInteger, nullable=False),
    sa.Column("sent", sa.BigInteger, nullable=False),  # events acknowledged so far
    sa.Column("created_at", Micros, nullable=False),
    sa.Column("updated_at", Micros, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),  # of its intervals: the `selector_version` of its cursor
)

# Beside the subscribers, because keys outlive a subscription: a client that subscribes again is signed as before.
rm_signing = sa.Table(
    "rm_signing",
    metadata,
    sa.Column("identity", sa.Text, primary_key=True),
    sa.Column("keys", sa.Text, nullable=False),  # JSON [[id, secret file]]
)

# An interval that has ended is deleted once the subscriber's cursor has passed it.
rm_intervals = sa.Table(
    "rm_intervals",
    metadata,
    sa.Column("subscriber", sa.Text, primary_key=True),
    sa.Column("topic", sa.Text, primary_key=True),
    sa.Column("after", sa.BigInteger, primary_key=True, autoincrement=False),  # position: later events are selected
    sa.Column("upto", sa.BigInteger),  # position of the last selected event; null: the subscription lasts
    sa.Index("rm_intervals_topic", "topic"),
)
