"""How each subscription stands: where it is in the log, what waits, what was parked, and how its last run ended."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from pydantic import Field

from eventd.api.admin.groups import find_group
from eventd.api.admin.subscription_runs import QUALIFIED, show_run
from eventd.api.framework.moments import show_seconds, show_time
from eventd.api.framework.operations import Params
from eventd.egress.cursors import BACKFILL, SUBSCRIPTION, peer_of, subscription_name
from eventd.egress.subscriptions.trigger import Trigger
from eventd.errors import NotFound
from eventd.log.core.head import read_head
from eventd.log.core.matching_page import read_matching
from eventd.log.core.topic_row import TopicRow, read_group_topics
from eventd.log.core.values import Head
from eventd.log.cursors.cursors import Cursor, LinkState, read_cursors
from eventd.log.delivery.repairs import count_letters
from eventd.resources.effective import (
    GroupConfig,
    PluginConfig,
    SubscriptionConfig,
    effective,
    plugins,
    subscriptions,
    topic_of,
)
from eventd.store.engine.database import Connection
from eventd.store.rows.registry import StoredResource, read_resources
from eventd.store.rows.runs import Run, RunStatus, read_newest

COUNTED = 1000
"""Waiting events that are counted; beyond, a subscription is just far behind."""


def find_subscription(conn: Connection, name: str, group: str = "") -> SubscriptionConfig:
    """The declared subscription, by its name or as `EventSubscription/NAME`. Raises NotFound."""
    known = subscriptions(read_resources(conn))
    found = known.get(name.removeprefix(QUALIFIED))
    if found is None or (group and found.group != group):
        where = f" in group {group}" if group else ""
        close = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {close[0]}?" if close else f"declared: {', '.join(sorted(known)) or 'none'}"
        raise NotFound(f"there is no EventSubscription {name.removeprefix(QUALIFIED)}{where}", hint=hint)
    return found


class ListSubscriptions(Params):
    """The subscriptions of one group, or of all."""

    group: str = Field(default="", description="Only of this EventGroup.")
    subscription: str = Field(default="", description="Only this one.")


@dataclass(frozen=True, slots=True)
class _Books:
    """What is asked of many subscriptions is read once."""

    groups: Mapping[str, GroupConfig]
    plugins: Mapping[str, PluginConfig]
    topics: Mapping[str, TopicRow]
    head: Head
    cursors: Mapping[str, Cursor]
    letters: Mapping[str, int]
    newest: Mapping[tuple[str, str], Run]

    @classmethod
    def open(cls, conn: Connection, stored: Sequence[StoredResource], chosen: Sequence[SubscriptionConfig]) -> Self:
        topics = {topic.name: topic for topic in read_group_topics(conn)}
        asked = {topic_of(one.group) for one in chosen}
        letters: dict[str, int] = {}
        for topic in (topics[name] for name in asked & topics.keys()):
            letters |= count_letters(conn, topic.id)
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
        return [cursor for cursor in self.cursors.values() if cursor.kind == BACKFILL and peer_of(cursor.name) == mine]

    def last_run(self, one: SubscriptionConfig, cursor: Cursor | None) -> Run | None:
        run = self.newest.get((one.group, one.name))
        if run is None or cursor is None or run.started_at < cursor.created_at:
            return None  # it is of an earlier subscription of this name
        return run


def read_states(conn: Connection, params: ListSubscriptions, now: int) -> list[dict[str, Any]]:
    """How each subscription stands, by group and name. Raises NotFound for a group or a name that is not declared."""
    if params.group:
        find_group(conn, params.group)
    stored = read_resources(conn)
    known = subscriptions(stored)
    if params.subscription:
        one = find_subscription(conn, params.subscription, params.group)
        known = {one.name: one}
    chosen = sorted(
        (one for one in known.values() if params.group in ("", one.group)), key=lambda one: (one.group, one.name)
    )
    books = _Books.open(conn, stored, chosen)
    return [_state(conn, books, one, now) for one in chosen]


def _state(conn: Connection, books: _Books, one: SubscriptionConfig, now: int) -> dict[str, Any]:
    name = subscription_name(one.group, one.name)
    cursor, topic = books.cursors.get(name), books.topics.get(topic_of(one.group))
    after = (topic.evicted_position if topic else 0) if cursor is None else cursor.position
    waits = _waiting(conn, books, one, topic, after, now)
    run = books.last_run(one, cursor)
    return {
        "group": one.group,
        "subscription": one.name,
        "plugin": one.plugin,
        "phase": _phase(cursor, one.plugin in books.plugins, bool(waits), run),
        **_link(cursor),
        "waitingEvents": len(waits),
        "waitingSeconds": max(0.0, show_seconds(now - min(waits))) if waits else 0.0,
        "deadLetters": books.letters.get(name, 0),
        "position": after,
        "head": books.head.last,
        "lastRun": show_run(run) if run else None,
        "backfills": [{"position": c.position, "until": c.until} for c in books.backfills(one)],
    }


def _waiting(
    conn: Connection, books: _Books, one: SubscriptionConfig, topic: TopicRow | None, after: int, now: int
) -> list[int]:
    """When the events were recorded that wait; the first ones, if they are many."""
    if topic is None or after >= books.head.last:
        return []
    trigger = Trigger.of(one, books.groups[one.group].node_name).at(now)
    found = read_matching(conn, topic.id, after, trigger, limit=COUNTED, max_bytes=16 << 20, until=None)
    return [seen.record.recorded_at for seen in found.items]


def _phase(cursor: Cursor | None, usable: bool, waits: bool, run: Run | None) -> str:
    """In one word: Pending, Degraded, Waiting, Applied or Idle."""
    if cursor is None or not usable:
        return "Pending"
    if cursor.state is not LinkState.RUNNING:
        return "Degraded"
    if waits:
        return "Waiting"
    if run is None:
        return "Idle"
    return "Degraded" if run.status in (RunStatus.PARKED, RunStatus.LOST) else "Applied"


def _link(cursor: Cursor | None) -> dict[str, Any]:
    if cursor is None:
        state, reason = str(LinkState.RUNNING), "new"
        return {"state": state, "reason": reason, "attempts": 0, "retryAt": None, "lastError": "", "pausedBy": ""}
    return {
        "state": str(cursor.shown_state),
        "reason": cursor.reason,
        "attempts": cursor.attempts,
        "retryAt": None if cursor.paused_at is not None else show_time(cursor.retry_at),
        "lastError": cursor.last_error,
        "pausedBy": cursor.paused_by,
    }
