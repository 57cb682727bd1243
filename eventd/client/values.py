"""What is sent to /v0 and what comes back, as values. Times named `…_ms` and `ts` are milliseconds."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct, field


class Config(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """How a topic keeps what is written to it. Each field has the node's default.

    An empty `durability` is for the node to choose; what it answers is never empty.
    """

    type: str = "log"
    ttl_ms: int = 0
    cap_records: int = 0
    cap_bytes: int = 0
    discard: str = "old"
    durable: bool = False
    durability: str = ""
    priority: int | None = None
    auto_priority: bool = True
    auto_create: bool = True
    idempotency_window_ms: int = 120_000
    dedupe_node: bool = True
    lease_ms: int = 30_000
    claim_jitter_ms: int = 0
    max_deliveries: int = 0
    dead_letter: str | None = None
    leases_durable: bool = False


class NewRecord(Struct, frozen=True, omit_defaults=True):
    """A record to be written. `data` is any JSON value, `node` is who it comes from."""

    data: Any
    tag: str | None = None
    node: str | None = None
    meta: Any = None


class NewEvent(Struct, omit_defaults=True, rename="camel", gc=False):
    """An event to be emitted into a group. What is missing the node fills in, and the publisher the id.

    Times are aware. `ttl`, such as `90s`, says in the place of `expires_at` how long it is of use.
    """

    type: str
    subject: str = ""
    payload: dict[str, str] = field(default_factory=dict)
    id: str = ""
    source_node: str = ""
    dedupe_key: str = ""
    observed_at: datetime | None = None
    expires_at: datetime | None = None
    ttl: str = ""


class Record(Struct, kw_only=True, frozen=True):
    """A record as it is read. Without tags or data asked for, these are None."""

    seq: int = field(name="$seq")
    ts: int = field(name="$ts")
    node: str | None = field(name="$node", default=None)
    tag: str | None = field(name="$tag", default=None)
    data: Any = None
    meta: Any = None


class Gap(Struct, kw_only=True, frozen=True):
    """Records that a reader can not have any more, `first` to `last`, and why.

    `recreated`: the topic is another one of the same name, and is read from its beginning.
    """

    reason: str
    first: int = field(name="gap_from")
    last: int = field(name="gap_to")
    earliest_seq: int
    head_seq: int
    topic: str = ""


class Page(Struct, kw_only=True, frozen=True):
    """What one look at a topic gave. Go on at `next_from_seq`, whatever it held.

    `epoch` says which topic of that name was read, where the node tells.
    """

    topic: str
    records: list[Record]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    lag: int
    gap: Gap | None = field(name="tombstone", default=None)
    epoch: str | None = None


class Written(Struct, kw_only=True, frozen=True):
    """What became of a batch. `deduped`: it was written before, by the same idempotency key."""

    topic: str
    first_seq: int
    last_seq: int
    head_seq: int
    count: int
    created: bool
    deduped: bool
    seqs: list[int] | None = None


class Purged(Struct, kw_only=True, frozen=True):
    """How many records were deleted, and what the topic is like now."""

    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int


class QueueCounts(Struct, kw_only=True, frozen=True):
    """Jobs of a queue: to be had, being worked on, given up."""

    ready: int
    in_flight: int
    dead_lettered: int


class TopicState(Struct, kw_only=True, frozen=True):
    """One topic."""

    topic: str
    type: str
    head_seq: int
    earliest_seq: int
    next_seq: int
    count: int
    bytes: int
    config: Config
    effective_priority: int
    last_write_ts: int | None = None
    last_read_ts: int | None = None
    queue: QueueCounts | None = None


class TopicRow(Struct, kw_only=True, frozen=True):
    """A topic in a list."""

    topic: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    durable: bool
    effective_priority: int


class TopicPut(Struct, kw_only=True, frozen=True):
    """A topic as it was put, with all of its configuration."""

    topic: str
    created: bool
    config: Config


class TopicDeletion(Struct, kw_only=True, frozen=True):
    """Whether there was such a topic, and which routers went with it."""

    topic: str
    deleted: bool
    routers_removed: list[str]


class RouterSpec(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What a router is to do. `filter` is a predicate, such as `["tag", "Glob", "public:*"]` or a tag.

    `map` says how a record becomes an event where `dest` is that of a group.
    """

    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    filter: Any = None
    allow_cycle: bool = False
    guarantee: str = "at_least_once"
    fan_in: bool = False
    map: dict[str, Any] | None = None


class RouterState(Struct, kw_only=True, frozen=True):
    """One router. Making it tells whether it was `created`, asking for it how it does; a list tells less.

    `lag` counts seqs of its source that wait, `refused_total` records that were set aside. `state` is `running` or
    `backing-off`, for `reason`.
    """

    router: str
    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    filter: Any = None
    allow_cycle: bool = False
    guarantee: str = "at_least_once"
    fan_in: bool = False
    map: dict[str, Any] | None = None
    created: bool = False
    forwarded_total: int = 0
    refused_total: int = 0
    lag: int = 0
    state: str = ""
    reason: str = ""


class RouterDeletion(Struct, kw_only=True, frozen=True):
    """Whether there was such a router."""

    router: str
    deleted: bool


class Job(Struct, kw_only=True, frozen=True):
    """A record of a queue that is ours until `deadline`. `deliveries` counts how often it was handed out."""

    seq: int = field(name="$seq")
    ts: int = field(name="$ts")
    tag: str | None = field(name="$tag", default=None)
    lease_id: str
    deadline: int
    deliveries: int
    data: Any = None
    meta: Any = None


class Claimed(Struct, kw_only=True, frozen=True):
    """Jobs that are ours now, and how many more there are."""

    topic: str
    claimed: list[Job]
    ready: int


class Settled(Struct, kw_only=True, frozen=True):
    """How many jobs were acked or nacked. `skipped` were not ours, or not any more."""

    topic: str
    skipped: list[int]
    ready: int
    in_flight: int
    acked: int = 0
    nacked: int = 0


class Extended(Struct, kw_only=True, frozen=True):
    """How many jobs are ours for longer, and until when, by seq. `skipped` were not ours, or not any more."""

    topic: str
    extended: int
    skipped: list[int]
    deadlines: dict[int, int]


# --- what a watch sees ----------------------------------------------------------------------------------------------


class Batch(Struct, kw_only=True, frozen=True):
    """Records of one topic; everything up to `to_seq` has been looked at."""

    topic: str
    from_seq: int
    to_seq: int
    head_seq: int
    records: list[Record]


class CaughtUp(Struct, kw_only=True, frozen=True):
    """There is nothing more to read in the topic at the moment."""

    topic: str
    head_seq: int


class TopicDeleted(Struct, kw_only=True, frozen=True):
    """The topic is gone, and the watch goes on without it."""

    topic: str


Sight = Batch | Gap | CaughtUp | TopicDeleted
"""One thing that a watch sees."""
