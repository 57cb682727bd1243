"""The course of one event at this node: its deliveries to callbacks, the runs it triggered, and its parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eventd.egress.callbacks.formats import EXPIRED
from eventd.egress.cursors import PEER, SUBSCRIPTION, target_of
from eventd.groups.callbacks import KnownCallback, read_callbacks
from eventd.log.core.topic_row import TopicRow
from eventd.log.core.values import Record
from eventd.log.cursors.cursors import Cursor, read_cursors
from eventd.log.delivery.event_ledger import EventDeadLetter, read_covering
from eventd.log.delivery.states import DeliveryState
from eventd.resources.plugin_configuration import subscriptions
from eventd.store.engine.database import Connection
from eventd.store.parts.part import SUBSCRIPTION as OWNED
from eventd.store.parts.part import StoredPart
from eventd.store.parts.reading import read_part_ids, read_parts
from eventd.store.rows.callback_attempts import CallbackAttempt, read_attempts_at
from eventd.store.rows.callback_cursors import CALLBACK, callback_name
from eventd.store.rows.registry import read_resources
from federation.event import is_alive

MOST_SHOWN = 100
"""Maximum number of runs, of parts, and of dead letters of one event."""
MOST_ATTEMPTS = 10
"""How many of the newest failed attempts of a callback are shown for one event."""


class CallbackCourse(NamedTuple):
    """The delivery of the event to a callback, and its newest failed attempts. `delivered_at` in microseconds."""

    callback: str
    state: DeliveryState
    message_id: str
    error: str
    delivered_at: int | None
    attempts: Sequence[CallbackAttempt]


def read_callback_courses(
    conn: Connection, topic: TopicRow, record: Record, now: int, letters: Sequence[EventDeadLetter]
) -> list[CallbackCourse]:
    """Return the delivery of an event to each callback that it is meant for."""
    cursors = {cursor.name: cursor for cursor in read_cursors(conn, CALLBACK)}
    refused = {letter.cursor: letter for letter in letters}
    found = []
    for known in read_callbacks(conn).values():
        cursor = cursors.get(callback_name(known.config.name))
        if cursor is None or cursor.topic_id != topic.id or not known.selection.takes_event(record):
            continue
        if cursor.started_after is None or record.position > cursor.started_after:
            found.append(_course(conn, known, cursor, record, now, refused.get(cursor.name)))
    return found


def _course(
    conn: Connection, known: KnownCallback, cursor: Cursor, record: Record, now: int, letter: EventDeadLetter | None
) -> CallbackCourse:
    name, position = known.config.name, record.position
    attempts = read_attempts_at(conn, cursor.name, position, limit=MOST_ATTEMPTS)
    if letter is not None:
        detail = f"{letter.reason}: {letter.detail}" if letter.detail else letter.reason
        return CallbackCourse(name, DeliveryState.REFUSED, "", detail, None, attempts)
    if position > cursor.position:
        if not is_alive(record.expires_at, now):
            return CallbackCourse(name, DeliveryState.EXPIRED, "", "", None, attempts)
        failed = bool(cursor.attempts) and position <= cursor.attempted_upto
        state = DeliveryState.FAILED if failed else DeliveryState.PENDING
        return CallbackCourse(name, state, "", cursor.last_error if failed else "", None, attempts)
    error = ""
    for batch in read_covering(conn, cursor.name, position):
        if position not in batch.exceptions:
            return CallbackCourse(name, DeliveryState.DELIVERED, batch.batch_id, "", batch.acked_at, attempts)
        error = batch.exceptions[position]
    state = DeliveryState.EXPIRED if error == EXPIRED else DeliveryState.REFUSED if error else DeliveryState.UNKNOWN
    return CallbackCourse(name, state, "", error, None, attempts)


def read_event_parts(conn: Connection, group: str, record: Record) -> list[StoredPart]:
    """Return the parts that derive from an event: those of the group's subscriptions that name it."""
    declared = subscriptions(read_resources(conn)).values()
    owners = [f"{OWNED}{one.name}" for one in declared if one.group == group]
    ids = [id for owner in owners for id in read_part_ids(conn, owner, record.subject, limit=MOST_SHOWN)]
    parts = read_parts(conn, ids=sorted(ids)[-MOST_SHOWN:]) if ids else []
    return [part for part in parts if record.event_id in part.event_ids]


def owner_of_letter(cursor: str) -> tuple[str, str]:
    """Return the kind and the name of the owner of a dead letter, by the name of its cursor.

    The kinds are peer, subscription, callback and router.
    """
    kind, _, name = cursor.partition(":")
    return (kind, target_of(cursor)[1]) if kind in (PEER, SUBSCRIPTION) else (kind, name)
