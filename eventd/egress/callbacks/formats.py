"""The bodies of callbacks in each format, and the ids of their messages. Pure.

A message of one record has an id made of the record's identity, one of several records an id made of their positions:
so every attempt at a message, also after a restart or as part of a resend, has the same id and the same bytes.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from eventd.log.core.losses import Loss
from eventd.log.core.records import (
    UNTAGGED,
    View,
    body_of_event,
    encoded,
    read_body,
    read_provenance,
    record_id,
    render,
)
from eventd.log.core.topic_row import TopicRow
from eventd.log.core.values import Record
from eventd.log.topics.source_page import StoredRecord
from federation.event import format_time
from federation.routemaster import ACTIONS

STANDARD, BATCH, RECORDS, ROUTEMASTER = "standard", "batch", "records", "routemaster"
GAP: Final = "routerd.callback.gap"
"""Type of the message that reports lost events."""
EXPIRED: Final = "expired"
"""Reason why a matching event is not sent."""
UNSUITABLE: Final = "unsuitable"
"""Reason why a record cannot be sent: it has no form in the callback's format."""
NEEDS: Final = "which needs a tag TOPIC.ACTION (create, update, delete or noop), and data with url, t and perhaps data"
"""What a record needs so that the format `routemaster` can carry it; the other formats can carry every record."""
_WHOLE = View(tags=True)
_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class CallbackItem(NamedTuple):
    """A record in the form of a callback's format. Times in microseconds.

    `message_id` is that of a message with this record alone. `text` is JSON. `omitted` says why the record is not sent;
    empty: it is. `expires_at`: when the record expires, unless that is None.
    """

    position: int
    seq: int
    recorded_at: int
    event_id: str
    message_id: str
    text: str
    omitted: str = ""
    expires_at: int | None = None

    @property
    def size(self) -> int:
        """Return the bytes of its text."""
        return len(self.text) if self.text.isascii() else len(self.text.encode())


class _EventText(msgspec.Struct, rename="camel"):
    id: str
    type: str
    observed_at: str
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))
    source_node: str = ""
    subject: str = ""


class _Change(msgspec.Struct):
    """The data of a record in the topic of a Routemaster surface."""

    url: str
    t: msgspec.Raw
    data: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


_EVENTS = msgspec.json.Decoder(_EventText)
_CHANGES = msgspec.json.Decoder(_Change)


def item_of_event(record: Record, format: str, *, omitted: str) -> CallbackItem:
    """Return an event of a group in a format. If `omitted` gives a reason why it is not sent, the item has no text."""
    text = "" if omitted else _event_text(record, format)
    return CallbackItem(
        record.position,
        record.seq,
        record.recorded_at,
        record.event_id,
        _id_of_event(record.event_id, record.expires_at),
        text,
        omitted or ("" if text else UNSUITABLE),
        record.expires_at,
    )


def _event_text(record: Record, format: str) -> str:
    if format == RECORDS:
        return render(record.seq, record.recorded_at // 1000, body_of_event(record.body), _WHOLE)
    if format == ROUTEMASTER:
        return ""
    event = _EVENTS.decode(record.body)
    payload = bytes(event.payload).decode()
    return _standard(event.type, event.observed_at, payload, event.id, event.subject, event.source_node)


def _standard(type: str, timestamp: str, data: str, id: str, subject: str, source: str) -> str:
    """Return the text of one event in the formats `standard` and `batch`; `data` is JSON."""
    return (
        f'{{"type":{encoded(type)},"timestamp":{encoded(timestamp)},"data":{data},"id":{encoded(id)},'
        f'"subject":{encoded(subject)},"source":{encoded(source)}}}'
    )


def item_of_record(record: StoredRecord, recorded_at: int, topic: TopicRow, format: str) -> CallbackItem:
    """Return a record of a topic in a format."""
    id = read_provenance(record.path).id or record_id(topic.instance, record.seq, recorded_at)
    if format == RECORDS:
        text = render(record.seq, recorded_at // 1000, record.body, _WHOLE)
    elif format == ROUTEMASTER:
        text = _routemaster(record.body)
    else:
        text = _standard_record(record.body, recorded_at, id)
    return CallbackItem(record.position, record.seq, recorded_at, id, _plain(id), text, "" if text else UNSUITABLE)


def _standard_record(body: str, recorded_at: int, id: str) -> str:
    parts = read_body(body)
    subject = _subject(parts.meta or "")
    return _standard(parts.tag or UNTAGGED, format_time(recorded_at), parts.data, id, subject, parts.node or "")


def _subject(meta: str) -> str:
    """Return the subject in the meta of a record, as routers from a group write it; empty if it has none."""
    if '"subject"' not in meta:
        return ""
    try:
        found = json.loads(meta)
    except RecursionError:  # no router writes such a meta
        return ""
    subject = found.get("subject") if isinstance(found, dict) else None
    return subject if isinstance(subject, str) else ""


def _routemaster(body: str) -> str:
    """Return a record as Routemaster's subscribers get it; empty if it is not a change of a resource."""
    parts = read_body(body)
    topic, dot, action = (parts.tag or "").rpartition(".")
    if not dot or action not in ACTIONS:
        return ""
    try:
        change = _CHANGES.decode(parts.data)
    except (msgspec.DecodeError, RecursionError):
        return ""
    data = bytes(change.data).decode()
    return (
        f'{{"topic":{encoded(topic)},"type":"{action}","url":{encoded(change.url)},"t":{bytes(change.t).decode()}'
        + (f',"data":{data}}}' if data else "}")
    )


# --- bodies ---------------------------------------------------------------------------------------------------------


def body_of(items: Sequence[CallbackItem], format: str, topic: str, epoch: str) -> bytes:
    """Return the body of a message with these items, at least one; for `standard` exactly one."""
    if format == STANDARD:
        [item] = items
        return item.text.encode()
    listed = ",".join(item.text for item in items)
    if format == RECORDS:
        return f'{{"topic":{encoded(topic)},"epoch":{encoded(epoch)},"records":[{listed}]}}'.encode()
    return f"[{listed}]".encode()


def gap_body(losses: Sequence[Loss], format: str, topic: str, epoch: str, *, callback: str, id: str, now: int) -> bytes:
    """Return the body of the message that reports losses. The format `routemaster` has none."""
    about = {
        "callback": callback,
        "from": losses[0].first,
        "to": losses[-1].last,
        "count": sum(loss.records for loss in losses),
        "reason": losses[0].reason if len({loss.reason for loss in losses}) == 1 else "mixed",
    }
    data = json.dumps(about, separators=(",", ":"))
    if format == RECORDS:
        return f'{{"topic":{encoded(topic)},"epoch":{encoded(epoch)},"records":[],"gap":{data}}}'.encode()
    text = _standard(GAP, format_time(now), data, id, "", "")
    return (f"[{text}]" if format == BATCH else text).encode()


# --- ids ------------------------------------------------------------------------------------------------------------


def message_id(items: Sequence[CallbackItem], format: str, epoch: str, callback: str) -> str:
    """Return the id of a message with these items.

    For several items it is different for each callback, because another callback may get different events between the
    same first and last.
    """
    if format == STANDARD:
        return items[0].message_id
    return _hashed("b", callback, format, epoch, *(item.position for item in items))


def gap_id(losses: Sequence[Loss], epoch: str, callback: str) -> str:
    """Return the id of the message that reports these losses to a callback."""
    return _hashed("gap", callback, epoch, losses[0].first, losses[-1].last, sum(loss.records for loss in losses))


def _id_of_event(event_id: str, expires_at: int | None) -> str:
    """Return the message id of an event; each refresh of the event has another expiry, and so another message id."""
    if expires_at is None:
        return _plain(event_id)
    return _plain(f"{event_id}-{expires_at:x}")


def _plain(text: str) -> str:
    """Return a text that may be a message id, or else a digest of it."""
    return text if _PLAIN_ID.fullmatch(text) else _hashed("e", text)


def _hashed(kind: str, *parts: object) -> str:
    digest = sha256("\n".join(map(str, parts)).encode()).digest()
    return f"{kind}_{urlsafe_b64encode(digest[:24]).decode()}"
