"""The values sent to a node and received from it.

Fields `…_ms` are durations in milliseconds; `ts`, `…_ts` and deadlines are milliseconds since 1970 UTC.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct, field


class Config(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """How a topic keeps its records, and a queue leases its jobs. The defaults here are those of the node.

    If `durability` is empty, the node chooses one, and answers with it.
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
    """A record to write. `data` is any JSON value, `node` the name of its writer."""

    data: Any
    tag: str | None = None
    node: str | None = None
    meta: Any = None


class NewEvent(Struct, omit_defaults=True, rename="camel", gc=False):
    """An event to emit into a group. The publisher generates a missing `id`; the node fills in other missing fields.

    Times must have a time zone. `ttl`, such as `90s`, gives the lifetime instead of `expires_at`.
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
    """A record that was read. `tag`, `data` and `meta` are None if it has none, or the reader excluded them."""

    seq: int = field(name="$seq")
    ts: int = field(name="$ts")
    node: str | None = field(name="$node", default=None)
    tag: str | None = field(name="$tag", default=None)
    data: Any = None
    meta: Any = None


class Gap(Struct, kw_only=True, frozen=True):
    """A range of seqs, `first` to `last` inclusive, of which records were lost before the reader got them.

    With the `reason` `recreated`, the range is the whole topic, which is now read from its beginning: it was created
    again, or the log began a new epoch. `epoch` is that of the seqs, if it is a watch that reports the gap.
    """

    reason: str
    first: int = field(name="gap_from")
    last: int = field(name="gap_to")
    earliest_seq: int
    head_seq: int
    topic: str = ""
    epoch: str | None = None


class Page(Struct, kw_only=True, frozen=True):
    """The result of one `diff` of a topic. `lag` counts the seqs after this page.

    Pass `next_from_seq` and `epoch` to the next `diff`. Seqs of another `epoch` mean other records.
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
    """The result of writing a batch.

    `deduped`: the batch had been written before under the same key; the seqs are those of that first batch.
    """

    topic: str
    first_seq: int
    last_seq: int
    head_seq: int
    count: int
    created: bool
    deduped: bool
    seqs: list[int] | None = None


class Purged(Struct, kw_only=True, frozen=True):
    """How many records were deleted, and the state of the topic afterwards."""

    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int


class QueueCounts(Struct, kw_only=True, frozen=True):
    """The numbers of jobs of a queue that can be claimed, that are claimed, and that ever became dead letters."""

    ready: int
    in_flight: int
    dead_lettered: int


class TopicState(Struct, kw_only=True, frozen=True):
    """The state of a topic. `bytes`: of data and meta of its records. `queue` is None unless the topic is a queue.

    `managed` is `declared` if a resource declares the topic, otherwise `api`.
    """

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
    managed: str = "api"
    queue: QueueCounts | None = None


class TopicRow(Struct, kw_only=True, frozen=True):
    """The state of a topic in short, as `Topics.list` yields it. `managed` as in `TopicState`."""

    topic: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    durable: bool
    effective_priority: int
    managed: str = "api"


class TopicPut(Struct, kw_only=True, frozen=True):
    """The full configuration of a topic after a change. `created`: the topic did not exist before."""

    topic: str
    created: bool
    config: Config


class TopicDeletion(Struct, kw_only=True, frozen=True):
    """Whether the topic existed, and which routers were deleted with it."""

    topic: str
    deleted: bool
    routers_removed: list[str]


class RouterSpec(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The options of a router.

    `filter` is a predicate, such as `["tag", "Glob", "public:*"]`, or a tag or pattern. `map` says how a record becomes
    an event if `dest` belongs to a group.
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
    """A router. Fields that a call does not return have their defaults.

    `put` returns the options and `created`, `get` the options and state, `list` some options, `forwarded_total` and
    `managed`.
    `lag`: how many seqs of the source the router has not read yet. `forwarded_total` includes records that the source
    lost, `refused_total` counts dead letters. `state` is `running`, or `backing-off` for `reason`.
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
    managed: str = "api"


class RouterDeletion(Struct, kw_only=True, frozen=True):
    """Whether the router existed."""

    router: str
    deleted: bool


class Job(Struct, kw_only=True, frozen=True):
    """A record of a queue, claimed until `deadline`. `deliveries` counts its claims, this one included."""

    seq: int = field(name="$seq")
    ts: int = field(name="$ts")
    tag: str | None = field(name="$tag", default=None)
    lease_id: str
    deadline: int
    deliveries: int
    data: Any = None
    meta: Any = None


class Claimed(Struct, kw_only=True, frozen=True):
    """The claimed jobs; `ready` counts the other jobs of the queue that can be claimed."""

    topic: str
    claimed: list[Job]
    ready: int


class Settled(Struct, kw_only=True, frozen=True):
    """How many jobs were acked or nacked. `skipped`: the seqs that were repeated, or that `node` did not hold.

    `ready` and `in_flight` count the jobs of the queue afterwards that can be claimed, and that are claimed.
    """

    topic: str
    skipped: list[int]
    ready: int
    in_flight: int
    acked: int = 0
    nacked: int = 0


class Extended(Struct, kw_only=True, frozen=True):
    """How many leases have a new end, and the ends by seq. `skipped`: seqs repeated, or not held by `node`."""

    topic: str
    extended: int
    skipped: list[int]
    deadlines: dict[int, int]


# --- what a watch sees ----------------------------------------------------------------------------------------------


class Batch(Struct, kw_only=True, frozen=True):
    """Records of one topic; a watch has now seen everything up to `to_seq`."""

    topic: str
    from_seq: int
    to_seq: int
    head_seq: int
    records: list[Record]


class CaughtUp(Struct, kw_only=True, frozen=True):
    """The watch has seen the topic up to `head_seq`, the last seq assigned in it."""

    topic: str
    head_seq: int


class TopicDeleted(Struct, kw_only=True, frozen=True):
    """The topic was deleted; the watch continues without it."""

    topic: str


Sight = Batch | Gap | CaughtUp | TopicDeleted
"""One item of a watch."""
