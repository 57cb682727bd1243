"""Tables of witnesses: what is known of the trees and keys of other nodes, what they cosigned, and findings."""

from __future__ import annotations

import sqlalchemy as sa

from eventd.store.schema.columns import Micros, metadata, serial

_OPEN_ONES = sa.text("confirmed_at IS NULL")

witnessed = sa.Table(
    "witnessed",
    metadata,
    sa.Column("topic_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("origin", sa.Text, primary_key=True),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("log_key", sa.Text, nullable=False),  # the verifier key of the tree
    sa.Column("size", sa.BigInteger, nullable=False),  # of the last checkpoint that this node cosigned
    sa.Column("root", sa.LargeBinary, nullable=False),
    sa.Column("note", sa.Text, nullable=False),
    sa.Column("opened_at", Micros, nullable=False),  # from its opening entry, raised above that of its predecessor
    sa.Column("witnessed_at", Micros, nullable=False),
    sa.Index("witnessed_node", "topic_id", "node"),
)

closed_trees = sa.Table(
    "closed_trees",
    metadata,
    # 0 for this node's own trees of deleted groups
    sa.Column("topic_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("origin", sa.Text, primary_key=True),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("log_key", sa.Text, nullable=False),  # the verifier key of the tree
    sa.Column("size", sa.BigInteger, nullable=False),  # the last one that was cosigned, or signed
    sa.Column("root", sa.LargeBinary, nullable=False),
    sa.Column("opened_at", Micros, nullable=False),
    sa.Index("closed_trees_node", "topic_id", "node"),
)

history_keys = sa.Table(
    "history_keys",
    metadata,
    sa.Column("topic_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),  # `log` or `witness`
    sa.Column("key", sa.LargeBinary, nullable=False),  # empty: the node's key is not known yet
    sa.Column("source", sa.Text, nullable=False),  # pinned, owned, shared
    sa.Column("pin", sa.LargeBinary, nullable=True),  # the declared key that it is, or that signed its succession
    sa.Column("learned_at", Micros, nullable=False),
    sa.Column("refused", sa.LargeBinary, nullable=True),  # the last other key that the node has shown
    sa.Column("refused_at", Micros, nullable=True),
)

history_findings = sa.Table(
    "history_findings",
    metadata,
    sa.Column("id", serial, primary_key=True),
    sa.Column("topic_id", sa.BigInteger, nullable=False),
    sa.Column("origin", sa.Text, nullable=False),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("other_size", sa.BigInteger, nullable=False),
    sa.Column("note", sa.Text, nullable=False),  # what this node held or signed; empty: nothing
    sa.Column("other_note", sa.Text, nullable=False),  # what does not fit to it
    sa.Column("detail", sa.Text, nullable=False),
    sa.Column("found_at", Micros, nullable=False),
    sa.Column("confirmed_at", Micros, nullable=True),  # when an operator took note of it
    sa.Index("history_findings_origin", "topic_id", "origin"),
    sa.Index("history_findings_open", "topic_id", "node", "kind", sqlite_where=_OPEN_ONES, postgresql_where=_OPEN_ONES),
    sqlite_autoincrement=True,  # operators confirm findings by their ids
)

witnesses = sa.Table(
    "witnesses",
    metadata,
    sa.Column("tree", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("peer", sa.Text, primary_key=True),
    sa.Column("size", sa.BigInteger, nullable=False),  # that the peer holds
    sa.Column("cosigned_at", Micros, nullable=True),
    sa.Column("state", sa.Text, nullable=False, server_default=sa.text("''")),  # empty, or why it does not cosign
    sa.Column("detail", sa.Text, nullable=False, server_default=sa.text("''")),
    sa.Column("asked_at", Micros, nullable=False),
)
