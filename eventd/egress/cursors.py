"""Keeps the cursors in line with the declarations: one for each peer, subscription and callback, and one more for each
repair.

A repair (of a subscription: a backfill) runs when a wider selection, or an operator, requests records that the cursor
has passed. The repair of a callback, called a resend, runs only when an operator requests it: a callback gets the
records that are stored after its declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eventd.dynamic.part import subscription_owner
from eventd.egress.callbacks.selection import CallbackSelection
from eventd.egress.loop.sink import ADDRESS_FORBIDDEN
from eventd.egress.subscriptions.trigger import SubscriptionTrigger
from eventd.log.core.head import lock_head, read_head
from eventd.log.core.topic_row import TopicRow, ensure_topic, find_topic, read_group_topics, read_topic
from eventd.log.cursors.cursors import (
    Cursor,
    LinkState,
    clear_failures,
    create_cursor,
    delete_cursors,
    next_repair_name,
    read_cursors,
    set_hold,
    set_paused,
)
from eventd.log.cursors.selections import declare_selection, read_selections
from eventd.log.delivery.selection import Selection
from eventd.resources.callback_configuration import CallbackConfig, callbacks, declared_at
from eventd.resources.group_configuration import PeerConfig, effective, topic_of
from eventd.resources.plugin_configuration import SubscriptionConfig, subscriptions
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import update_rows
from eventd.store.parts.parts import orphan
from eventd.store.rows.callback_attempts import forget_attempts
from eventd.store.rows.callback_cursors import CALLBACK, CALLBACK_KINDS, callback_name, callback_of, is_subscriber
from eventd.store.rows.registry import StoredResource, read_resources
from eventd.store.rows.runs import detach_runs

PEER, REPAIR = "peer", "repair"
SUBSCRIPTION, BACKFILL = "subscription", "backfill"
KINDS = (PEER, REPAIR, SUBSCRIPTION, BACKFILL)
"""The kinds of cursors that follow the declarations of a group."""


def link_name(group: str, node: str) -> str:
    """Return the name of a peer's cursor: `peer:GROUP/NODE`."""
    return f"{PEER}:{group}/{node}"


def subscription_name(group: str, name: str) -> str:
    """Return the name of a subscription's cursor: `subscription:GROUP/NAME`."""
    return f"{SUBSCRIPTION}:{group}/{name}"


def target_of(cursor: str) -> tuple[str, str]:
    """Return the names of the group and of the peer or subscription that a cursor of this name serves."""
    group, _, rest = cursor.partition(":")[2].partition("/")
    return group, rest.partition("/")[0]


def reconcile(conn: Connection, stored: Sequence[StoredResource], now: int) -> list[Cursor]:
    """Create, adjust and delete cursors to match the declarations; return all cursors of links and subscriptions.

    Cursors of repairs and backfills are included. Missing topics of groups are created. A new cursor begins before the
    oldest stored record. A wider selection gets a repair for the passed records that the old one excluded. Parts of
    undeclared owners, and of subscriptions that have left their group, end after their grace.
    """
    groups = effective(stored)
    declaring = _CursorReconciler(conn, now)
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
    # A subscription moved to another group: its parts were made of the old group's events.
    ended = {subscription_owner(target_of(name)[1]) for name in gone}
    orphan(conn, {f"{row.kind}/{row.name}" for row in stored} - ended, now)
    fresh = {name for name, at in declared_at(stored).items() if at == now}
    _reconcile_callbacks(conn, callbacks(stored), fresh, now)
    return read_cursors(conn, *KINDS, *CALLBACK_KINDS)


def _reconcile_callbacks(
    conn: Connection, declared: Mapping[str, CallbackConfig], fresh: Collection[str], now: int
) -> None:
    """Create, adjust and delete the cursors of declared callbacks; one whose topic does not exist has none.

    A change of the selection concerns the records after the cursor. Cursors of subscribers of a Routemaster surface are
    left as they are. `fresh`: the names of callbacks that this transaction declares. Each of them gets its cursor at
    once, so the topic of another one without a cursor was created later than the callback, perhaps again: all of its
    records are new to the callback, which begins with the first.
    """
    head = read_head(conn)
    cursors = {cursor.name: cursor for cursor in read_cursors(conn, *CALLBACK_KINDS)}
    selections = read_selections(conn, CALLBACK)
    topics = {name: find_source(conn, name) for name in {callback.topic for callback in declared.values()}}
    ended = [name for name in cursors if not is_subscriber(name) and callback_of(name) not in declared]
    for callback in declared.values():
        name, topic = callback_name(callback.name), topics[callback.topic]
        cursor, selection = cursors.get(name), CallbackSelection(callback.selector).to_json()
        if cursor is not None and (topic is None or cursor.topic_id != topic.id):
            ended += [one for one in cursors if callback_of(one) == callback.name]
            _end_callbacks(conn, ended)
            cursor, ended = None, []
        if topic is None:
            continue
        if cursor is None:
            is_later = callback.name not in fresh
            position = topic.evicted_position if callback.from_earliest or is_later else head.last
            create_cursor(conn, name, kind=CALLBACK, topic_id=topic.id, position=position, now=now, hold=callback.hold)
            declare_selection(conn, name, head.registry_version, selection, now)
            continue
        if selections[name][1] != selection:
            declare_selection(conn, name, max(head.registry_version, selections[name][0] + 1), selection, now)
        if cursor.hold != callback.hold:
            set_hold(conn, name, callback.hold)
    _end_callbacks(conn, ended)


def find_source(conn: Connection, name: str) -> TopicRow | None:
    """Return the topic of this name if a callback can read it: jobs of a queue are not pushed. None otherwise."""
    topic = find_topic(conn, name)
    return None if topic is None or topic.is_queue else topic


def _end_callbacks(conn: Connection, names: Sequence[str]) -> None:
    """Delete cursors of callbacks, with their deliveries, dead letters and attempts."""
    delete_cursors(conn, names)
    for name in names:
        forget_attempts(conn, name)


@dataclass(frozen=True, slots=True)
class _CursorSelection:
    """The selection that the cursor of a peer or subscription (`name`) must have.

    `kind` is that of the cursor, `repair` that of its repairs. `missing` returns the selection of a repair, for records
    that the given earlier selection excluded; None if it excluded none of them.
    """

    kind: str
    repair: str
    group: str
    name: str
    selection: Mapping[str, Any]
    missing: Callable[[Mapping[str, Any]], Mapping[str, Any] | None]


def _link(peer: PeerConfig) -> _CursorSelection:
    wanted = Selection.of(peer)

    def missing(stored: Mapping[str, Any]) -> Mapping[str, Any] | None:
        earlier = Selection.from_json(stored)
        if not wanted.widens(earlier):
            return None
        return Selection(wanted.selector, wanted.relay, without=earlier).to_json()

    return _CursorSelection(PEER, REPAIR, peer.group, peer.node_name, wanted.to_json(), missing)


def _subscription(subscription: SubscriptionConfig, node: str) -> _CursorSelection:
    wanted = SubscriptionTrigger.of(subscription, node)

    def missing(stored: Mapping[str, Any]) -> Mapping[str, Any] | None:
        earlier = SubscriptionTrigger.from_json(stored)
        return replace(wanted, without=earlier).to_json() if wanted.widens(earlier) else None

    return _CursorSelection(SUBSCRIPTION, BACKFILL, subscription.group, subscription.name, wanted.to_json(), missing)


class _CursorReconciler:
    """Creates, adjusts and deletes the cursors of links and subscriptions in one transaction.

    Existing cursors are read once: every writer waits for this transaction, and an unchanged link must cost nothing.
    """

    def __init__(self, conn: Connection, now: int) -> None:
        self._conn = conn
        self._now = now
        self._declared_version = read_head(conn).registry_version
        self._cursors = {cursor.name: cursor for cursor in read_cursors(conn, *KINDS)}
        self._selections = read_selections(conn, PEER, SUBSCRIPTION)
        self._wanted: set[tuple[str, str, str]] = set()

    def declare(self, wanted: _CursorSelection, topic: TopicRow) -> None:
        """Create or update the cursor of a peer or subscription; a wider selection starts a repair of passed records.

        The selection's version is at least that of the declared resources, so no version is used twice under one name:
        a consumer of a deleted peer with this name must not be mistaken for one of the new peer.
        """
        conn, now = self._conn, self._now
        self._wanted |= {(wanted.kind, wanted.group, wanted.name), (wanted.repair, wanted.group, wanted.name)}
        name, begin = f"{wanted.kind}:{wanted.group}/{wanted.name}", topic.evicted_position
        cursor = self._cursors.get(name)
        if cursor is None:
            create_cursor(conn, name, kind=wanted.kind, topic_id=topic.id, position=begin, now=now)
            declare_selection(conn, name, self._declared_version, wanted.selection, now)
            return
        version, earlier = self._selections[name]
        if wanted.selection == earlier:
            return
        declare_selection(conn, name, max(self._declared_version, version + 1), wanted.selection, now)
        missing = wanted.missing(earlier)
        if missing is not None and cursor.position > begin:
            self._repair(wanted, cursor, topic, missing)

    def _repair(self, wanted: _CursorSelection, cursor: Cursor, topic: TopicRow, missing: Mapping[str, Any]) -> None:
        """Start a repair, or a backfill, for the records before the `cursor` that its earlier selection excluded."""
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
        """Delete the cursors of undeclared peers and subscriptions, and of their repairs and backfills.

        Runs of these subscriptions are detached, and running ones marked as interrupted. Returns the names of the
        deleted cursors of subscriptions and backfills only.
        """
        others = [c for c in self._cursors.values() if (c.kind, *target_of(c.name)) not in self._wanted]
        delete_cursors(self._conn, [cursor.name for cursor in others])
        ended = [cursor.name for cursor in others if cursor.kind in (SUBSCRIPTION, BACKFILL)]
        for name in ended:
            detach_runs(self._conn, name, self._now)
        return ended


def begin_backfill(conn: Connection, name: str, cursor: Cursor, now: int) -> None:
    """Detach runs of an earlier backfill of this name; pause the new one if its subscription's `cursor` is paused."""
    detach_runs(conn, name, now)
    if cursor.paused_at is not None:
        set_paused(conn, name, at=cursor.paused_at, by=cursor.paused_by)


def pause_all(conn: Connection, paused: Iterable[Cursor], now: int, *, at: int | None, by: str) -> None:
    """Pause these cursors as of `at`, by the operator `by`; `at` None: resume them, and clear their failures.

    A cursor that is paused already keeps its time and operator.
    """
    for cursor in paused:
        if at is None or cursor.paused_at is None:
            set_paused(conn, cursor.name, at=at, by=by)
        if at is None:
            clear_failures(conn, [cursor.name], now)


def forgive(conn: Connection, names: list[str], now: int) -> None:
    """Clear the failures of the cursors with these names, so that they are tried immediately: the cause may be
    gone."""
    lock_head(conn)  # locked before any cursor, as everywhere
    clear_failures(conn, names, now)


def forgive_failed(conn: Connection, names: list[str], now: int) -> None:
    """Clear the failures of those of these cursors that are `failed`: the cause was in this node, and may be gone."""
    lock_head(conn)  # locked before any cursor, as everywhere
    failed = {cursor.name for cursor in read_cursors(conn, *CALLBACK_KINDS) if cursor.state is LinkState.FAILED}
    clear_failures(conn, sorted(failed & set(names)), now)


def retry_own_causes(conn: Connection) -> None:
    """Let each callback be tried immediately that could not send because of this node itself, and keep its failures.

    With the restart, the file or the setting (`callback_allow`) that was missing may be there.
    """
    lock_head(conn)  # locked before any cursor, as everywhere
    for cursor in read_cursors(conn, *CALLBACK_KINDS):
        if cursor.state is LinkState.FAILED or cursor.reason == ADDRESS_FORBIDDEN:
            update_rows(conn, "cursors", {"retry_at": None}, {"name": cursor.name})


def read_topic_ids(conn: Connection, names: Sequence[str]) -> dict[str, int | None]:
    """Return the ids of topics by name; None for one that does not exist."""
    found = {name: find_source(conn, name) for name in names}
    return {name: None if topic is None else topic.id for name, topic in found.items()}


def topics_of_callbacks(declared: Sequence[StoredResource], cursors: Sequence[Cursor]) -> dict[str, int | None]:
    """Return, by the name of its topic, the id of the topic that each callback of a topic of records reads."""
    ids = {cursor.name: cursor.topic_id for cursor in cursors if cursor.kind == CALLBACK}
    return {one.topic: ids.get(callback_name(one.name)) for one in callbacks(declared).values() if not one.group}


Declared = tuple[int, list[StoredResource], dict[str, int]]
"""The version of the declared resources, these resources, and the ids of the groups' topics by name."""


def read_declared(conn: Connection) -> Declared:
    """Return the version of the declared resources, these resources, and the ids of the groups' topics by name."""
    return read_head(conn).registry_version, read_resources(conn), _read_topics(conn)


def _read_topics(conn: Connection) -> dict[str, int]:
    return {topic.name: topic.id for topic in read_group_topics(conn)}


def follow(
    conn: Connection, version: int, declared: Sequence[StoredResource], changed: list[str], now: int
) -> tuple[list[Cursor], dict[str, int]] | None:
    """Match the cursors to the `declared` resources, and clear the failures of the cursors named in `changed`.

    Return the cursors like `reconcile`, and the ids of the groups' topics by name. If other resources than those of
    this `version` are stored by now, change nothing and return None.
    """
    if lock_head(conn).registry_version != version:
        return None
    cursors = reconcile(conn, declared, now)
    forgive(conn, changed, now)
    return cursors, _read_topics(conn)
