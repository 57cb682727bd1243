"""Tables of the delivery ledger: inbound batches, refused requests, id conflicts, returned events, losses.

For the other tables, such as outbound batches, see `eventd.store.schema.tables`.
"""

from __future__ import annotations

import sqlalchemy as sa

from eventd.store.schema.columns import Micros, metadata, serial

inbound_gaps = sa.Table(
    "inbound_gaps",
    metadata,
    sa.Column("id", serial, primary_key=True),
    sa.Column("topic_id", sa.BigInteger, nullable=False),
    sa.Column("node", sa.Text, nullable=False),  # the node that reported it; if `book` is not empty, the peer concerned
    sa.Column("epoch", sa.Text, nullable=False),
    sa.Column("after", sa.BigInteger, nullable=False),
    sa.Column("upto", sa.BigInteger, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("recorded_at", Micros, nullable=False),
    # Empty: a sender reported it. Otherwise this node lost rows of that ledger before they were read.
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
    sa.Column("covers", sa.Text, nullable=False),  # the range as the sender wrote it
    sa.Column("digest", sa.Text, nullable=False),  # Content-Digest of the batch's body
    sa.Column("receipt", sa.Text, nullable=False),
    sa.Column("recorded_at", Micros, nullable=False),
    # of its events in the sender's log, as `encode_positions` writes them; empty: not all of them were stored
    sa.Column("positions", sa.Text, nullable=False, server_default=sa.text("''")),
    sa.UniqueConstraint("topic_id", "node", "batch_id", name="inbound_batches_link_batch"),
    sa.Index("inbound_batches_recorded", "recorded_at"),
    sqlite_autoincrement=True,
)

refusals = sa.Table(
    "refusals",
    metadata,
    sa.Column("id", serial, primary_key=True),
    sa.Column("group_name", sa.Text, nullable=False),
    sa.Column("peer", sa.Text, nullable=False),  # the node that the request named; empty: none, ?: not a declared peer
    sa.Column("key_id", sa.Text, nullable=False),  # the key that it named, if it is known
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("count", sa.BigInteger, nullable=False),  # since the previous row with the same peer, key and reason
    sa.Column("first_at", Micros, nullable=False),
    sa.Column("last_at", Micros, nullable=False),
    sa.Index("refusals_last", "last_at"),
    sqlite_autoincrement=True,
)

id_conflicts = sa.Table(
    "id_conflicts",
    metadata,
    sa.Column("topic_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("owner", sa.Text, primary_key=True),  # source of the event that holds the id; ?: not known any more
    # the key that it came with; empty: emitted here, ?: not known any more
    sa.Column("owner_key", sa.Text, primary_key=True),
    sa.Column("source", sa.Text, primary_key=True),  # source of the event that was not stored
    sa.Column("key_id", sa.Text, primary_key=True),  # the key that it came with
    sa.Column("times", sa.BigInteger, nullable=False),
    sa.Column("event_id", sa.Text, nullable=False),  # that of the last one
    sa.Column("first_at", Micros, nullable=False),
    sa.Column("last_at", Micros, nullable=False),
    sa.Index("id_conflicts_last", "last_at"),
)

returned_events = sa.Table(
    "returned_events",
    metadata,
    sa.Column("topic_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("event_id", sa.Text, primary_key=True),
    sa.Column("peer", sa.Text, nullable=False),  # the peer that returned the event
    sa.Column("at", Micros, nullable=False),
    sa.Column("batch_id", sa.Text, nullable=False),  # the batch whose receipt names it; empty: none does
    sa.Column("unproven", sa.Text, nullable=False),  # why none does; empty: one does
    sa.Column("confirmed", sa.BigInteger, nullable=False, server_default="0"),  # 1: this node's ledger has the batch
)

forgotten = sa.Table(
    "forgotten",
    metadata,
    sa.Column("book", sa.Text, primary_key=True),  # the name of a table
    sa.Column("upto", sa.BigInteger, nullable=False),  # rows up to this id may be missing
)
