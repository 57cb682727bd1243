"""Subscriptions: their states, their runs, and the operations on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from eventd.api.admin.subscriptions.subscription_states import ListSubscriptions, find_subscription, read_states
from eventd.api.framework.moments import read_moment, show_time
from eventd.api.framework.operations import Params, Services
from eventd.api.framework.reset_position import ResetPosition
from eventd.egress.cursors import BACKFILL, begin_backfill, pause_all, reconcile, subscription_name
from eventd.egress.subscriptions.trigger import SubscriptionTrigger
from eventd.errors import Conflict, Invalid, NotFound
from eventd.groups.lookup import find_group, read_group_topic
from eventd.groups.subscriptions import count_between
from eventd.log.core.head import read_head
from eventd.log.core.scan import read_at
from eventd.log.cursors.cursors import Cursor, clear_failures, delete_cursors, move_cursor, read_cursors
from eventd.log.cursors.dead_letters import delete_dead_letters, delete_dead_letters_after
from eventd.log.cursors.selections import declare_selection, read_selection
from eventd.log.delivery.repairs import (
    MOST_POSITIONS,
    StoredDeadLetter,
    count_dead_letters_after,
    read_all_dead_letters,
    recorded_between,
    start_repair,
)
from eventd.resources.plugin_configuration import SubscriptionConfig
from eventd.store.engine.database import Connection
from eventd.store.rows.registry import announce, read_resources
from eventd.store.rows.runs import detach_runs
from federation.event import is_alive


async def list_subscriptions(services: Services, params: ListSubscriptions) -> dict[str, Any]:
    return {"subscriptions": await services.database.read(read_states, params, services.clock.now())}


def backfills_of(conn: Connection, one: SubscriptionConfig) -> list[Cursor]:
    """Return the cursors of a subscription's unfinished backfills."""
    prefix = f"{BACKFILL}:{one.group}/{one.name}/"
    return [cursor for cursor in read_cursors(conn, BACKFILL) if cursor.name.startswith(prefix)]


# --- what an operator may do ----------------------------------------------------------------------------------------


class OneSubscription(Params):
    """One subscription."""

    subscription: str = Field(description="The subscription, as `EventSubscription/NAME` or NAME.")
    group: str = Field(
        default="", description="The EventGroup of the subscription; required for a key that is limited to some groups."
    )


class RetryParams(OneSubscription):
    """Let a subscription that is backing off or blocked run at once, and retry dead letters: all, or those of `ids`."""

    ids: list[str] = Field(default=[], max_length=MOST_POSITIONS, description="Only dead letters of these event ids.")


async def retry(services: Services, params: RetryParams) -> dict[str, Any]:
    return await services.database.write(_retry_now, params, services.clock.now())


def _retry_now(conn: Connection, params: RetryParams, now: int) -> dict[str, Any]:
    announce(conn)  # locks the head, which is always locked before cursors, and wakes the node
    one = find_subscription(conn, params.subscription, params.group)
    cursor = read_registered(conn, one, now)
    letters = read_all_dead_letters(conn, cursor.topic_id, cursor=cursor.name)
    if wanted := set(params.ids):
        missing = sorted(wanted - {letter.event_id for letter in letters})
        if missing:
            raise NotFound(f"{one.name} has no dead letter of event {', '.join(missing[:20])}")
        letters = [letter for letter in letters if letter.event_id in wanted]
    again, kept = judge_letters(conn, one, letters, now)
    for first in range(0, len(again), MOST_POSITIONS):
        start_backfill(conn, one, cursor, [letter.position for letter in again[first : first + MOST_POSITIONS]], now)
    delete_dead_letters(conn, [letter.id for letter in again])
    clear_failures(conn, [cursor.name, *(backfill.name for backfill in backfills_of(conn, one))], now)
    return {"subscription": one.name, "group": one.group, "retried": len(again), "kept": kept}


def judge_letters(
    conn: Connection, one: SubscriptionConfig, letters: Sequence[StoredDeadLetter], now: int
) -> tuple[list[StoredDeadLetter], list[dict[str, Any]]]:
    """Return the dead letters that can be retried, and, as JSON, the other dead letters, each with the reason."""
    trigger = SubscriptionTrigger.of(one, find_group(conn, one.group).node_name)
    stored = {record.position: record for record in read_at(conn, [letter.position for letter in letters])}
    again: list[StoredDeadLetter] = []
    kept: list[dict[str, Any]] = []
    for letter in letters:
        if letter.position not in stored:
            kept.append({"eventId": letter.event_id, "reason": "retention has removed it"})
        elif not is_alive(letter.expires_at, now):
            kept.append({"eventId": letter.event_id, "reason": f"it expired at {show_time(letter.expires_at)}"})
        elif trigger.take(stored[letter.position]) is None:
            kept.append({"eventId": letter.event_id, "reason": "the subscription no longer selects it"})
        else:
            again.append(letter)
    return again, kept


def start_backfill(
    conn: Connection, one: SubscriptionConfig, cursor: Cursor, positions: Sequence[int], now: int
) -> None:
    """Start a backfill: a cursor beside the subscription's own, which runs the plugin for these positions and ends."""
    node = find_group(conn, one.group).node_name
    name = start_repair(
        conn,
        kind=BACKFILL,
        group=one.group,
        node=one.name,
        topic_id=cursor.topic_id,
        after=min(positions) - 1,
        upto=max(positions),
        selection=SubscriptionTrigger.of(one, node).only(positions).to_json(),
        now=now,
    )
    begin_backfill(conn, name, cursor, now)


class Reset(ResetPosition, OneSubscription):
    """The subscription to move, and where to."""


async def reset(services: Services, params: Reset) -> dict[str, Any]:
    now = services.clock.now()
    if params.dry_run:
        return await services.database.read(_plan_reset, params, now)
    return await services.database.write(_reset_now, params, now)


def _plan_reset(conn: Connection, params: Reset, now: int) -> dict[str, Any]:
    """Return what a reset would do: how many events run again or are skipped, and what is deleted."""
    one = find_subscription(conn, params.subscription, params.group)
    topic = read_group_topic(conn, one.group)
    found = read_cursors(conn, name=subscription_name(one.group, one.name))
    at = found[0].position if found else topic.evicted_position
    to = _position_of(conn, params, one, topic.id, now)
    node = find_group(conn, one.group).node_name
    count, exact = count_between(conn, one, node, topic.id, min(at, to), max(at, to), now)
    letters = count_dead_letters_after(conn, topic.id, found[0].name, to) if found else 0
    return {
        "subscription": one.name,
        "group": one.group,
        "from": at,
        "to": to,
        "dryRun": True,
        "again": count if to < at else 0,
        "skipped": count if to > at else 0,
        "countIsExact": exact,
        "deadLetters": letters,
        "backfills": len(backfills_of(conn, one)),
    }


def _reset_now(conn: Connection, params: Reset, now: int) -> dict[str, Any]:
    announce(conn)
    one = find_subscription(conn, params.subscription, params.group)
    cursor = read_registered(conn, one, now)
    to = _position_of(conn, params, one, cursor.topic_id, now)
    _go_to(conn, one, cursor, to, now)
    return {"subscription": one.name, "group": one.group, "from": cursor.position, "to": to}


def _position_of(conn: Connection, params: Reset, one: SubscriptionConfig, topic_id: int, now: int) -> int:
    """Return the position after which the subscription would continue."""
    if params.latest:
        return read_head(conn).last
    if not params.since:
        return read_group_topic(conn, one.group).evicted_position
    to, last = recorded_between(conn, topic_id, read_moment("since", params.since, now), None)
    if last == 0:
        raise Invalid(
            f"no event of group {one.group} was stored since {params.since}",
            hint="name an earlier time, or latest",
        )
    return to


def _go_to(conn: Connection, one: SubscriptionConfig, cursor: Cursor, to: int, now: int) -> None:
    """Move the subscription's cursor to the position `to`; runs from its old position are interrupted.

    Earlier runs no longer count as attempts. Its backfills are deleted, and its dead letters after `to`.
    """
    backfills = [backfill.name for backfill in backfills_of(conn, one)]
    for name in (cursor.name, *backfills):
        detach_runs(conn, name, now)
    delete_cursors(conn, backfills)
    delete_dead_letters_after(conn, cursor.topic_id, cursor.name, to)
    move_cursor(conn, cursor.name, to=to, now=now)
    version, selection = read_selection(conn, cursor.name)
    # The new version stops runs from the old position at once, also one whose window stays open for a minute.
    declare_selection(conn, cursor.name, max(version + 1, read_head(conn).registry_version), selection, now)


class Pause(OneSubscription):
    """Stop running the plugin of a subscription; its events wait."""

    by: str = Field(
        default="", max_length=200, description="Shown with the subscription: the operator's name, or the reason."
    )


async def pause(services: Services, params: Pause) -> dict[str, Any]:
    now = services.clock.now()
    await services.database.write(_set_paused, params, now, at=now, by=params.by)
    await services.take_over()
    return await list_subscriptions(services, ListSubscriptions(group=params.group, subscription=params.subscription))


async def resume(services: Services, params: OneSubscription) -> dict[str, Any]:
    await services.database.write(_set_paused, params, services.clock.now(), at=None, by="")
    await services.take_over()
    return await list_subscriptions(services, ListSubscriptions(group=params.group, subscription=params.subscription))


def _set_paused(conn: Connection, params: OneSubscription, now: int, *, at: int | None, by: str) -> None:
    """Pause the subscription and its backfills at the time `at`, or resume them if it is None.

    A second pause keeps the operator and time of the first. Resuming also clears failures.
    """
    announce(conn)
    one = find_subscription(conn, params.subscription, params.group)
    pause_all(conn, [read_registered(conn, one, now), *backfills_of(conn, one)], now, at=at, by=by)


def read_registered(conn: Connection, one: SubscriptionConfig, now: int) -> Cursor:
    """Return the subscription's cursor, which is created if no node has registered the subscription.

    Raises Conflict if its group is not declared.
    """
    name = subscription_name(one.group, one.name)
    if not read_cursors(conn, name=name):
        reconcile(conn, read_resources(conn), now)
    found = read_cursors(conn, name=name)
    if not found:
        raise Conflict(f"EventGroup {one.group} of EventSubscription {one.name} is not declared", hint="apply it")
    return found[0]
