"""The tables of the delivery ledger: rows that an audit reads to check this node, and losses that peers reported.

For the rest, what they are made of, see `schema`.
"""

from __future__ import annotations

import sqlalchemy as sa

from eventd.store.schema.columns import Micros, metadata, serial

inbound_gaps = sa.Table(
    "inbound_gaps",
    metadata,
    sa.Column("id", serial, primary_key=True),
    sa.Column("topic_id", sa.BigInteger, nullable=False),
    sa.Column("node", sa.Text, nullable=False),  # who told of it; where `book` is not empty, whom it is about
    sa.Column("epoch", sa.Text, nullable=False),
    sa.Column("after", sa.BigInteger, nullable=False),
    sa.Column("upto", sa.BigInteger, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("recorded_at", Micros, nullable=False),
    # Empty: a sender told of it. Otherwise this node lost something of that book of its own before it was read.
    sa.Column("book", sa.Text, nullable=False, server_default=sa.text("''")),
    sa.Index("inbound_gaps_topic", "topic_id"),
    sqlite_autoincrement=True,
)

inbound_batches = sa.Table(
    "inbound_batches",
    metadata,
    sa.Column("id", serial, primary_key=True),
    sa.Column("topic_id", sa.BigInteger, nullable=False),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("batch_id", sa.Text, nullable=False),
    sa.Column("key_id", sa.Text, nullable=False),
    sa.Column("covers", sa.Text, nullable=False),  # the range, as the sender wrote it
    sa.Column("digest", sa.Text, nullable=False),  # of the batch's body
    sa.Column("receipt", sa.Text, nullable=False),
    sa.Column("recorded_at", Micros, nullable=False),
    sa.UniqueConstraint("topic_id", "node", "batch_id", name="inbound_batches_link_batch"),
    sa.Index("inbound_batches_recorded", "recorded_at"),
    sqlite_autoincrement=True,
)

refusals = sa.Table(
    "refusals",
    metadata,
    sa.Column("id", serial, primary_key=True),
    sa.Column("group_name", sa.Text, nullable=False),
    sa.Column("peer", sa.Text, nullable=False),  # the node it claimed to be; empty: none, ?: no peer
    sa.Column("key_id", sa.Text, nullable=False),  # which key it claimed, if we know it
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("count", sa.BigInteger, nullable=False),  # since the row before it of the same kind
    sa.Column("first_at", Micros, nullable=False),
    sa.Column("last_at", Micros, nullable=False),
    sa.Index("refusals_last", "last_at"),
    sqlite_autoincrement=True,
)

id_conflicts = sa.Table(
    "id_conflicts",
    metadata,
    sa.Column("topic_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("owner", sa.Text, primary_key=True),  # the source of the event that has the id; ?: not known any more
    sa.Column("owner_key", sa.Text, primary_key=True),  # which brought it; empty: emitted here, ?: not known any more
    sa.Column("source", sa.Text, primary_key=True),  # of the event that was not stored
    sa.Column("key_id", sa.Text, primary_key=True),  # likewise
    sa.Column("times", sa.BigInteger, nullable=False),
    sa.Column("event_id", sa.Text, nullable=False),  # of the last one
    sa.Column("first_at", Micros, nullable=False),
    sa.Column("last_at", Micros, nullable=False),
    sa.Index("id_conflicts_last", "last_at"),
)

forgotten = sa.Table(
    "forgotten",
    metadata,
    sa.Column("book", sa.Text, primary_key=True),  # by the name of its table
    sa.Column("upto", sa.BigInteger, nullable=False),  # rows up to this id may be missing
)
