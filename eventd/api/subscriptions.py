"""Subscriptions: the state of each, its runs, and what an operator may do about it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, Self

from pydantic import Field, model_validator

from eventd.api.groups import find_group, find_topic
from eventd.api.moments import read_moment, show_seconds, show_time
from eventd.api.operations import Operation, Params, Services
from eventd.egress.links import BACKFILL, reconcile, subscription_name
from eventd.egress.trigger import Trigger
from eventd.errors import Conflict, Invalid, NotFound
from eventd.log.cursors import Cursor, LinkState, clear_failures, move_cursor, read_cursors, set_paused
from eventd.log.head import read_head
from eventd.log.matching import read_matching
from eventd.log.repairs import MOST_POSITIONS, Letter, read_letters, recorded_between, remove_letters, start_repair
from eventd.log.scan import read_at
from eventd.resources.effective import SubscriptionConfig, plugins, subscriptions
from eventd.store.database import Connection
from eventd.store.registry import announce, read_resources
from eventd.store.runs import Run, RunStatus, detach_runs, read_runs
from federation.event import is_alive

COUNTED = 1000
"""Waiting events that are counted; beyond, a subscription is just far behind."""
SHOWN = {
    RunStatus.RUNNING: "pending",
    RunStatus.INTERRUPTED: "pending",
    RunStatus.SUCCEEDED: "succeeded",
    RunStatus.FAILED: "failed",
    RunStatus.BLOCKED: "failed",
    RunStatus.PARKED: "failed",
    RunStatus.LOST: "failed",
}
"""What a run means for its events."""
QUALIFIED = "EventSubscription/"


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


async def _list(services: Services, params: ListSubscriptions) -> dict[str, Any]:
    return {"subscriptions": await services.database.read(read_states, params, services.clock.now())}


def read_states(conn: Connection, params: ListSubscriptions, now: int) -> list[dict[str, Any]]:
    """How each subscription stands, by group and name. Raises NotFound for a group or a name that is not declared."""
    if params.group:
        find_group(conn, params.group)
    stored = read_resources(conn)
    known = subscriptions(stored)
    if params.subscription:
        one = find_subscription(conn, params.subscription, params.group)
        known = {one.name: one}
    chosen = [one for one in known.values() if params.group in ("", one.group)]
    usable = plugins(stored)
    return [
        _state(conn, one, one.plugin in usable, now) for one in sorted(chosen, key=lambda one: (one.group, one.name))
    ]


def _state(conn: Connection, one: SubscriptionConfig, usable: bool, now: int) -> dict[str, Any]:
    found = read_cursors(conn, name=subscription_name(one.group, one.name))
    cursor = found[0] if found else None
    topic, head = find_topic(conn, one.group), read_head(conn)
    after = topic.evicted_position if cursor is None else cursor.position
    trigger = Trigger.of(one, find_group(conn, one.group).node_name).at(now)
    waiting = read_matching(conn, topic.id, after, trigger, limit=COUNTED, max_bytes=16 << 20, until=None).items
    letters = read_letters(conn, topic.id, cursor=subscription_name(one.group, one.name), limit=COUNTED)
    runs = read_runs(conn, subscription=one.name, limit=1)
    waits = [seen.record.recorded_at for seen in waiting]
    return {
        "group": one.group,
        "subscription": one.name,
        "plugin": one.plugin,
        "phase": _phase(cursor, usable, bool(waits), runs),
        **_link(cursor),
        "waitingEvents": len(waits),
        "waitingSeconds": max(0.0, show_seconds(now - min(waits))) if waits else 0.0,
        "deadLetters": len(letters),
        "position": after,
        "head": head.last,
        "lastRun": show_run(runs[0]) if runs else None,
        "backfills": [{"position": c.position, "until": c.until} for c in _backfills(conn, one)],
    }


def _phase(cursor: Cursor | None, usable: bool, waits: bool, runs: Sequence[Run]) -> str:
    """In one word: Pending, Degraded, Waiting, Applied or Idle."""
    if cursor is None or not usable:
        return "Pending"
    if cursor.state is not LinkState.RUNNING:
        return "Degraded"
    if waits:
        return "Waiting"
    return "Applied" if runs else "Idle"


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


def _backfills(conn: Connection, one: SubscriptionConfig) -> list[Cursor]:
    prefix = f"{BACKFILL}:{one.group}/{one.name}/"
    return [cursor for cursor in read_cursors(conn, kind=BACKFILL) if cursor.name.startswith(prefix)]


# --- runs -----------------------------------------------------------------------------------------------------------


class ListRuns(Params):
    """What became of a subscription's events, the newest run first; of a deleted subscription, too."""

    subscription: str = Field(description="`EventSubscription/NAME`, or NAME.")
    group: str = Field(default="", description="Only of this EventGroup.")
    event_id: str = Field(default="", description="Only this event.")
    status: str = Field(default="", description="Only `pending`, `succeeded` or `failed`.")
    before: int | None = Field(default=None, ge=1, description="Go on with runs before this one.")
    limit: int = Field(default=100, ge=1, le=1000, description="At most so many runs.")

    @model_validator(mode="after")
    def _known_status(self) -> Self:
        if self.status and self.status not in SHOWN.values():
            raise ValueError(f"status: {self.status!r} is none of pending, succeeded, failed")
        return self


async def _runs(services: Services, params: ListRuns) -> dict[str, Any]:
    return await services.database.read(_read_runs, params)


def _read_runs(conn: Connection, params: ListRuns) -> dict[str, Any]:
    name = params.subscription.removeprefix(QUALIFIED)
    statuses = [status for status, shown in SHOWN.items() if not params.status or shown == params.status]
    runs = read_runs(conn, subscription=name, statuses=statuses, before=params.before, limit=params.limit)
    rows: dict[str, dict[str, Any]] = {}
    for run in runs:
        if params.group in ("", run.group):
            for event_id in run.event_ids or [""]:
                if params.event_id in ("", event_id):
                    rows.setdefault(event_id or f"#{run.id}", show_event_run(run, event_id))
    more = runs[-1].id if len(runs) == params.limit else None
    return {"runs": [*rows.values()], "next": more}


def show_event_run(run: Run, event_id: str) -> dict[str, Any]:
    """One event's line of a run."""
    return {
        "id": run.id,
        "subscription": f"{QUALIFIED}{run.subscription}",
        "eventId": event_id,
        "group": run.group,
        "plugin": run.plugin,
        "status": SHOWN[run.status],
        "outcome": str(run.status),
        "attempts": run.attempt,
        "startedAt": show_time(run.started_at),
        "completedAt": show_time(run.completed_at),
        "dynamicSource": run.source,
        "dynamicGeneration": run.generation,
        "error": run.error,
    }


def show_run(run: Run) -> dict[str, Any]:
    """A run as a whole."""
    return {
        "id": run.id,
        "plugin": run.plugin,
        "trigger": run.trigger,
        "subscription": run.subscription,
        "group": run.group,
        "status": str(run.status),
        "attempt": run.attempt,
        "events": run.events,
        "eventIds": list(run.event_ids),
        "coalesced": list(run.coalesced),
        "startedAt": show_time(run.started_at),
        "completedAt": show_time(run.completed_at),
        "exitCode": run.exit_code,
        "stdoutDigest": run.stdout_digest,
        "stderr": run.stderr,
        "error": run.error,
        "dynamicSource": run.source,
        "dynamicGeneration": run.generation,
    }


# --- what an operator may do ----------------------------------------------------------------------------------------


class Choose(Params):
    """One subscription."""

    subscription: str = Field(description="`EventSubscription/NAME`, or NAME.")
    group: str = Field(default="", description="Its EventGroup; a key that is held to some groups has to name it.")


class Retry(Choose):
    """Try at once what is held up, and once more what was parked: all of it, or these events."""

    ids: list[str] = Field(default=[], max_length=MOST_POSITIONS, description="Only these parked events.")


async def _retry(services: Services, params: Retry) -> dict[str, Any]:
    return await services.database.write(_retry_now, params, services.clock.now())


def _retry_now(conn: Connection, params: Retry, now: int) -> dict[str, Any]:
    announce(conn)  # locks the head, which comes before any cursor, and has the node look
    one = find_subscription(conn, params.subscription, params.group)
    cursor = _cursor(conn, one, now)
    letters = _letters(conn, cursor)
    if params.ids:
        missing = sorted(set(params.ids) - {letter.event_id for letter in letters})
        if missing:
            raise NotFound(f"{one.name} has parked no event {', '.join(missing[:20])}")
        letters = [letter for letter in letters if letter.event_id in params.ids]
    again, kept = _judge(conn, letters, now)
    for first in range(0, len(again), MOST_POSITIONS):
        _backfill(conn, one, cursor, [letter.position for letter in again[first : first + MOST_POSITIONS]], now)
    remove_letters(conn, [letter.id for letter in again])
    clear_failures(conn, [cursor.name, *(backfill.name for backfill in _backfills(conn, one))], now)
    return {"subscription": one.name, "group": one.group, "retried": len(again), "kept": kept}


def _letters(conn: Connection, cursor: Cursor) -> list[Letter]:
    letters: list[Letter] = []
    while page := read_letters(
        conn, cursor.topic_id, cursor=cursor.name, after=letters[-1].id if letters else 0, limit=COUNTED
    ):
        letters += page
    return letters


def _judge(conn: Connection, letters: Sequence[Letter], now: int) -> tuple[list[Letter], list[dict[str, Any]]]:
    """Those that can be tried again, and the others with the reason."""
    stored = {record.position for record in read_at(conn, [letter.position for letter in letters])}
    again: list[Letter] = []
    kept: list[dict[str, Any]] = []
    for letter in letters:
        if letter.position not in stored:
            kept.append({"eventId": letter.event_id, "reason": "retention has removed it"})
        elif not is_alive(letter.expires_at, now):
            kept.append({"eventId": letter.event_id, "reason": f"it expired at {show_time(letter.expires_at)}"})
        else:
            again.append(letter)
    return again, kept


def _backfill(conn: Connection, one: SubscriptionConfig, cursor: Cursor, positions: Sequence[int], now: int) -> None:
    node = find_group(conn, one.group).node_name
    start_repair(
        conn,
        kind=BACKFILL,
        group=one.group,
        node=one.name,
        topic_id=cursor.topic_id,
        after=min(positions) - 1,
        upto=max(positions),
        selection=Trigger.of(one, node).only(positions).to_json(),
        now=now,
    )


class Reset(Choose):
    """Where to go on: at the oldest event there is, at a time, or behind all there is."""

    since: str = Field(default="", description="At what was recorded then: RFC 3339, or how long ago (`15m`).")
    latest: bool = Field(default=False, description="Behind everything: what waits is never run.")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.since and self.latest:
            raise ValueError("since and latest are two places: leave one out")
        return self


async def _reset(services: Services, params: Reset) -> dict[str, Any]:
    return await services.database.write(_reset_now, params, services.clock.now())


def _reset_now(conn: Connection, params: Reset, now: int) -> dict[str, Any]:
    announce(conn)
    one = find_subscription(conn, params.subscription, params.group)
    cursor = _cursor(conn, one, now)
    to = find_topic(conn, one.group).evicted_position
    if params.latest:
        to = read_head(conn).last
    elif params.since:
        since = read_moment("since", params.since, now)
        to = recorded_between(conn, cursor.topic_id, since, None)[0]
        if to == 0:
            raise Invalid(
                f"nothing of group {one.group} was recorded since {params.since}",
                hint="--latest passes over everything",
            )
    move_cursor(conn, cursor.name, to=to, now=now)
    detach_runs(conn, cursor.name)
    return {"subscription": one.name, "group": one.group, "from": cursor.position, "to": to}


class Pause(Choose):
    """Stop running the plugin; events wait."""

    by: str = Field(default="", max_length=200, description="Who, to be shown.")


async def _pause(services: Services, params: Pause) -> dict[str, Any]:
    now = services.clock.now()
    await services.database.write(_set_paused, params, now, at=now, by=params.by)
    return await _list(services, ListSubscriptions(group=params.group, subscription=params.subscription))


async def _resume(services: Services, params: Choose) -> dict[str, Any]:
    await services.database.write(_set_paused, params, services.clock.now(), at=None, by="")
    return await _list(services, ListSubscriptions(group=params.group, subscription=params.subscription))


def _set_paused(conn: Connection, params: Choose, now: int, *, at: int | None, by: str) -> None:
    """Pause the subscription and its backfills, or resume them. Pausing twice keeps who was first."""
    announce(conn)
    one = find_subscription(conn, params.subscription, params.group)
    for cursor in (_cursor(conn, one, now), *_backfills(conn, one)):
        if at is None or cursor.paused_at is None:
            set_paused(conn, cursor.name, at=at, by=by)
        if at is None:
            clear_failures(conn, [cursor.name], now)


def _cursor(conn: Connection, one: SubscriptionConfig, now: int) -> Cursor:
    """Its cursor, made where no node has taken notice of it so far."""
    name = subscription_name(one.group, one.name)
    if not read_cursors(conn, name=name):
        reconcile(conn, read_resources(conn), now)
    found = read_cursors(conn, name=name)
    if not found:
        raise Conflict(f"EventSubscription {one.name} has no group", hint="declare its EventGroup")
    return found[0]


def _operation(name: str, method: Any, path: str, params: Any, run: Any, scope: Any, summary: str) -> Operation[Any]:
    return Operation(f"subscriptions.{name}", method, f"/api/v1/subscriptions{path}", params, run, scope, summary)


_ONE = "/{subscription}"
OPERATIONS: tuple[Operation[Any], ...] = (
    _operation("list", "GET", "", ListSubscriptions, _list, "read", "The state of each subscription"),
    _operation("runs", "GET", f"{_ONE}/runs", ListRuns, _runs, "read", "What became of a subscription's events"),
    _operation("retry", "POST", f"{_ONE}/retry", Retry, _retry, "admin", "Try again what failed or was parked"),
    _operation("reset", "POST", f"{_ONE}/reset", Reset, _reset, "admin", "Go on somewhere else in the log"),
    _operation("pause", "POST", f"{_ONE}/pause", Pause, _pause, "admin", "Stop running a subscription's plugin"),
    _operation("resume", "POST", f"{_ONE}/resume", Choose, _resume, "admin", "Run it again, at once"),
)
