"""One event with its course at this node: envelope, payload as stored, deliveries, runs, parts and dead letters."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from pydantic import Field

from eventd.api.admin.deliveries.dead_letters import show_refusal
from eventd.api.admin.deliveries.peer_ledger import open_ledger
from eventd.api.admin.events.refuted_marks import (
    find_at,
    find_refuted_record,
    find_refuted_records,
    read_refuted_marks,
)
from eventd.api.admin.events.returned_marks import show_returned
from eventd.api.admin.subscriptions.subscription_runs import show_run
from eventd.api.framework.moments import show_time
from eventd.api.framework.operations import Download, Params, Services
from eventd.errors import NotFound
from eventd.groups.event_course import (
    MOST_SHOWN,
    CallbackCourse,
    owner_of_letter,
    read_callback_courses,
    read_event_parts,
)
from eventd.groups.lookup import find_group, peers_of, read_group_topic
from eventd.groups.peer_filters import explain_mismatch
from eventd.log.core.listing import IdPlace, read_id_places
from eventd.log.core.scan import read_at
from eventd.log.core.topic_row import TopicRow
from eventd.log.core.values import Record
from eventd.log.delivery.event_ledger import BatchEvidence, EventDeadLetter, read_event_letters, read_evidence
from eventd.log.delivery.evidence import Proof
from eventd.log.delivery.states import Delivery, derive
from eventd.log.witnesses.event_states import admitting_node, read_event_states
from eventd.resources.group_configuration import GroupConfig, PeerConfig
from eventd.store.engine.database import Connection
from eventd.store.parts.part import StoredPart
from eventd.store.rows.returned_events import read_returned_marks
from eventd.store.rows.runs import search_runs
from federation.digest import digest
from federation.event import is_alive
from federation.loops import decode_path

INLINE_BYTES = 64 << 10
"""The largest payload that a description holds; a larger one is downloaded."""


class _Envelope(msgspec.Struct, rename="camel"):
    """An event whose payload stays as it is stored."""

    id: str
    group: str
    type: str
    observed_at: str
    expires_at: str
    source_node: str = ""
    subject: str = ""
    dedupe_key: str = ""
    payload: msgspec.Raw = msgspec.Raw(b"{}")


_ENVELOPE = msgspec.json.Decoder(_Envelope)


class EventGone(NotFound):
    """The event was stored here and no longer is; `detail` has what is still known of it."""

    code = "event_gone"

    def __init__(self, message: str, detail: dict[str, Any]) -> None:
        super().__init__(message)
        self.detail = detail


class OneEvent(Params):
    """One event of a group."""

    group: str
    id: str = Field(min_length=1, description="The id of the event.")
    position: int | None = Field(
        default=None, ge=1, description="Its record at this position (default: the latest that has the id)."
    )


class _StoredEvent(NamedTuple):
    """A stored event, and the group and topic that it is in."""

    group: GroupConfig
    topic: TopicRow
    record: Record


def _find_event(conn: Connection, params: OneEvent) -> _StoredEvent:
    """Return the event. Raises `EventGone` if it was removed, and `NotFound` if the group does not know it."""
    group = find_group(conn, params.group)
    topic = read_group_topic(conn, group.name)
    if params.position is not None:
        return _StoredEvent(group, topic, find_at(conn, topic.id, group.name, params.id, params.position))
    for place in read_id_places(conn, params.id, [topic.id]):
        if place.gone_at is not None:
            raise _gone(conn, params, topic, place, place.gone_at)
        for record in read_at(conn, [place.position]):
            if record.event_id == params.id and record.topic_id == topic.id:
                return _StoredEvent(group, topic, record)
    refuted = find_refuted_record(conn, topic.id, params.id)
    if refuted is not None:
        return _StoredEvent(group, topic, refuted)
    raise NotFound(
        f"group {group.name} has no event {params.id[:200]}",
        hint="routerctl federation event find ID looks for it in all groups",
    )


def _gone(conn: Connection, params: OneEvent, topic: TopicRow, place: IdPlace, gone_at: int) -> EventGone:
    had_expired = not is_alive(place.expires_at, gone_at)
    letters = read_event_letters(conn, topic.id, params.id, limit=MOST_SHOWN)
    reason = "expired" if had_expired else "retention"
    words = "after it had expired" if had_expired else "because of the limits of the group"
    detail = {
        "id": params.id,
        "group": params.group,
        "evictedAt": show_time(gone_at),
        "expiresAt": show_time(place.expires_at),
        "reason": reason,
        "position": place.position,
        "evictedSeq": topic.evicted_seq,
        "deadLetters": [_show_letter(letter) for letter in letters],
    }
    message = f"retention evicted event {params.id[:200]} of group {params.group} at {show_time(gone_at)}, {words}"
    return EventGone(message, detail)


async def describe(services: Services, params: OneEvent) -> dict[str, Any]:
    """Return an event with its course at this node."""
    return await services.database.read(_describe, params, services.clock.now())


def _describe(conn: Connection, params: OneEvent, now: int) -> dict[str, Any]:
    group, topic, record = _find_event(conn, params)
    envelope = _ENVELOPE.decode(record.body)
    payload = bytes(envelope.payload)
    letters = read_event_letters(conn, topic.id, record.event_id, limit=MOST_SHOWN)
    runs, all_searched = search_runs(conn, group.name, record.event_id, limit=MOST_SHOWN)
    callbacks = read_callback_courses(conn, topic, record, now, letters)
    returned = read_returned_marks(conn, topic.id, [record.event_id]).get(record.event_id)
    deliveries, not_selected = _deliveries(conn, group, record, now)
    states = read_event_states(conn, topic.id, group.name, [record]) if group.verifies_history else {}
    return {
        "event": {
            "id": envelope.id,
            "group": envelope.group,
            "sourceNode": envelope.source_node,
            "type": envelope.type,
            "subject": envelope.subject,
            "dedupeKey": envelope.dedupe_key,
            "observedAt": envelope.observed_at,
            "expiresAt": envelope.expires_at,
            "expired": not is_alive(record.expires_at, now),
            "recordedAt": show_time(record.recorded_at),
            "seq": record.seq,
            "position": record.position,
            "bytes": record.size,
            "path": list(decode_path(record.path)),
            "returned": None if returned is None else show_returned(returned),
            "mark": read_refuted_marks(conn, topic.id, [record]).get(record.position),
            "history": states.get(record.position),
            "admittedBy": admitting_node(record) if record.position in states else None,
        },
        "node": group.node_name,
        "payload": payload.decode() if len(payload) <= INLINE_BYTES else None,
        "payloadBytes": len(payload),
        "deliveries": deliveries,
        "notSelected": not_selected,
        "callbacks": [_show_callback(one) for one in callbacks],
        "runs": [show_run(run) for run in runs],
        "runsSearched": all_searched,
        "parts": [_show_part(part, now) for part in read_event_parts(conn, group.name, record)],
        "deadLetters": [_show_letter(letter) for letter in letters],
        "others": _show_others(conn, topic.id, record),
    }


def _show_others(conn: Connection, topic_id: int, record: Record) -> list[dict[str, Any]]:
    """Return the other records with the id of an event, as JSON, the newest first."""
    refuted = find_refuted_records(conn, topic_id, record.event_id)
    places = {place.position for place in read_id_places(conn, record.event_id, [topic_id]) if place.gone_at is None}
    holders = [one for one in read_at(conn, sorted(places)) if one.event_id == record.event_id]
    others = [one for one in [*holders, *refuted] if one.position != record.position]
    marks = read_refuted_marks(conn, topic_id, others)
    return [
        {
            "position": one.position,
            "sourceNode": one.node,
            "digest": digest(one.body.encode()).hex(),
            "recordedAt": show_time(one.recorded_at),
            "path": list(decode_path(one.path)),
            "mark": marks.get(one.position),
        }
        for one in others
    ]


def _deliveries(
    conn: Connection, group: GroupConfig, record: Record, now: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the delivery to each peer that the event is meant for, and for each other peer, why it is not meant for
    that peer."""
    found, not_selected = [], []
    for peer in peers_of(group):
        link = open_ledger(conn, peer).link
        [delivery] = derive(conn, link, [record], now=now)
        if delivery is None:
            not_selected.append(_show_mismatch(peer, record))
            continue
        batch = None
        if delivery.batch_id and link.cursor is not None:
            batch = read_evidence(conn, link.cursor.name, record.position, delivery.batch_id)
        found.append(_show_delivery(peer.node_name, delivery, batch))
    return found, not_selected


def _show_mismatch(peer: PeerConfig, record: Record) -> dict[str, Any]:
    return {"peer": peer.node_name, "resource": peer.name, **explain_mismatch(peer, record)._asdict()}


def _show_delivery(peer: str, delivery: Delivery, batch: BatchEvidence | None) -> dict[str, Any]:
    return {
        "peer": peer,
        "status": str(delivery.state),
        "attempts": delivery.attempts,
        "lastAttemptAt": show_time(delivery.attempted_at),
        "lastError": delivery.error,
        "deliveredAt": show_time(delivery.delivered_at),
        "batch": None if batch is None else _show_batch(batch),
    }


def _show_batch(batch: BatchEvidence) -> dict[str, Any]:
    return {
        "id": batch.batch_id,
        "status": batch.status,
        "protocol": batch.protocol,
        "keyId": batch.key_id,
        "sentAt": show_time(batch.sent_at),
        "acknowledgedAt": show_time(batch.acked_at),
        "receipt": None if batch.receipt is None else _show_receipt(batch.receipt),
    }


def _show_receipt(receipt: Proof) -> dict[str, Any]:
    return {
        "digest": receipt.digest,
        "recordedAt": show_time(receipt.recorded_at),
        "accepted": receipt.accepted,
        "duplicates": receipt.duplicates,
        "refused": receipt.refused,
    }


def _show_callback(one: CallbackCourse) -> dict[str, Any]:
    return {
        "callback": one.callback,
        "status": str(one.state),
        "messageId": one.message_id,
        "lastError": one.error,
        "deliveredAt": show_time(one.delivered_at),
        "failedAttempts": [
            {
                "at": show_time(attempt.started_at),
                "attempt": attempt.attempt,
                "requests": attempt.folded,
                "messageId": attempt.message_id,
                "status": attempt.status,
                "reason": attempt.reason,
                "detail": attempt.detail,
            }
            for attempt in one.attempts
        ],
    }


def _show_part(part: StoredPart, now: int) -> dict[str, Any]:
    return {
        "source": part.source,
        "owner": part.owner,
        "generation": part.generation,
        "observedAt": show_time(part.observed_at),
        "endsAt": show_time(part.ends_at),
        "ended": part.ends_at <= now,
        "resources": [str(key) for key in part.claims],
    }


def _show_letter(letter: EventDeadLetter) -> dict[str, Any]:
    kind, owner = owner_of_letter(letter.cursor)
    return {
        "id": letter.id,
        "kind": kind,
        "owner": owner,
        **show_refusal(letter),
    }


async def download_payload(services: Services, params: OneEvent) -> Download:
    """Return the payload of an event as the bytes that are stored."""
    found = await services.database.read(_find_event, params)
    return Download(f"{params.id}.json", bytes(_ENVELOPE.decode(found.record.body).payload))
