"""Keeping the cursors in step with what is declared: one per peer and subscription, one more for each repair.

A repair is under way where a wider selector, or an operator, asks for records that the cursor has passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eventd.dynamic.part import subscription_owner
from eventd.egress.subscriptions.trigger import Trigger
from eventd.log.core.head import lock_head, read_head
from eventd.log.core.topic_row import TopicRow, ensure_topic, read_group_topics, read_topic
from eventd.log.cursors.cursors import (
    Cursor,
    clear_failures,
    create_cursor,
    declare_selection,
    delete_cursors,
    next_repair_name,
    read_cursors,
    read_selections,
    set_paused,
)
from eventd.log.delivery.selection import Selection
from eventd.resources.effective import (
    PeerConfig,
    SubscriptionConfig,
    effective,
    subscriptions,
    topic_of,
)
from eventd.store.engine.database import Connection
from eventd.store.parts.parts import orphan
from eventd.store.rows.registry import StoredResource, read_resources
from eventd.store.rows.runs import detach_runs

PEER, REPAIR = "peer", "repair"
SUBSCRIPTION, BACKFILL = "subscription", "backfill"
KINDS = (PEER, REPAIR, SUBSCRIPTION, BACKFILL)
"""The kinds of the cursors that follow what is declared."""


def link_name(group: str, node: str) -> str:
    """The name of a peer's cursor."""
    return f"{PEER}:{group}/{node}"


def subscription_name(group: str, name: str) -> str:
    """The name of a subscription's cursor."""
    return f"{SUBSCRIPTION}:{group}/{name}"


def peer_of(cursor: str) -> tuple[str, str]:
    """The group, and the peer's node or the subscription, that a cursor or its repair works for."""
    group, _, rest = cursor.partition(":")[2].partition("/")
    return group, rest.partition("/")[0]


def reconcile(conn: Connection, stored: Sequence[StoredResource], now: int) -> list[Cursor]:
    """Make, adjust and remove cursors so that they fit what is declared; those of links and subscriptions afterwards.

    A new one begins at the oldest record there is. A wider selector gets a repair for what the old one left out. What
    was derived for a subscription that is gone ends after its grace.
    """
    groups = effective(stored)
    declaring = _Declaring(conn, now)
    topics = {topic.name: topic for topic in read_group_topics(conn)}
    for group in groups.values():
        name = topic_of(group.name)
        if name not in topics:
            ensure_topic(conn, name, now)
            topics[name] = read_topic(conn, name)
        for peer in group.peers.values():
            declaring.declare(_link(peer), topics[name])
    for subscription in subscriptions(stored).values():
        if (of := groups.get(subscription.group)) is not None:
            declaring.declare(_subscription(subscription, of.node_name), topics[topic_of(of.name)])
    gone = declaring.delete_others()
    # A subscription that turned to another group made its parts of the old one's events.
    ended = {subscription_owner(peer_of(name)[1]) for name in gone}
    orphan(conn, {f"{row.kind}/{row.name}" for row in stored} - ended, now)
    return read_cursors(conn, *KINDS)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a cursor is to select. `missing` says what a repair has to bring that an earlier selection left out."""

    kind: str
    repair: str
    group: str
    name: str
    selection: Mapping[str, Any]
    missing: Callable[[Mapping[str, Any]], Mapping[str, Any] | None]


def _link(peer: PeerConfig) -> _Wanted:
    wanted = Selection.of(peer)

    def missing(stored: Mapping[str, Any]) -> Mapping[str, Any] | None:
        earlier = Selection.from_json(stored)
        if not wanted.widens(earlier):
            return None
        return Selection(wanted.selector, wanted.relay, without=earlier).to_json()

    return _Wanted(PEER, REPAIR, peer.group, peer.node_name, wanted.to_json(), missing)


def _subscription(subscription: SubscriptionConfig, node: str) -> _Wanted:
    wanted = Trigger.of(subscription, node)

    def missing(stored: Mapping[str, Any]) -> Mapping[str, Any] | None:
        earlier = Trigger.from_json(stored)
        return replace(wanted, without=earlier).to_json() if wanted.widens(earlier) else None

    return _Wanted(SUBSCRIPTION, BACKFILL, subscription.group, subscription.name, wanted.to_json(), missing)


class _Declaring:
    """The cursors of links and subscriptions while they follow what is declared. What is there already is read once:
    whoever writes waits for this, and a link that stays as it was must cost nothing."""

    def __init__(self, conn: Connection, now: int) -> None:
        self._conn = conn
        self._now = now
        self._declared = read_head(conn).registry_version
        self._cursors = {cursor.name: cursor for cursor in read_cursors(conn, *KINDS)}
        self._selections = read_selections(conn, PEER, SUBSCRIPTION)
        self._wanted: set[tuple[str, str, str]] = set()

    def declare(self, wanted: _Wanted, topic: TopicRow) -> None:
        """Have a cursor that selects what is wanted.

        The version of what is declared becomes that of the selection: it is never used again under this name. A
        consumer made for an earlier peer of the name, over another topic perhaps, must not pass for this one's.
        """
        conn, now = self._conn, self._now
        self._wanted |= {(wanted.kind, wanted.group, wanted.name), (wanted.repair, wanted.group, wanted.name)}
        name, begin = f"{wanted.kind}:{wanted.group}/{wanted.name}", topic.evicted_position
        cursor = self._cursors.get(name)
        if cursor is None:
            create_cursor(conn, name, kind=wanted.kind, topic_id=topic.id, position=begin, now=now)
            declare_selection(conn, name, self._declared, wanted.selection, now)
            return
        version, earlier = self._selections[name]
        if wanted.selection == earlier:
            return
        declare_selection(conn, name, max(self._declared, version + 1), wanted.selection, now)
        missing = wanted.missing(earlier)
        if missing is not None and cursor.position > begin:
            self._repair(wanted, cursor, topic, missing)

    def _repair(self, wanted: _Wanted, cursor: Cursor, topic: TopicRow, missing: Mapping[str, Any]) -> None:
        """Begin to bring what the earlier selection left out."""
        name = next_repair_name(self._conn, wanted.group, wanted.name, kind=wanted.repair)
        create_cursor(
            self._conn,
            name,
            kind=wanted.repair,
            topic_id=topic.id,
            position=topic.evicted_position,
            until=cursor.position,
            selection=missing,
            now=self._now,
        )
        if wanted.repair == BACKFILL:
            begin_backfill(self._conn, name, cursor, self._now)

    def delete_others(self) -> list[str]:
        """Delete the cursors of what is not declared any more; the names of those of subscriptions."""
        others = [c for c in self._cursors.values() if (c.kind, *peer_of(c.name)) not in self._wanted]
        delete_cursors(self._conn, [cursor.name for cursor in others])
        ended = [cursor.name for cursor in others if cursor.kind in (SUBSCRIPTION, BACKFILL)]
        for name in ended:
            detach_runs(self._conn, name, self._now)
        return ended


def begin_backfill(conn: Connection, name: str, cursor: Cursor, now: int) -> None:
    """Nothing is known of an earlier one of this name; it waits where its subscription, at `cursor`, is paused."""
    detach_runs(conn, name, now)
    if cursor.paused_at is not None:
        set_paused(conn, name, at=cursor.paused_at, by=cursor.paused_by)


def pause_all(conn: Connection, paused: Iterable[Cursor], now: int, *, at: int | None, by: str) -> None:
    """Pause these cursors, or resume them with `at` None, at once. Pausing twice keeps who was first."""
    for cursor in paused:
        if at is None or cursor.paused_at is None:
            set_paused(conn, cursor.name, at=at, by=by)
        if at is None:
            clear_failures(conn, [cursor.name], now)


def forgive(conn: Connection, names: list[str], now: int) -> None:
    """These links were changed, or this node was started anew: whatever held them up may be gone."""
    lock_head(conn)  # before any cursor, as everywhere
    clear_failures(conn, names, now)


Declared = tuple[int, list[StoredResource], dict[str, int]]
"""The version of what is declared, the resources, and the topics that exist by their name."""


def read_declared(conn: Connection) -> Declared:
    """What is declared, in one snapshot."""
    return read_head(conn).registry_version, read_resources(conn), _read_topics(conn)


def _read_topics(conn: Connection) -> dict[str, int]:
    return {topic.name: topic.id for topic in read_group_topics(conn)}


def follow(
    conn: Connection, version: int, declared: Sequence[StoredResource], changed: list[str], now: int
) -> tuple[list[Cursor], dict[str, int]] | None:
    """The cursors and topics that fit what is declared; None when that is of another version by now."""
    if lock_head(conn).registry_version != version:
        return None
    cursors = reconcile(conn, declared, now)
    forgive(conn, changed, now)
    return cursors, _read_topics(conn)
