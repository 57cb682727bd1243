"""Keeping the cursors in step with what is declared: one per peer and subscription, one more for each repair.

A repair is under way where a wider selector, or an operator, asks for records that the cursor has passed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eventd.dynamic.part import subscription_owner
from eventd.egress.trigger import Trigger
from eventd.log.cursors import (
    Cursor,
    clear_failures,
    create_cursor,
    declare_selection,
    delete_cursors,
    next_repair_name,
    read_cursors,
    read_selection,
    set_paused,
)
from eventd.log.head import ensure_topic, lock_head, read_head, read_topic, read_topics
from eventd.log.selection import Selection
from eventd.log.values import Topic
from eventd.resources.effective import (
    GroupConfig,
    PeerConfig,
    SubscriptionConfig,
    effective,
    subscriptions,
    topic_of,
)
from eventd.store.database import Connection
from eventd.store.parts import orphan
from eventd.store.registry import StoredResource, read_resources
from eventd.store.runs import detach_runs

PEER, REPAIR = "peer", "repair"
SUBSCRIPTION, BACKFILL = "subscription", "backfill"


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
    """Make, adjust and remove cursors so that they fit what is declared; all that exist afterwards.

    A new one begins at the oldest record there is. A wider selector gets a repair for what the old one left out. What
    was derived for a subscription that is gone ends after its grace.
    """
    groups = effective(stored)
    _reconcile_peers(conn, groups, now)
    ended = _reconcile_subscriptions(conn, groups, subscriptions(stored).values(), now)
    orphan(conn, {f"{row.kind}/{row.name}" for row in stored} - ended, now)
    return read_cursors(conn)


def _reconcile_peers(conn: Connection, groups: Mapping[str, GroupConfig], now: int) -> None:
    declared: set[tuple[str, str]] = set()
    for group in groups.values():
        ensure_topic(conn, topic_of(group.name), now)
        topic = read_topic(conn, topic_of(group.name))
        for peer in group.peers.values():
            declared.add((group.name, peer.node_name))
            _declare(conn, _link(peer), topic, now)
    _delete_others(conn, (PEER, REPAIR), declared)


def _reconcile_subscriptions(
    conn: Connection, groups: Mapping[str, GroupConfig], wanted: Iterable[SubscriptionConfig], now: int
) -> set[str]:
    """The owners of parts that ended: a subscription that turned to another group made its parts of the old one's."""
    declared: set[tuple[str, str]] = set()
    for subscription in wanted:
        group = groups.get(subscription.group)
        if group is not None:
            declared.add((group.name, subscription.name))
            topic = read_topic(conn, topic_of(group.name))
            _declare(conn, _subscription(subscription, group.node_name), topic, now)
    gone = _delete_others(conn, (SUBSCRIPTION, BACKFILL), declared)
    for name in gone:
        detach_runs(conn, name, now)
    return {subscription_owner(peer_of(name)[1]) for name in gone}


def _delete_others(conn: Connection, kinds: tuple[str, str], declared: Collection[tuple[str, str]]) -> list[str]:
    """Delete the cursors of these kinds that work for nobody who is declared; their names."""
    others = [c.name for c in read_cursors(conn) if c.kind in kinds and peer_of(c.name) not in declared]
    delete_cursors(conn, others)
    return others


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


def _declare(conn: Connection, wanted: _Wanted, topic: Topic, now: int) -> None:
    """The version of what is declared becomes that of the selection: it is never used again under this name.

    A consumer made for an earlier peer of the name, over another topic perhaps, must not pass for this one's.
    """
    declared = read_head(conn).registry_version
    name = f"{wanted.kind}:{wanted.group}/{wanted.name}"
    begin = topic.evicted_position
    if create_cursor(conn, name, kind=wanted.kind, topic_id=topic.id, position=begin, now=now):
        declare_selection(conn, name, declared, wanted.selection, now)
        return
    version, earlier = read_selection(conn, name)
    if wanted.selection == earlier:
        return
    declare_selection(conn, name, max(declared, version + 1), wanted.selection, now)
    cursor = read_cursors(conn, name=name)[0]
    missing = wanted.missing(earlier)
    if missing is not None and cursor.position > begin:
        repair = next_repair_name(conn, wanted.group, wanted.name, kind=wanted.repair)
        create_cursor(
            conn,
            repair,
            kind=wanted.repair,
            topic_id=topic.id,
            position=begin,
            until=cursor.position,
            selection=missing,
            now=now,
        )
        if wanted.repair == BACKFILL:
            begin_backfill(conn, repair, cursor, now)


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
    return {topic.name: topic.id for topic in read_topics(conn)}


def follow(
    conn: Connection, version: int, declared: Sequence[StoredResource], changed: list[str], now: int
) -> tuple[list[Cursor], dict[str, int]] | None:
    """The cursors and topics that fit what is declared; None when that is of another version by now."""
    if lock_head(conn).registry_version != version:
        return None
    cursors = reconcile(conn, declared, now)
    forgive(conn, changed, now)
    return cursors, _read_topics(conn)
