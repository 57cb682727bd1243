"""Tables of the ids of events that arrive in no order: sorted runs, beside the table `event_ids`."""

from __future__ import annotations

import sqlalchemy as sa

from eventd.store.schema.columns import Micros, metadata, serial

id_runs = sa.Table(
    "id_runs",
    metadata,
    sa.Column("id", serial, primary_key=True),
    sa.Column("topic_id", sa.BigInteger, nullable=False),
    sa.Column("entries", sa.BigInteger, nullable=False),
    sa.Column("last", sa.BigInteger, nullable=False),  # the highest position of its entries
    sa.Column("into_run", sa.BigInteger),  # the run that its entries are moved to
    sa.Column("mark", sa.LargeBinary, nullable=False),  # random: processes keep its filter under this name
    sa.Column("has_filter", sa.SmallInteger, nullable=False, server_default=sa.text("0")),  # 1: all of it is stored
    sa.Index("id_runs_topic", "topic_id"),
    sqlite_autoincrement=True,
)

id_filters = sa.Table(
    "id_filters",
    metadata,
    sa.Column("run", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("part", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("data", sa.LargeBinary, nullable=False),  # some bytes of the filter of the run's ids
)

id_chunks = sa.Table(
    "id_chunks",
    metadata,
    sa.Column("run", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("low", sa.LargeBinary, primary_key=True),  # the first id
    sa.Column("lines", sa.Text, nullable=False),  # sorted lines, each an id and its position
)

id_ranges = sa.Table(
    "id_ranges",
    metadata,
    sa.Column("topic_id", sa.BigInteger, primary_key=True, autoincrement=False),
    # to `last`: positions of stored records whose id is in a run
    sa.Column("first", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("last", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

gone_ids = sa.Table(
    "gone_ids",
    metadata,
    sa.Column("topic_id", sa.BigInteger, primary_key=True, autoincrement=False),
    # to `last`: positions of records that retention evicted, whose id is in a run and is remembered for a while
    sa.Column("first", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("last", sa.BigInteger, nullable=False),
    sa.Column("gone_at", Micros, nullable=False),
    sa.Column("digests", sa.LargeBinary, nullable=False),  # of the contents, one after the other
    sa.Column("expiries", sa.LargeBinary),  # eight bytes for each; null: none expires
    sa.Index("gone_ids_gone", "gone_at"),
)
