"""Moves a callback to another position of the log, or shows what the move would change."""

from __future__ import annotations

from typing import Any

from eventd.api.admin.callbacks.callbacks import OneCallback, read_registered, read_row, register, resends_of
from eventd.api.framework.moments import read_moment
from eventd.api.framework.operations import Services
from eventd.api.framework.reset_position import ResetPosition
from eventd.errors import Invalid
from eventd.groups.callbacks import KnownCallback, count_in_range
from eventd.log.core.head import announce_topics, read_head
from eventd.log.core.topic_row import find_topic
from eventd.log.cursors.cursors import Cursor, delete_cursors, move_cursor
from eventd.log.cursors.dead_letters import delete_dead_letters_after
from eventd.log.cursors.selections import declare_selection, read_selection
from eventd.log.delivery.repairs import count_dead_letters_after, recorded_between
from eventd.store.engine.database import Connection
from eventd.store.rows.callback_attempts import forget_attempts
from eventd.store.rows.callback_cursors import SUBSCRIBER, callback_of, is_subscriber
from eventd.store.rows.registry import announce
from eventd.store.rows.routemaster import select_anew


class ResetCallback(ResetPosition, OneCallback):
    """The callback to move, and where to."""


async def reset(services: Services, params: ResetCallback) -> dict[str, Any]:
    now = services.clock.now()
    if params.dry_run:
        return await services.database.read(_plan_reset, params, now)
    moved = await services.database.write(_reset_now, params, now)
    await services.take_over()
    return await services.database.read(read_row, params.callback, now) | moved


def _plan_reset(conn: Connection, params: ResetCallback, now: int) -> dict[str, Any]:
    """Return what a reset would do: how many events are sent again or skipped, and what is deleted."""
    callback, cursor = read_registered(conn, params.callback)
    at, to = cursor.position, _position_of(conn, params, callback, cursor, now)
    count, exact = count_in_range(conn, callback, cursor.topic_id, min(at, to), max(at, to), now)
    return {
        "callback": callback.config.name,
        "from": at,
        "to": to,
        "dryRun": True,
        "again": count if to < at else 0,
        "skipped": count if to > at else 0,
        "countIsExact": exact,
        "deadLetters": count_dead_letters_after(conn, cursor.topic_id, cursor.name, to),
        "resends": len(resends_of(conn, callback.config.name)),
    }


def _reset_now(conn: Connection, params: ResetCallback, now: int) -> dict[str, int]:
    """Move the callback; return its former and its new position."""
    announce(conn)
    callback, cursor = register(conn, params.callback, now)
    to = _position_of(conn, params, callback, cursor, now)
    _go_to(conn, cursor, to, now)
    return {"from": cursor.position, "to": to}


def _position_of(conn: Connection, params: ResetCallback, callback: KnownCallback, cursor: Cursor, now: int) -> int:
    """Return the position after which the callback would continue."""
    if params.latest:
        return read_head(conn).last
    if not params.since:
        topic = find_topic(conn, callback.config.topic)
        return 0 if topic is None else topic.evicted_position
    to, last = recorded_between(conn, cursor.topic_id, read_moment("since", params.since, now), None)
    if last == 0:
        raise Invalid(
            f"no event of {callback.config.topic} was stored since {params.since}",
            hint="name an earlier time, or latest",
        )
    return to


def _go_to(conn: Connection, cursor: Cursor, to: int, now: int) -> None:
    """Move a callback's cursor; its resends and attempts are deleted, and its dead letters after the position `to`."""
    resends = [resend.name for resend in resends_of(conn, callback_of(cursor.name))]
    delete_cursors(conn, resends)
    for name in (cursor.name, *resends):
        forget_attempts(conn, name)
    delete_dead_letters_after(conn, cursor.topic_id, cursor.name, to)
    move_cursor(conn, cursor.name, to=to, now=now)
    # The new version ends requests from the old position at once.
    if is_subscriber(cursor.name):
        select_anew(conn, announce_topics(conn), [callback_of(cursor.name).removeprefix(SUBSCRIBER)])
        return
    version, selection = read_selection(conn, cursor.name)
    declare_selection(conn, cursor.name, max(version + 1, read_head(conn).registry_version), selection, now)
