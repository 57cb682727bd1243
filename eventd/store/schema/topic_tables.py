"""The tables of topics of records (losses, idempotency keys, routers, queues, leases), and of API keys and tokens."""

from __future__ import annotations

import sqlalchemy as sa

from eventd.store.schema.columns import Micros, by_bytes, index_of_some, metadata, serial

topic_losses = sa.Table(
    "topic_losses",
    metadata,
    sa.Column("topic_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("first_seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("last_seq", sa.BigInteger, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),  # cap | ttl | source_trim
)

write_keys = sa.Table(
    "write_keys",
    metadata,
    sa.Column("topic_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("first_seq", sa.BigInteger, nullable=False),
    sa.Column("last_seq", sa.BigInteger, nullable=False),
    sa.Column("keep_until", Micros, nullable=False),
    sa.Index("write_keys_keep_until", "keep_until"),
)

routers = sa.Table(
    "routers",
    metadata,
    sa.Column("id", serial, primary_key=True),
    sa.Column("name", by_bytes, nullable=False, unique=True),
    sa.Column("source_id", sa.BigInteger, nullable=False),
    sa.Column("dest_id", sa.BigInteger, nullable=False),
    sa.Column("options", sa.Text, nullable=False),  # JSON
    sa.Column("seq", sa.BigInteger, nullable=False),  # of the source: everything up to here is settled
    sa.Column("forwarded", sa.BigInteger, nullable=False),
    sa.Column("refused", sa.BigInteger, nullable=False),
    sa.Column("created_at", Micros, nullable=False),
    sa.Column("updated_at", Micros, nullable=False),
    sa.Index("routers_source", "source_id"),
    sa.Index("routers_dest", "dest_id"),
    sqlite_autoincrement=True,
)

queues = sa.Table(
    "queues",
    metadata,
    sa.Column("topic_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("claimed_seq", sa.BigInteger, nullable=False),  # every job up to here was handed out at least once
    sa.Column("held", sa.BigInteger, nullable=False),  # leases that had not ended at the last look
    sa.Column("delayed", sa.BigInteger, nullable=False),  # delayed jobs, likewise
    sa.Column("dead_lettered", sa.BigInteger, nullable=False),
)

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("topic_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("node", sa.Text, nullable=False),  # the client that holds it; empty: none
    sa.Column("lease_id", sa.Text, nullable=False),
    sa.Column("free_at", Micros),  # when it can be handed out again; 0: now; null: it is done, and still in its block
    sa.Column("deliveries", sa.BigInteger, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),  # bytes of its data and meta
    # Microseconds of the lease or delay that ends at free_at, from when it was asked for; 0: none, or not known.
    sa.Column("length", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    index_of_some("leases_free", "topic_id", "free_at", "seq", where="free_at IS NOT NULL"),
    sqlite_with_rowid=False,
)

api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("id", serial, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("digest", sa.Text, nullable=False, unique=True),  # SHA-256 of the key, hexadecimal
    sa.Column("scopes", sa.Text, nullable=False),  # JSON [scope, …]
    sa.Column("prefixes", sa.Text, nullable=False),  # JSON [prefix, …]; []: every name
    sa.Column("created_at", Micros, nullable=False),
    sa.Column("expires_at", Micros),
    sa.Column("revoked_at", Micros),
    # Keys of the API and tokens of the Routemaster surface are never taken for each other.
    sa.Column("surface", sa.Text, nullable=False, server_default=sa.text("'api'")),  # api | routemaster
    sa.Column("label", sa.Text, nullable=False, server_default=sa.text("''")),  # of a token: its name, not unique
    sa.Column("identity", sa.Text, nullable=False, server_default=sa.text("''")),  # of a token: the client's, see rows
    sqlite_autoincrement=True,
)
