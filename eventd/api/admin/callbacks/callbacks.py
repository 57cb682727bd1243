"""Callbacks: their states and attempts, and pause, resume and test."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pydantic import Field

from eventd.api.framework.moments import read_moment, show_seconds, show_time
from eventd.api.framework.operations import Params, Services
from eventd.api.framework.paging import PAGE_SIZE, After, Limit
from eventd.egress.cursors import pause_all, reconcile
from eventd.errors import Conflict, Invalid
from eventd.groups.callback_history import NEWEST, AttemptPlace, EndpointAttempt, read_attempt_list, read_losses
from eventd.groups.callbacks import CallbackStatus, KnownCallback, find_callback, read_callback_statuses, read_callbacks
from eventd.groups.lookup import find_group
from eventd.log.cursors.cursors import (
    Cursor,
    LinkState,
    read_cursors,
)
from eventd.log.cursors.holding import DISABLED_BY
from eventd.resources.callback_configuration import CallbackConfig
from eventd.resources.subscriber_configuration import SubscriberLimits
from eventd.store.engine.database import Connection
from eventd.store.rows.callback_cursors import RESEND, SUBSCRIBER, callback_name, callback_of
from eventd.store.rows.registry import announce, read_resources
from eventd.store.rows.routemaster import SubscriberRow, find_subscriber

if TYPE_CHECKING:  # the module loads the HTTP client, which other operations do not need
    from eventd.egress.callbacks.tester import CallbackTestResult

RECENT = 5
"""Number of attempts that a description shows."""
_PLACE = re.compile(r"([0-9]{0,18}):([0-9]{0,18})")


class ListCallbacks(Params):
    """All callbacks, or those of one EventGroup."""

    group: str = Field(default="", description="Only callbacks that get events of this EventGroup.")


async def list_callbacks(services: Services, params: ListCallbacks) -> dict[str, Any]:
    return {"callbacks": await services.database.read(_read_list, params, services.clock.now())}


def _read_list(conn: Connection, params: ListCallbacks, now: int) -> list[dict[str, Any]]:
    if params.group:
        find_group(conn, params.group)
    known = read_callbacks(conn).values()
    chosen = [one for one in known if not params.group or one.config.group == params.group]
    return [_show(status, now) for status in read_callback_statuses(conn, chosen, now)]


def read_callback_state(conn: Connection, name: str, now: int) -> dict[str, Any]:
    """Return a callback and its state as JSON. Raises NotFound."""
    (status,) = read_callback_statuses(conn, [find_callback(conn, name)], now)
    return _show(status, now)


def _show(status: CallbackStatus, now: int) -> dict[str, Any]:
    config = status.callback.config
    return {
        "callback": config.name,
        "origin": status.callback.origin,
        "group": config.group,
        "topic": config.topic,
        "url": config.url,
        "format": config.format,
        **_state(status),
        "waitingEvents": status.backlog.events,
        "waitingIsExact": status.backlog.exact,
        "waitingSeconds": show_seconds(status.backlog.lag(now)),
        "deadLetters": status.dead_letters,
        "position": status.position,
        "head": status.head,
        "resends": [_resend(cursor) for cursor in status.resends],
    }


def _state(status: CallbackStatus) -> dict[str, Any]:
    cursor, topic = status.cursor, status.callback.config.topic
    if cursor is None:
        return {
            "state": str(status.state),
            "reason": "new" if status.has_topic else "no_topic",
            "since": None,
            "attempts": 0,
            "retryAt": None,
            "lastError": "" if status.has_topic else f"the topic {topic} does not exist",
            "lastSuccessAt": None,
            "failingSince": None,
            "pausedAt": None,
            "pausedBy": "",
        }
    paused = cursor.paused_at is not None
    # An operator's pause has no reason here: that of the last failure is why the callback failed before.
    by_operator = paused and cursor.paused_by != DISABLED_BY
    # What is delivered is held back by nothing, although the last request may have been.
    is_idle = cursor.shown_state is LinkState.RUNNING and not status.backlog.events
    return {
        "state": str(cursor.shown_state),
        "reason": "" if by_operator or is_idle else cursor.reason,
        "since": show_time(cursor.paused_at if paused else cursor.since),
        "attempts": cursor.attempts,
        "retryAt": None if paused else show_time(cursor.retry_at),
        "lastError": cursor.last_error,
        "lastSuccessAt": show_time(cursor.succeeded_at),
        "failingSince": show_time(cursor.failing_since),
        "pausedAt": show_time(cursor.paused_at),
        "pausedBy": cursor.paused_by,
    }


def _resend(cursor: Cursor) -> dict[str, Any]:
    return {
        "position": cursor.position,
        "until": cursor.until,
        "state": str(cursor.shown_state),
        "reason": cursor.reason,
        "attempts": cursor.attempts,
        "retryAt": None if cursor.paused_at is not None else show_time(cursor.retry_at),
        "lastError": cursor.last_error,
        "createdAt": show_time(cursor.created_at),
    }


class OneCallback(Params):
    """One callback."""

    callback: str = Field(description="The callback, as `EventCallback/NAME` or NAME.")


async def describe(services: Services, params: OneCallback) -> dict[str, Any]:
    limits = services.subscriber_limits()
    return await services.database.read(describe_callback, params.callback, services.clock.now(), limits)


def describe_callback(conn: Connection, name: str, now: int, limits: SubscriberLimits | None = None) -> dict[str, Any]:
    """Return the state of a callback as JSON, with its limits, keys and newest attempts. Raises NotFound.

    `limits` are those of requests to subscribers of the Routemaster surface; None: the defaults.
    """
    found = find_callback(conn, name, limits)
    [status] = read_callback_statuses(conn, [found], now)
    config = found.config
    attempts = read_attempt_list(conn, config.name, before=None, limit=RECENT)
    return {
        **_show(status, now),
        "keys": [{"id": key.id, "state": key.state} for key in config.keys],
        "order": "strict" if config.in_flight == 1 else "within a request",
        "limits": _limits(config),
        "intervals": [
            {"topic": one.topic, "after": one.after, "upto": one.upto} for one in found.selection.intervals or ()
        ],
        "losses": [
            {"at": show_time(at), "from": first, "to": last, "count": count, "reasons": [*reasons]}
            for at, first, last, count, reasons in read_losses(conn, config.name, limit=RECENT)
        ],
        "recentAttempts": [_attempt(attempt) for attempt in attempts],
    }


def _limits(config: CallbackConfig) -> dict[str, Any]:
    return {
        "maxEvents": config.max_events,
        "maxBytes": config.max_bytes,
        "windowSeconds": show_seconds(config.window),
        "timeoutSeconds": config.timeout,
        "connectTimeoutSeconds": config.connect_timeout,
        "perSecond": config.per_second or 0,
        "inFlight": config.in_flight,
        "baseBackoffSeconds": config.backoff.base,
        "maxBackoffSeconds": config.backoff.cap,
        "isolateAfter": config.isolate_after,
        "holdSeconds": show_seconds(config.hold or 0),
        "disableAfterSeconds": show_seconds(config.disable_after or 0),
    }


class ListAttempts(OneCallback):
    """The requests to a callback's endpoint, newest first."""

    before: str = Field(default="", description="Only attempts before this time: RFC 3339, or an age (`15m`).")
    after: After = ""
    limit: Limit = PAGE_SIZE


async def list_attempts(services: Services, params: ListAttempts) -> dict[str, Any]:
    before = read_moment("before", params.before, services.clock.now())
    return await services.database.read(read_attempt_page, params.callback, before, params.after, params.limit)


def read_attempt_page(conn: Connection, callback: str, before: int | None, after: str, limit: int) -> dict[str, Any]:
    """Return a page of a callback's attempts as JSON, and the token `after` of the next one.

    `before`: only those from before this time (microseconds; None: all). Raises `NotFound` and `Invalid`.
    """
    place = _read_place(after)
    name = find_callback(conn, callback).config.name
    found = read_attempt_list(conn, name, before=before, limit=limit + 1, place=place)
    shown = found[:limit]
    following = _write_place(place.after(shown)) if len(found) > limit else None
    return {"attempts": [_attempt(one) for one in shown], "next": following}


def _write_place(place: AttemptPlace) -> str:
    return ":".join("" if id is None else str(id) for id in place)


def _read_place(token: str) -> AttemptPlace:
    """Return the place that a token names; the beginning of the list for an empty one. Raises `Invalid`."""
    if not token:
        return NEWEST
    found = _PLACE.fullmatch(token)
    if found is None:
        raise Invalid(f"{token[:60]!r} is not a token of this list", hint="send the `next` of the last page unchanged")
    return AttemptPlace(*(int(id) if id else None for id in found.groups()))


def _attempt(one: EndpointAttempt) -> dict[str, Any]:
    return {
        "at": show_time(one.at),
        "firstAt": show_time(one.first_at),
        "messageId": one.message_id,
        "after": one.after,
        "upto": one.upto,
        "events": one.events,
        "attempt": one.attempt,
        "requests": one.requests,
        "status": one.status,
        "reason": one.reason,
        "detail": one.detail,
        "seconds": show_seconds(one.duration),
        "address": one.address,
        "keys": one.key_ids.split(),
        "answer": one.answer,
        "retryAt": show_time(one.retry_at),
    }


# --- what an operator may do ----------------------------------------------------------------------------------------


async def test(services: Services, params: OneCallback) -> dict[str, Any]:
    name, target = await services.database.read(_find_target, params.callback)
    result = await services.test_callback(target)
    return {"callback": name, **_tested(result)}


def _find_target(conn: Connection, given: str) -> tuple[str, CallbackConfig | SubscriberRow]:
    """Return the name of a callback and its configuration.

    For a subscriber of Routemaster also its row, with its URL and uuid.
    """
    config = find_callback(conn, given).config
    if not config.name.startswith(SUBSCRIBER):
        return config.name, config
    row = find_subscriber(conn, config.name.removeprefix(SUBSCRIBER))
    assert row is not None
    return config.name, row


def _tested(result: CallbackTestResult) -> dict[str, Any]:
    return {
        "delivered": result.outcome.status in range(200, 300),
        "messageId": result.message_id,
        "status": result.outcome.status,
        "reason": result.outcome.reason,
        "detail": result.outcome.detail,
        "seconds": show_seconds(result.outcome.duration),
        "address": result.outcome.address,
        "keys": result.outcome.key_ids.split(),
        "answer": result.outcome.answer,
        "headers": dict(result.outcome.headers),
    }


class PauseCallback(OneCallback):
    """Stop sending to a callback; its events wait."""

    by: str = Field(default="", max_length=200, description="Shown with the callback: the operator, or the reason.")


async def pause(services: Services, params: PauseCallback) -> dict[str, Any]:
    if params.by == DISABLED_BY:
        raise Invalid(f"by: {DISABLED_BY!r} stands for callbacks that the node has disabled", hint="write another name")
    return await _pause(services, params, at=services.clock.now(), by=params.by)


async def resume(services: Services, params: OneCallback) -> dict[str, Any]:
    return await _pause(services, params, at=None, by="")


async def _pause(services: Services, params: OneCallback, *, at: int | None, by: str) -> dict[str, Any]:
    now = services.clock.now()
    await services.database.write(_set_paused, params.callback, now, at=at, by=by)
    await services.take_over()
    return await services.database.read(read_row, params.callback, now)


def read_row(conn: Connection, name: str, now: int) -> dict[str, Any]:
    """Return a callback as in the list of all."""
    [status] = read_callback_statuses(conn, [find_callback(conn, name)], now)
    return _show(status, now)


def _set_paused(conn: Connection, name: str, now: int, *, at: int | None, by: str) -> None:
    """Pause the callback and its resends at the time `at`, or resume them if it is None; that clears failures, too."""
    announce(conn)  # locks the head, which is always locked before cursors, and wakes the node
    callback, cursor = register(conn, name, now)
    pause_all(conn, [cursor, *resends_of(conn, callback.config.name)], now, at=at, by=by)


def register(conn: Connection, name: str, now: int) -> tuple[KnownCallback, Cursor]:
    """Return a callback and its cursor, which is created if no node has done that yet.

    Raises NotFound, and Conflict if its topic does not exist.
    """
    if not read_cursors(conn, name=callback_name(find_callback(conn, name).config.name)):
        reconcile(conn, read_resources(conn), now)
    return read_registered(conn, name)


def read_registered(conn: Connection, name: str) -> tuple[KnownCallback, Cursor]:
    """Return a callback and its cursor. Raises NotFound, and Conflict while it has none: its topic does not exist."""
    callback = find_callback(conn, name)
    found = read_cursors(conn, name=callback_name(callback.config.name))
    if not found:
        topic = callback.config.topic
        raise Conflict(
            f"the topic {topic} of the callback {callback.config.name} does not exist",
            hint=f"create it: routerctl topic put {topic}",
        )
    return callback, found[0]


def resends_of(conn: Connection, name: str) -> list[Cursor]:
    """Return the cursors of a callback's unfinished resends."""
    return [cursor for cursor in read_cursors(conn, RESEND) if callback_of(cursor.name) == name]
