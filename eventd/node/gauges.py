"""Measures the gauges of a node: its log, stored events, id conflicts, and the state of links and subscriptions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from eventd.groups.callbacks import CallbackStatus, read_callback_statuses, read_callbacks
from eventd.groups.links import LinkStatus, read_link_statuses
from eventd.groups.lookup import peers_of
from eventd.groups.retention import limits_of
from eventd.groups.subscriptions import SubscriptionStatus, read_subscription_statuses
from eventd.log.core.eventlog import EventLog
from eventd.log.core.id_conflicts import UNKNOWN, read_conflicts
from eventd.log.core.topic_row import TopicRow, read_topic
from eventd.log.cursors.holding import DISABLED_BY
from eventd.log.history.trees import all_tile_bytes
from eventd.log.retention.waiting import RetentionWaits
from eventd.log.witnesses.cosignatures import read_witness_ages
from eventd.log.witnesses.waiting import count_waiting
from eventd.node.attempts import Attempts
from eventd.node.surface_gauges import read_surface
from eventd.observe.callback_figures import CallbackFigure
from eventd.observe.metrics import Metrics
from eventd.resources.group_configuration import GroupConfig, topic_of
from eventd.resources.plugin_configuration import subscriptions
from eventd.resources.slo_configuration import lag_limits
from eventd.runtime.clock import SECOND
from eventd.settings.model import Settings
from eventd.store.engine.database import Connection
from eventd.store.rows.registry import read_resources

MEASURE_SECONDS = 10.0
MEASURE_REST = 20
"""The pause after a measurement as a multiple of its duration: peers that are far behind must not keep a node busy."""


@dataclass(slots=True)
class _MeasuredGroups:
    """The groups, links (group, peer) and subscriptions (group, name) that have gauges now."""

    topics: set[str] = field(default_factory=set)
    links: set[tuple[str, str]] = field(default_factory=set)
    subscriptions: set[tuple[str, str]] = field(default_factory=set)


class Gauges:
    """Measures values that also change by themselves or by other processes, and sets their gauges."""

    def __init__(self, log: EventLog, metrics: Metrics, settings: Settings, waits: RetentionWaits) -> None:
        self._log = log
        self._attempts = Attempts(log.clock.monotonic)
        self._metrics = metrics
        self._surface = settings if settings.routemaster_listen is not None else None
        self._waits = waits
        self._measured = _MeasuredGroups()

    async def run_for_ever(self, groups: Callable[[], Iterable[GroupConfig]]) -> None:
        """Measure and set the gauges every `MEASURE_SECONDS` or less often, until cancelled. A failure is logged."""
        while True:
            begun = self._log.clock.monotonic()
            await self._attempts.make("metrics", self._measure(groups()))
            spent = self._log.clock.monotonic() - begun
            await self._log.clock.sleep(max(MEASURE_SECONDS, MEASURE_REST * spent))

    async def _measure(self, groups: Iterable[GroupConfig]) -> None:
        self._metrics.head(self._log.wakeups.head)
        self._metrics.wal(self._log.database.wal_bytes())
        seen = _MeasuredGroups()
        groups = [*groups]
        allowed = await self._log.database.read(_read_lag_limits, [group.name for group in groups])
        for group in groups:
            warn, fail = allowed[group.name]
            self._metrics.objectives(group.name, warn=warn, fail=fail)
            now = self._log.clock.now()
            topic, links = await self._log.database.read(_read_links, group, now)
            self._metrics.topic(group.name, records=topic.next_seq - 1 - topic.evicted_seq, size=topic.bytes)
            wait = await self._log.database.read(self._waits.read, topic, limits_of(group.retention), now)
            self._metrics.retention_waiting(group.name, wait.by_reason())
            self._metrics.id_conflicts(group.name, await self._count_conflicts(group, topic.id))
            seen.topics.add(group.name)
            for link in links:
                peer = link.peer.node_name
                seen.links.add((group.name, peer))
                lag = _seconds(link.backlog.lag(now))
                self._metrics.link(
                    group.name, peer, state=str(link.state), lag_events=link.backlog.events, lag_seconds=lag
                )
            self._metrics.history_tiles(group.name, await self._log.database.read(all_tile_bytes, topic.id))
            ages = await self._log.database.read(read_witness_ages, topic.id, now)
            self._metrics.history_witnessed(group.name, {peer: _seconds(age) for peer, age in ages.items()})
            waiting = await self._log.database.read(count_waiting, topic.id) if group.verifies_history else None
            self._metrics.history_waiting(group.name, None if waiting is None else waiting.events)
            for one in await self._log.database.read(_read_subscriptions, group.name, now):
                name = one.subscription.name
                seen.subscriptions.add((group.name, name))
                lag = _seconds(one.backlog.lag(now))
                self._metrics.subscriptions.show(
                    group.name, name, state=str(one.state), events=one.backlog.events, seconds=lag
                )
        self._forget(self._measured, seen)
        self._measured = seen
        await self._measure_callbacks()
        if self._surface is not None:
            limits = self._surface.routemaster_max_bytes, self._surface.routemaster_mark
            figures = await self._log.database.read(read_surface, self._log.clock.now(), *limits)
            self._metrics.routemaster.show(figures)

    async def _measure_callbacks(self) -> None:
        now = self._log.clock.now()
        found = await self._log.database.read(_read_callbacks, now)
        self._metrics.callbacks.show(
            CallbackFigure(
                one.callback.config.name,
                str(one.state),
                one.backlog.events,
                _seconds(one.backlog.lag(now)),
                one.dead_letters,
                one.cursor is not None and one.cursor.paused_at is not None and one.cursor.paused_by == DISABLED_BY,
            )
            for one in found
        )

    async def _count_conflicts(self, group: GroupConfig, topic_id: int) -> Counter[tuple[str, str, str, str]]:
        """Return the numbers of id conflicts, by owner, owner's key, source and key.

        Names may be invented: an owner or source that is not a declared node counts as `UNKNOWN`.
        """
        nodes = {group.node_name, *group.peer_nodes()}
        counts: Counter[tuple[str, str, str, str]] = Counter()
        for each in await self._log.database.read(read_conflicts, topic_id):
            owner, source = (name if name in nodes else UNKNOWN for name in (each.owner, each.source))
            counts[owner, each.owner_key, source, each.key_id] += each.times
        return counts

    def _forget(self, before: _MeasuredGroups, seen: _MeasuredGroups) -> None:
        """Remove the gauges of the topics, links and subscriptions in `before` that are not in `seen`."""
        for link in before.links - seen.links:
            self._metrics.forget_link(*link)
        for subscription in before.subscriptions - seen.subscriptions:
            self._metrics.subscriptions.forget(*subscription)
        for topic in before.topics - seen.topics:
            self._metrics.forget_topic(topic)


def _read_links(conn: Connection, group: GroupConfig, now: int) -> tuple[TopicRow, list[LinkStatus]]:
    topic = read_topic(conn, topic_of(group.name))
    return topic, read_link_statuses(conn, topic, peers_of(group), now)


def _read_lag_limits(conn: Connection, groups: Iterable[str]) -> dict[str, tuple[int, int]]:
    return lag_limits(read_resources(conn), groups)


def _read_subscriptions(conn: Connection, group: str, now: int) -> list[SubscriptionStatus]:
    stored = read_resources(conn)
    chosen = [one for one in subscriptions(stored).values() if one.group == group]
    return read_subscription_statuses(conn, stored, chosen, now)


def _read_callbacks(conn: Connection, now: int) -> list[CallbackStatus]:
    return read_callback_statuses(conn, [*read_callbacks(conn).values()], now)


def _seconds(duration: int) -> float:
    return duration / SECOND
