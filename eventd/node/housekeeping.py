"""What a node does beside its work: retention, the write-ahead log, the figures of its metrics."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from eventd.api.admin.groups import evict_some
from eventd.api.admin.links import read_outbound
from eventd.api.admin.subscription_states import ListSubscriptions, read_states
from eventd.errors import EventdError, NotFound
from eventd.ingress.batch import STRANGERS
from eventd.ingress.refusal_counter import Tally
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import lock_head
from eventd.log.core.id_conflicts import UNKNOWN, read_conflicts
from eventd.log.core.losses import join_oldest, read_crowded
from eventd.log.core.topic_row import TopicRow, read_topic
from eventd.log.retention.evict import CHUNK, BookLimits, forget, forget_selections, read_unused_selections
from eventd.log.topics.deleted_topics import PAGE, clear, read_bare, remove_bare
from eventd.log.topics.limits import clear_ephemeral, is_due, sweep
from eventd.observe.metrics import Metrics
from eventd.resources.effective import GroupConfig, effective, topic_of
from eventd.runtime.clock import SECOND
from eventd.runtime.supervisor import Chore
from eventd.runtime.worker_share import ALL, Share
from eventd.settings.model import Settings
from eventd.store.engine.database import Connection
from eventd.store.parts.parts import forget_parts
from eventd.store.rows.leases import release_leases
from eventd.store.rows.links import forget_links, stale_links
from eventd.store.rows.registry import read_resources
from eventd.store.rows.runs import forget_runs

STRANGER_AGE = 30 * 24 * 3600 * SECOND
"""How long the mark of a sender that is no peer is kept after its last batch."""
PARTS = 500
"""Parts that are removed at a time."""
CHECKPOINT_SECONDS = 0.5
MEASURE_SECONDS = 10.0
MEASURE_REST = 20
"""How much longer than a measurement it rests at least: many peers that are far behind must not keep a node busy."""
STEP_REST = 2
"""How much longer than one step of removing deleted topics the rest after it is."""
MOST_REST = 1.0
"""Seconds that this rest lasts at most."""
SWEEP_SECONDS = 1.0
"""Readers are not shown what is too old in any case; so long it may still take up room."""

logger = logging.getLogger("eventd.housekeeping")


@dataclass(slots=True)
class _Measured:
    """What has figures: groups, and their peers and subscriptions."""

    topics: set[str] = field(default_factory=set)
    links: set[tuple[str, str]] = field(default_factory=set)
    subscriptions: set[tuple[str, str]] = field(default_factory=set)


class Housekeeping:
    """The chores of one node. None of them may fail the node: what goes wrong is logged and tried again."""

    def __init__(self, log: EventLog, settings: Settings, metrics: Metrics, share: Share = ALL) -> None:
        self._share = share
        self._log = log
        self._settings = settings
        self._metrics = metrics
        self._measured = _Measured()
        self.tally = Tally(log.clock)

    async def begin(self) -> None:
        """What has to be done before the node serves: with its last run ephemeral records ended, and leases of jobs.

        A node for one group leaves them alone: others may be at work in the same database. So does a process that goes
        on for one that ended.
        """
        await self._log.database.take_over_checkpoints()
        if self._settings.group is not None or self._share.resumed or not self._share.is_first:
            return
        await self._log.database.write(_release_leases, self._log.clock.steady())
        after: int | None = 0
        while after is not None:
            after = await self._log.database.write(clear_ephemeral, after, self._log.clock.now())

    async def end(self) -> None:
        """What is to be written when all else has ended."""
        await self.tally.write(self._log, ends=True)

    def chores(self, groups: Callable[[], Iterable[GroupConfig]]) -> dict[str, Chore]:
        """What runs as long as the node does, by its name; what is to be done once, in its first process."""
        refusals: dict[str, Chore] = {"refusals": partial(self.tally.write_for_ever, self._log)}
        if not self._share.is_first:
            return refusals
        return {
            **refusals,
            "retention": partial(self.prune_for_ever, groups),
            "deleted topics": self.remove_deleted_for_ever,
            "sweep": self.sweep_for_ever,
            "checkpoint": self.checkpoint_for_ever,
            "measure": partial(self.measure_for_ever, groups),
        }

    async def prune_for_ever(self, groups: Callable[[], Iterable[GroupConfig]]) -> None:
        """Apply every group's retention, at the start and then at its interval."""
        while True:
            await self._try("retention", self._prune(groups()))
            await self._log.clock.sleep(self._settings.prune_interval)

    async def _prune(self, groups: Iterable[GroupConfig]) -> None:
        for group in groups:
            self._metrics.pruned(group.name, await prune(self._log, group))
        # The books are of all groups, also of those that another process of this database works for.
        declared = await self._log.database.read(_read_declared)
        ids = max((group.retention.ids for group in declared), default=0)
        day = 24 * 3600 * SECOND
        limits = BookLimits(
            ids=ids or day,
            batches=self._settings.batch_retention,
            dead_letters=self._settings.dead_letter_retention,
            receipts=max(day, ids),
        )
        clock = self._log.clock
        while await self._log.database.write(forget, limits, now=clock.now(), steady=clock.steady()):
            pass  # a little at a time, so that appends come in between
        unused = await self._log.database.read(read_unused_selections, self._log.clock.now() - limits.batches)
        if unused:
            await self._log.database.write(forget_selections, unused)
        for topic_id in await self._log.database.read(read_crowded):
            await self._log.database.write(join_oldest, topic_id)
        await self._forget_older(forget_runs, self._settings.run_retention, CHUNK)
        await self._forget_older(forget_parts, self._settings.part_retention, PARTS)
        for group in declared:
            await self._forget_strangers(group)

    async def _forget_older(self, forget: Callable[..., int], age: int, portion: int) -> None:
        """Remove what ended longer ago than `age` (microseconds): runs, and parts, which take no part any more."""
        before = self._log.clock.now() - age
        while await self._log.database.write(forget, before, portion):
            pass  # a little at a time, so that appends come in between

    async def _forget_strangers(self, group: GroupConfig) -> None:
        """Whoever holds a key for any node can invent senders without end.

        A mark that is gone loses no fact: its sender goes back to the beginning, and ids tell what is here.
        """
        database, now = self._log.database, self._log.clock.now()
        peers = {peer.node_name for peer in group.peers.values()}
        topic_id, stale = await database.read(_read_stale, group.name, peers, now)
        for first in range(0, len(stale), CHUNK):
            await database.write(_forget_links, topic_id, stale[first : first + CHUNK])

    async def remove_deleted_for_ever(self) -> None:
        """Remove what deleted topics have left, at the start and then at the interval of retention.

        Apart from retention: that must not wait until much is removed.
        """
        while True:
            await self._try("removal of deleted topics", self._remove_deleted())
            await self._log.clock.sleep(self._settings.prune_interval)

    async def _remove_deleted(self) -> None:
        """One round. The row of a topic goes one round after all else."""
        database, clock, bare = self._log.database, self._log.clock, await self._read_bare()
        after: str | None = ""
        while after is not None:
            begun = clock.monotonic()
            cleared = await database.write(clear, after, now=clock.now())
            after = None if cleared is None else cleared.upto
            await self._rest_after(begun)
        for first in range(0, len(bare), PAGE):
            begun = clock.monotonic()
            await database.write(remove_bare, bare[first : first + PAGE])
            await self._rest_after(begun)

    async def _read_bare(self) -> list[str]:
        bare: list[str] = []
        while page := await self._log.database.read(read_bare, bare[-1] if bare else ""):
            bare += page
        return bare

    async def _rest_after(self, begun: float) -> None:
        """Rest for longer than a step took that began then: most who write meanwhile find the writer free."""
        spent = self._log.clock.monotonic() - begun
        await self._log.clock.sleep(min(MOST_REST, STEP_REST * spent))

    async def sweep_for_ever(self) -> None:
        """Remove from topics what has outlived its time to live, or is over a cap that was lowered."""
        while True:
            await self._try("sweep of topics", self._sweep())
            await self._log.clock.sleep(SWEEP_SECONDS)

    async def _sweep(self) -> None:
        database, clock = self._log.database, self._log.clock
        while await database.read(is_due, clock.now()):
            await database.write(sweep, clock.now())  # a little at a time, so that appends come in between

    async def checkpoint_for_ever(self) -> None:
        """Keep SQLite's write-ahead log short, beside the appends and not among them."""
        while True:
            await self._log.clock.sleep(CHECKPOINT_SECONDS)
            await self._try("checkpoint", self._log.database.checkpoint())

    async def measure_for_ever(self, groups: Callable[[], Iterable[GroupConfig]]) -> None:
        """Keep the gauges fresh."""
        while True:
            begun = self._log.clock.monotonic()
            await self._try("metrics", self._measure(groups()))
            spent = self._log.clock.monotonic() - begun
            await self._log.clock.sleep(max(MEASURE_SECONDS, MEASURE_REST * spent))

    async def _measure(self, groups: Iterable[GroupConfig]) -> None:
        self._metrics.head(self._log.wakeups.head)
        self._metrics.wal(self._log.database.wal_bytes())
        seen = _Measured()
        for group in groups:
            now = self._log.clock.now()
            topic, links = await self._log.database.read(_read_group, group.name, now)
            self._metrics.topic(group.name, records=topic.next_seq - 1 - topic.evicted_seq, size=topic.bytes)
            self._metrics.id_conflicts(group.name, await self._count_conflicts(group, topic.id))
            seen.topics.add(group.name)
            for link in links:
                seen.links.add((group.name, link["peer"]))
                lag = {"lag_events": link["lagEvents"], "lag_seconds": link["lagSeconds"]}
                self._metrics.link(group.name, link["peer"], state=link["state"], **lag)
            asked = ListSubscriptions(group=group.name)
            for one in await self._log.database.read(read_states, asked, now):
                seen.subscriptions.add((group.name, one["subscription"]))
                waiting = {"events": one["waitingEvents"], "seconds": one["waitingSeconds"]}
                self._metrics.subscription(group.name, one["subscription"], state=one["state"], **waiting)
        self._forget(self._measured, seen)
        self._measured = seen

    async def _count_conflicts(self, group: GroupConfig, topic_id: int) -> Counter[tuple[str, str, str, str]]:
        """Conflicts of ids by both sides. Sources may be invented: those that are no nodes of ours have one name."""
        nodes = {group.node_name, *(peer.node_name for peer in group.peers.values())}
        counts: Counter[tuple[str, str, str, str]] = Counter()
        for each in await self._log.database.read(read_conflicts, topic_id):
            owner, source = (name if name in nodes else UNKNOWN for name in (each.owner, each.source))
            counts[owner, each.owner_key, source, each.key_id] += each.times
        return counts

    def _forget(self, before: _Measured, seen: _Measured) -> None:
        """Whatever is no longer declared has no figures."""
        for link in before.links - seen.links:
            self._metrics.forget_link(*link)
        for subscription in before.subscriptions - seen.subscriptions:
            self._metrics.forget_subscription(*subscription)
        for topic in before.topics - seen.topics:
            self._metrics.forget_topic(topic)

    async def _try(self, job: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except EventdError as error:
            logger.warning("housekeeping failed", extra={"job": job, "error": str(error)})
        except Exception:  # a fault of ours in here must not end a node that works
            logger.exception("housekeeping failed", extra={"job": job})


async def prune(log: EventLog, group: GroupConfig) -> int:
    """Apply a group's retention now; how many records went."""
    if group.retention.max_events is None and group.retention.max_age is None:
        return 0
    total = 0
    while True:
        try:
            done = await log.database.write(evict_some, group.name, log.clock.now())
        except NotFound:  # deleted meanwhile
            return total
        total += done.records
        if not done.more:
            return total


def _release_leases(conn: Connection, steady: int) -> None:
    lock_head(conn)
    release_leases(conn, steady)


def _read_declared(conn: Connection) -> list[GroupConfig]:
    return list(effective(read_resources(conn)).values())


def _read_group(conn: Connection, group: str, now: int) -> tuple[TopicRow, list[dict[str, Any]]]:
    return read_topic(conn, topic_of(group)), read_outbound(conn, group, "", now)


def _read_stale(conn: Connection, group: str, peers: set[str], now: int) -> tuple[int, list[tuple[str, int]]]:
    try:
        topic_id = read_topic(conn, topic_of(group)).id
    except NotFound:  # deleted meanwhile, or nobody has looked at it yet
        return 0, []
    return topic_id, stale_links(conn, topic_id, peers, most=STRANGERS, before=now - STRANGER_AGE)


def _forget_links(conn: Connection, topic_id: int, stale: list[tuple[str, int]]) -> None:
    lock_head(conn)  # before the marks, as a batch does
    forget_links(conn, topic_id, stale)
