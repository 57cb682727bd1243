"""Every table, declared once. Migrations in `migrations/` must lead to exactly this schema; a test compares the two.

Times are microseconds since 1970, UTC. `position` is the node-wide number of an entry in the log, in commit order and
without holes; `seq` has no holes within a topic.
"""

from __future__ import annotations

import sqlalchemy as sa

from eventd.store.schema.callback_tables import callback_attempts
from eventd.store.schema.columns import Micros, by_bytes, index_of_some, metadata, serial
from eventd.store.schema.console_tables import action_answers, actions, bulk_jobs, console_sessions, verifications
from eventd.store.schema.history_tables import checkpoints, leaf_hints, refuted_events, tiles, trees
from eventd.store.schema.id_tables import gone_ids, id_chunks, id_filters, id_ranges, id_runs
from eventd.store.schema.ledger_tables import (
    forgotten,
    id_conflicts,
    inbound_batches,
    inbound_gaps,
    refusals,
    returned_events,
)
from eventd.store.schema.routemaster_tables import rm_intervals, rm_subscribers, rm_topics
from eventd.store.schema.topic_tables import api_keys, leases, queues, routers, topic_losses, write_keys
from eventd.store.schema.witness_tables import closed_trees, history_findings, history_keys, witnessed, witnesses

__all__ = [
    "action_answers",
    "actions",
    "api_keys",
    "batches",
    "blocks",
    "bulk_jobs",
    "callback_attempts",
    "checkpoints",
    "closed_trees",
    "console_sessions",
    "cursors",
    "dead_letter_counts",
    "dead_letters",
    "effective_config",
    "event_ids",
    "forgotten",
    "gone_ids",
    "history_findings",
    "history_keys",
    "id_chunks",
    "id_conflicts",
    "id_filters",
    "id_ranges",
    "id_runs",
    "inbound_batches",
    "inbound_gaps",
    "inbound_links",
    "leaf_hints",
    "leases",
    "log_heads",
    "metadata",
    "nonces",
    "part_claims",
    "part_subjects",
    "parts",
    "plugin_runs",
    "queues",
    "refusals",
    "refuted_events",
    "resources",
    "returned_events",
    "rm_intervals",
    "rm_subscribers",
    "rm_topics",
    "routers",
    "selectors",
    "tiles",
    "topic_losses",
    "topics",
    "trees",
    "verifications",
    "witnessed",
    "witnesses",
    "write_keys",
]


log_heads = sa.Table(
    "log_heads",
    metadata,
    sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("next_position", sa.BigInteger, nullable=False),
    sa.Column("epoch", sa.Text, nullable=False),
    sa.Column("incarnation", sa.BigInteger, nullable=False),
    sa.Column("registry_version", sa.BigInteger, nullable=False),  # rises with every change of the declared resources
    # rises with every change of a part
    sa.Column("parts_version", sa.BigInteger, nullable=False, server_default=sa.text("1")),
    # Rises with every change of a router, an API key or a topic, but not with a topic's records.
    sa.Column("topics_version", sa.BigInteger, nullable=False, server_default=sa.text("1")),
    sa.Column("topics", sa.BigInteger, nullable=False, server_default=sa.text("0")),  # topics that hold records
    sa.Column("record_bytes", sa.BigInteger, nullable=False, server_default=sa.text("0")),  # bytes of all their records
    # While commits are not flushed: the boot of the system, or the run of Postgres, that must not crash until they are.
    # Empty: all are flushed.
    sa.Column("unsynced", sa.Text, nullable=False, server_default=sa.text("''")),
    # Rises when a transaction has nothing else to write and must flush the commits before it.
    sa.Column("flushes", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    # Identifies this database: random, and kept by every copy of it, whatever its history.
    sa.Column("instance", sa.Text, nullable=False, server_default=sa.text("''")),
    sa.CheckConstraint("id = 1", name="one_head"),
)

topics = sa.Table(
    "topics",
    metadata,
    sa.Column("id", serial, primary_key=True),
    sa.Column("name", by_bytes, nullable=False, unique=True),
    sa.Column("form", sa.Text, nullable=False, server_default=sa.text("'event'")),  # of its records: event | record
    sa.Column("next_seq", sa.BigInteger, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),  # of the stored bodies; of records: data and meta
    sa.Column("ids", sa.BigInteger, nullable=False),  # distinct ids whose record is stored
    sa.Column("evicted_seq", sa.BigInteger, nullable=False),  # the floor: everything up to here is removed
    sa.Column("evicted_position", sa.BigInteger, nullable=False),
    # up to here, some record that entered the log at this node was evicted before all peers had it
    sa.Column("lost_position", sa.BigInteger, nullable=False),
    sa.Column("created_at", Micros, nullable=False),
    # The following columns are for topics that hold records.
    # identifies this topic among earlier ones of its name
    sa.Column("instance", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("config", sa.Text, nullable=False, server_default=sa.text("''")),  # JSON
    sa.Column("durability", sa.Text, nullable=False, server_default=sa.text("'fsync'")),
    # seqs after `evicted_seq` that have no record: deleted, a finished job, or never copied by a router
    sa.Column("deleted", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("written_at", Micros),  # time of the newest record: the next one is no earlier
    sa.Column("due_at", Micros),  # limits need not be applied before; null: no limit is due
    # The tree in which records that enter the log at this node get leaves, and the index of the next leaf; null: none.
    sa.Column("tree", sa.BigInteger),
    sa.Column("next_leaf", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    index_of_some("topics_due", "due_at", where="due_at IS NOT NULL"),
    sqlite_autoincrement=True,  # an id is never used twice
)

blocks = sa.Table(
    "blocks",
    metadata,
    sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),  # of its first record
    sa.Column("topic_id", sa.BigInteger, nullable=False),
    sa.Column("seq", sa.BigInteger, nullable=False),  # of its first record
    sa.Column("records", sa.BigInteger, nullable=False),  # number of records, whose positions and seqs are consecutive
    sa.Column("bytes", sa.BigInteger, nullable=False),  # bytes of the bodies
    sa.Column("recorded_at", Micros, nullable=False),
    sa.Column("own", sa.SmallInteger, nullable=False),  # 1: entered the log here; 0: received from other nodes
    sa.Column("expires_first", Micros),  # earliest expiry; null: no record expires
    sa.Column("types", sa.Text, nullable=False),  # distinct values as a JSON list; empty: too many
    sa.Column("sources", sa.Text, nullable=False),  # the same for sources
    sa.Column("paths", sa.Text, nullable=False),  # the same for encoded paths
    sa.Column("text", sa.Text, nullable=False),  # one event or record per line, after its path if `paths` has several
    sa.Column("tree", sa.BigInteger),  # in which its records have leaves; null: in none
    sa.Column("leaf", sa.BigInteger),  # index of the leaf of its first record; those of the others follow
    sa.UniqueConstraint("topic_id", "seq", name="blocks_topic_seq"),
    sa.Index("blocks_topic_position", "topic_id", "position"),
    # A peer that gets only records that entered here must not pay for the others.
    index_of_some("blocks_own", "topic_id", "position", where="own = 1"),
)

_REFRESHED = ("topic_id", "position", "first_position")  # the columns that its readers need

event_ids = sa.Table(
    "event_ids",
    metadata,
    sa.Column("topic_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("event_id", sa.Text, primary_key=True),
    sa.Column("position", sa.BigInteger, nullable=False),  # of the latest record with this id
    sa.Column("first_position", sa.BigInteger),  # of the first record, if a refresh followed it
    sa.Column("gone_at", Micros),  # when retention evicted the record; the id is remembered for a while
    sa.Column("expires_at", Micros),  # expiry of the evicted record
    sa.Column("digest", sa.LargeBinary),  # hash of the evicted event, without its two times
    index_of_some("event_ids_gone", "gone_at", where="gone_at IS NOT NULL"),
    index_of_some("event_ids_refreshed", *_REFRESHED, where="first_position IS NOT NULL"),
    sqlite_with_rowid=False,
)

cursors = sa.Table(
    "cursors",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    # peer | repair | subscription | backfill | callback | resend | router
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("topic_id", sa.BigInteger, nullable=False),
    sa.Column("position", sa.BigInteger, nullable=False),  # everything up to here is settled
    sa.Column("until", sa.BigInteger),  # a repair, a backfill or a resend ends here
    sa.Column("sent_upto", sa.BigInteger, nullable=False),  # end of the last range that the other side acknowledged
    sa.Column("sent_epoch", sa.Text, nullable=False),  # epoch of that acknowledgement; empty before the first
    sa.Column("rewound_from", sa.BigInteger),  # its position before the other side turned out to have less
    sa.Column("selector_version", sa.BigInteger, nullable=False),
    # JSON: what a repair, a backfill or a resend selects; {} otherwise
    sa.Column("selection", sa.Text, nullable=False),
    sa.Column("protocol", sa.Text, nullable=False),  # the protocol that worked; empty before one did
    sa.Column("state", sa.Text, nullable=False),  # running | backing-off | blocked | failed
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("since", Micros, nullable=False),
    sa.Column("paused_at", Micros),
    sa.Column("paused_by", sa.Text, nullable=False),
    sa.Column("attempts", sa.BigInteger, nullable=False),  # failures in a row
    sa.Column("attempted_upto", sa.BigInteger, nullable=False),  # end of what the failed attempts carried
    sa.Column("attempted_at", Micros),
    sa.Column("retry_at", Micros),
    sa.Column("last_error", sa.Text, nullable=False),
    sa.Column("succeeded_at", Micros),
    sa.Column("failing_since", Micros),  # of the first failure in a row; null after a success
    # of a callback: retention keeps records for it until it has failed for so many microseconds; null: not
    sa.Column("hold", sa.BigInteger),
    sa.Column("started_after", sa.BigInteger),  # its position when it was created; null: created by an earlier release
    sa.Column("created_at", Micros, nullable=False),
    sa.Index("cursors_kind", "kind", "name"),  # there may be very many of routers
)

# The selections of the cursors: one row for each version.
selectors = sa.Table(
    "selectors",
    metadata,
    sa.Column("cursor", sa.Text, primary_key=True),
    sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("selection", sa.Text, nullable=False),
    sa.Column("declared_at", Micros, nullable=False),
)

batches = sa.Table(
    "batches",
    metadata,
    sa.Column("id", serial, primary_key=True),
    sa.Column("cursor", sa.Text, nullable=False),  # the peer's cursor, for a repair too
    sa.Column("batch_id", sa.Text, nullable=False),
    sa.Column("epoch", sa.Text, nullable=False),
    sa.Column("incarnation", sa.BigInteger, nullable=False),
    sa.Column("after", sa.BigInteger, nullable=False),
    sa.Column("upto", sa.BigInteger, nullable=False),
    sa.Column("events", sa.BigInteger, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("selector_version", sa.BigInteger, nullable=False),
    sa.Column("exceptions", sa.Text, nullable=False),  # JSON [[position, reason], …]
    sa.Column("picked", sa.Text, nullable=False),  # JSON [position, …] of a repair; empty: the whole range
    sa.Column("attempts", sa.BigInteger, nullable=False),
    sa.Column("sent_at", Micros, nullable=False),
    sa.Column("acked_at", Micros, nullable=False),
    sa.Column("status", sa.Integer, nullable=False),  # HTTP status; 0: nothing had to be sent
    sa.Column("protocol", sa.Text, nullable=False),
    sa.Column("key_id", sa.Text, nullable=False),
    sa.Column("receipt", sa.Text, nullable=False),  # the signed answer of the peer, with its signature
    sa.Index("batches_cursor_upto", "cursor", "upto"),
    sa.Index("batches_acked", "acked_at"),
    index_of_some("batches_picked", "cursor", where="picked <> ''"),
    index_of_some("batches_gaps", "cursor", where="protocol = 'gap'"),
    index_of_some("batches_callbacks", "cursor", "id", where="protocol = 'callback'"),
    sqlite_autoincrement=True,
)

dead_letters = sa.Table(
    "dead_letters",
    metadata,
    sa.Column("id", serial, primary_key=True),
    sa.Column("cursor", sa.Text, nullable=False),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("topic_id", sa.BigInteger, nullable=False),
    sa.Column("event_id", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    sa.Column("attempts", sa.BigInteger, nullable=False),
    sa.Column("parked_at", Micros, nullable=False),
    sa.UniqueConstraint("cursor", "position", name="dead_letters_cursor_position"),
    sa.Index("dead_letters_parked", "parked_at"),
    sa.Index("dead_letters_topic", "topic_id", "id"),
    sa.Index("dead_letters_cursor", "topic_id", "cursor", "id"),
    sa.Index("dead_letters_event", "topic_id", "event_id"),
    sa.Index("dead_letters_reason", "cursor", "reason", "id"),
    sqlite_autoincrement=True,
)

# The numbers of rows in `dead_letters`, without those that are 0.
dead_letter_counts = sa.Table(
    "dead_letter_counts",
    metadata,
    sa.Column("topic_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("cursor", sa.Text, primary_key=True),
    sa.Column("letters", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

inbound_links = sa.Table(
    "inbound_links",
    metadata,
    sa.Column("topic_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("epoch", sa.Text, nullable=False),
    sa.Column("incarnation", sa.BigInteger, nullable=False),
    sa.Column("base", sa.BigInteger, nullable=False),  # start of the first batch: earlier records did not arrive
    sa.Column("upto", sa.BigInteger, nullable=False),
    sa.Column("updated_at", Micros, nullable=False),
)

nonces = sa.Table(
    "nonces",
    metadata,
    sa.Column("group_name", sa.Text, primary_key=True),
    sa.Column("key_id", sa.Text, primary_key=True),
    sa.Column("nonce", sa.Text, primary_key=True),
    sa.Column("keep_until", Micros, nullable=False),
    sa.Index("nonces_keep_until", "keep_until"),
)

resources = sa.Table(
    "resources",
    metadata,
    sa.Column("api_version", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("annotations", sa.Text, nullable=False),
    sa.Column("spec", sa.Text, nullable=False),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("created_at", Micros, nullable=False),
    sa.Column("updated_at", Micros, nullable=False),
    sa.Column("labels", sa.Text, nullable=False, server_default="{}"),
)

plugin_runs = sa.Table(
    "plugin_runs",
    metadata,
    sa.Column("id", serial, primary_key=True),
    sa.Column("plugin", sa.Text, nullable=False),
    sa.Column("trigger", sa.Text, nullable=False),  # federation-subscription | manual | interval
    sa.Column("subscription", sa.Text, nullable=False),  # its name; empty for a run without events
    sa.Column("cursor", sa.Text, nullable=False),  # that collected the events; of an interval: the owner; else empty
    sa.Column("after", sa.BigInteger, nullable=False),  # the cursor's position before
    sa.Column("upto", sa.BigInteger, nullable=False),  # the cursor's position afterwards
    sa.Column("group_name", sa.Text, nullable=False),
    sa.Column("event_ids", sa.Text, nullable=False),  # JSON [id, …] of the events
    sa.Column("coalesced", sa.Text, nullable=False),  # JSON [id, …] of events that later ones replaced
    sa.Column("events", sa.BigInteger, nullable=False),
    sa.Column("attempt", sa.BigInteger, nullable=False),
    # one of `eventd.store.rows.runs.RunStatus`
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("started_at", Micros, nullable=False),
    sa.Column("completed_at", Micros),
    sa.Column("exit_code", sa.Integer),
    sa.Column("stdout_digest", sa.Text, nullable=False),
    sa.Column("stderr", sa.Text, nullable=False),
    sa.Column("error", sa.Text, nullable=False),
    sa.Column("source", sa.Text, nullable=False),  # of the part it produced; empty without one
    sa.Column("generation", sa.BigInteger),
    sa.Index("plugin_runs_subscription", "subscription", "id"),
    sa.Index("plugin_runs_cursor", "cursor", "id"),
    sa.Index("plugin_runs_plugin", "plugin", "id"),
    sa.Index("plugin_runs_completed", "completed_at"),
    sqlite_autoincrement=True,
)

parts = sa.Table(
    "parts",
    metadata,
    sa.Column("id", serial, primary_key=True),
    sa.Column("source", sa.Text, nullable=False, unique=True),
    sa.Column("owner", sa.Text, nullable=False),  # EventSubscription/<name> | Plugin/<name>
    sa.Column("group_name", sa.Text, nullable=False),
    sa.Column("plugin", sa.Text, nullable=False),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("observed_at", Micros, nullable=False),
    sa.Column("expires_at", Micros, nullable=False),
    sa.Column("ends_at", Micros, nullable=False),  # when its last resource ends; never later than its expiry
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("resources", sa.Text, nullable=False),  # JSON, annotated
    sa.Column("directives", sa.Text, nullable=False),
    sa.Column("action_plans", sa.Text, nullable=False),
    sa.Column("event_ids", sa.Text, nullable=False),  # JSON [id, …]
    sa.Column("subjects", sa.Text, nullable=False),  # JSON [subject, …] of its events
    sa.Column("ends", sa.Text, nullable=False),  # JSON {subject: micros}: subjects that end before the part
    sa.Column("grace", sa.BigInteger, nullable=False),  # microseconds
    sa.Column("revision", sa.BigInteger, nullable=False),  # the parts_version of its last change
    sa.Column("created_at", Micros, nullable=False),
    sa.Column("updated_at", Micros, nullable=False),
    sa.Index("parts_owner", "owner"),
    sa.Index("parts_ends", "ends_at"),
    sa.Index("parts_revision", "revision"),
    sqlite_autoincrement=True,
)

part_claims = sa.Table(
    "part_claims",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("api_version", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("part_id", sa.BigInteger, nullable=False),  # the one part that defines this resource
    sa.Column("since", Micros, nullable=False),  # the owner has held the claim without interruption
    sa.Column("ends_at", Micros, nullable=False),  # of this resource; never later than the part's expiry
    sa.Column("captures", sa.Text, nullable=False),  # the captured address; empty: none; ?: cannot be read
    sa.Index("part_claims_part", "part_id"),
    index_of_some("part_claims_captures", "captures", where="captures <> ''"),
)

part_subjects = sa.Table(
    "part_subjects",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("subject", sa.Text, primary_key=True),
    sa.Column("part_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Index("part_subjects_part", "part_id"),
)

effective_config = sa.Table(
    "effective_config",
    metadata,
    sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("generation", sa.BigInteger, nullable=False),  # raised whenever the content changes
    sa.Column("etag", sa.Text, nullable=False),  # SHA-256 of the content
    sa.Column("registry_version", sa.BigInteger, nullable=False),  # version of the declared resources it was built from
    sa.Column("parts_version", sa.BigInteger, nullable=False),
    sa.Column("changed_at", Micros, nullable=False),
    sa.CheckConstraint("id = 1", name="one_effective_config"),
)
