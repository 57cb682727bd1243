"""Tables of the verifiable history: trees, their tiles and their checkpoints."""

from __future__ import annotations

import sqlalchemy as sa

from eventd.store.schema.columns import Micros, index_of_some, metadata, serial

trees = sa.Table(
    "trees",
    metadata,
    sa.Column("id", serial, primary_key=True),
    sa.Column("topic_id", sa.BigInteger, nullable=False),  # 0: it was dropped, and is being deleted
    sa.Column("origin", sa.Text, nullable=False),
    sa.Column("log_key", sa.Text, nullable=False),  # the verifier key of its checkpoints
    # Of the log, when the tree was opened; empty for a tree of another node, of which this one relays events.
    sa.Column("epoch", sa.Text, nullable=False),
    sa.Column("opening", sa.LargeBinary, nullable=False),  # the entry of leaf 0
    sa.Column("opened_at", Micros, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),  # leaves with a checkpoint
    sa.Column("position", sa.BigInteger, nullable=False),  # of the last record among them
    # Why no checkpoint of it is signed any more, or why the tiles of another node's tree prove nothing; empty: nothing
    # is wrong with it.
    sa.Column("trouble", sa.Text, nullable=False, server_default=sa.text("''")),
    sa.UniqueConstraint("origin", name="trees_origin"),
    sa.Index("trees_topic", "topic_id"),
    sqlite_autoincrement=True,  # blocks name a tree by its id
)

tiles = sa.Table(
    "tiles",
    metadata,
    sa.Column("tree", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("level", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("hashes", sa.LargeBinary, nullable=False),  # up to 256; the last tile of each level grows
)

leaf_hints = sa.Table(
    "leaf_hints",
    metadata,
    sa.Column("topic_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),  # of the first record of a batch
    sa.Column("upto", sa.BigInteger, nullable=False),  # position of the last one
    sa.Column("places", sa.Text, nullable=False),  # as in the header Eventd-Leaves, by positions of this log
    # Up to which position its events were compared with the tiles; 0: not at all.
    sa.Column("checked", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("due", Micros, nullable=True),  # when the next of them is compared; empty: none is
    index_of_some("leaf_hints_due", "topic_id", "due", where="due IS NOT NULL"),
)

refuted_events = sa.Table(
    "refuted_events",
    metadata,
    sa.Column("topic_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("event_id", sa.Text, nullable=False),
    sa.Column("origin", sa.Text, nullable=False),  # of the tree that refutes it
    sa.Column("leaf", sa.BigInteger, nullable=False),  # where it was said to be
    sa.Column("refuted_at", Micros, nullable=False),
    sa.Column("kind", sa.Text, nullable=False, server_default=sa.text("'refuted'")),  # refuted | released
    sa.Index("refuted_events_id", "topic_id", "event_id"),
)

checkpoints = sa.Table(
    "checkpoints",
    metadata,
    sa.Column("tree", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("size", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("root", sa.LargeBinary, nullable=False),
    sa.Column("note", sa.Text, nullable=False),
    sa.Column("signed_at", Micros, nullable=False),
    sa.Index("checkpoints_signed", "signed_at"),
)
