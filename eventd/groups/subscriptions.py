"""The state of subscriptions: position in the log, waiting events, dead letters, and the last run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from eventd.egress.cursors import BACKFILL, SUBSCRIPTION, subscription_name, target_of
from eventd.egress.subscriptions.trigger import SubscriptionTrigger
from eventd.log.core.head import read_head
from eventd.log.core.matching_page import read_matching
from eventd.log.core.topic_row import TopicRow, read_group_topics
from eventd.log.core.values import Head
from eventd.log.cursors.cursors import Cursor, LinkState, read_cursors
from eventd.log.cursors.dead_letters import count_dead_letters
from eventd.log.delivery.backlog import Backlog
from eventd.resources.group_configuration import GroupConfig, effective, topic_of
from eventd.resources.plugin_configuration import PluginConfig, SubscriptionConfig, plugins
from eventd.store.engine.database import Connection
from eventd.store.rows.registry import StoredResource
from eventd.store.rows.runs import Run, RunStatus, read_newest

COUNTED = 1000
"""Maximum number of waiting events of a subscription that are counted."""
MOST_PAGES = 10
"""Maximum number of pages of the log that are read to count the events of a range."""


class Phase(StrEnum):
    """The state of a subscription in one word, by its cursor, plugin, backlog and last run."""

    PENDING = "Pending"
    DEGRADED = "Degraded"
    WAITING = "Waiting"
    APPLIED = "Applied"
    IDLE = "Idle"


@dataclass(frozen=True, slots=True)
class SubscriptionStatus:
    """A subscription: everything up to `position` of the log is settled, and `head` is the log's last position.

    `backlog` counts the waiting events, at most `COUNTED`; unless it is `exact`, more may wait. `cursor` is None until
    the node creates it; `last_run` is None without a run since then.
    """

    subscription: SubscriptionConfig
    cursor: Cursor | None
    position: int
    head: int
    backlog: Backlog
    phase: Phase
    last_run: Run | None
    dead_letters: int
    backfills: Sequence[Cursor]

    @property
    def state(self) -> LinkState:
        """Return the state that operators see; `running` if the subscription has no cursor yet."""
        return LinkState.RUNNING if self.cursor is None else self.cursor.shown_state


def read_subscription_statuses(
    conn: Connection, stored: Sequence[StoredResource], chosen: Sequence[SubscriptionConfig], now: int
) -> list[SubscriptionStatus]:
    """Return the states of the `chosen` subscriptions, in their order. `stored`: all declared resources."""
    rows = _Rows.read(conn, stored, chosen)
    return [_status(conn, rows, one, now) for one in chosen]


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows from which the states of many subscriptions are derived, read once for all."""

    groups: Mapping[str, GroupConfig]
    plugins: Mapping[str, PluginConfig]
    topics: Mapping[str, TopicRow]
    head: Head
    cursors: Mapping[str, Cursor]
    letters: Mapping[str, int]
    newest: Mapping[tuple[str, str], Run]

    @classmethod
    def read(cls, conn: Connection, stored: Sequence[StoredResource], chosen: Sequence[SubscriptionConfig]) -> Self:
        topics = {topic.name: topic for topic in read_group_topics(conn)}
        asked = {topic_of(one.group) for one in chosen}
        letters: dict[str, int] = {}
        for topic in (topics[name] for name in sorted(asked & topics.keys())):
            letters |= count_dead_letters(conn, topic.id)
        return cls(
            effective(stored),
            plugins(stored),
            topics,
            read_head(conn),
            {cursor.name: cursor for cursor in read_cursors(conn, SUBSCRIPTION, BACKFILL)},
            letters,
            read_newest(conn, [(one.group, one.name) for one in chosen]),
        )

    def backfills(self, one: SubscriptionConfig) -> list[Cursor]:
        mine = (one.group, one.name)
        return [
            cursor for cursor in self.cursors.values() if cursor.kind == BACKFILL and target_of(cursor.name) == mine
        ]

    def last_run(self, one: SubscriptionConfig, cursor: Cursor | None) -> Run | None:
        run = self.newest.get((one.group, one.name))
        if run is None or cursor is None or run.started_at < cursor.created_at:
            return None  # the row belongs to an earlier subscription of this name
        return run


def _status(conn: Connection, rows: _Rows, one: SubscriptionConfig, now: int) -> SubscriptionStatus:
    name = subscription_name(one.group, one.name)
    cursor, topic = rows.cursors.get(name), rows.topics.get(topic_of(one.group))
    after = (topic.evicted_position if topic else 0) if cursor is None else cursor.position
    backlog = _read_backlog(conn, rows, one, topic, after, now)
    run = rows.last_run(one, cursor)
    return SubscriptionStatus(
        subscription=one,
        cursor=cursor,
        position=after,
        head=rows.head.last,
        backlog=backlog,
        phase=_phase(cursor, one.plugin in rows.plugins, backlog.events > 0, run),
        last_run=run,
        dead_letters=rows.letters.get(name, 0),
        backfills=rows.backfills(one),
    )


def _read_backlog(
    conn: Connection, rows: _Rows, one: SubscriptionConfig, topic: TopicRow | None, after: int, now: int
) -> Backlog:
    """Return the events that wait for the subscription, at most `COUNTED`; unless `exact`, more may wait."""
    if topic is None or after >= rows.head.last:
        return Backlog(after)
    trigger = SubscriptionTrigger.of(one, rows.groups[one.group].node_name).at(now)
    page = read_matching(conn, topic.id, after, trigger, limit=COUNTED, max_bytes=16 << 20, until=None)
    times = [seen.record.recorded_at for seen in page.items]
    return Backlog(page.upto, len(times), oldest=min(times, default=None), exact=not page.full)


def count_between(
    conn: Connection, one: SubscriptionConfig, node: str, topic_id: int, after: int, upto: int, now: int
) -> tuple[int, bool]:
    """Return how many events at positions in `(after, upto]` trigger a subscription, and whether all of them were
    counted.

    At most `MOST_PAGES` pages are read.
    """
    trigger = SubscriptionTrigger.of(one, node).at(now)
    found = 0
    for _ in range(MOST_PAGES):
        if after >= upto:
            return found, True
        page = read_matching(conn, topic_id, after, trigger, limit=COUNTED, max_bytes=16 << 20, until=upto)
        found += sum(seen.runs for seen in page.items)
        if not page.full:
            return found, True
        after = page.upto
    return found, False


def _phase(cursor: Cursor | None, usable: bool, waits: bool, run: Run | None) -> Phase:
    if cursor is None or not usable:
        return Phase.PENDING
    if cursor.state is not LinkState.RUNNING:
        return Phase.DEGRADED
    if waits:
        return Phase.WAITING
    if run is None:
        return Phase.IDLE
    return Phase.DEGRADED if run.status in (RunStatus.PARKED, RunStatus.LOST) else Phase.APPLIED
