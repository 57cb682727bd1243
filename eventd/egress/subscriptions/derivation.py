"""Converts events that a plugin returned to drafts for the log of its group. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from eventd.egress.subscriptions.trigger import DERIVED_BY
from eventd.egress.subscriptions.window import RunBatch
from eventd.errors import EventdError
from eventd.log.core.values import Draft
from eventd.plugins.contract.contract import PluginFailed, Result
from eventd.resources.group_configuration import GroupConfig
from eventd.text.duration import parse_duration
from federation.errors import MessageError
from federation.event import UNSET, Event, encode, expiry_micros, from_micros, normalise
from federation.lenient import parse_time


class PluginEvent(msgspec.Struct, rename="camel"):
    """An event as a plugin writes it.

    Without a payload, `attributes` become one, with `message` among them. Without `expires_at`, the event expires `ttl`
    (by default the result's own ttl) after the result was observed; never if that ttl is 0 or less.
    """

    type: str
    message: str = ""
    attributes: dict[str, str] = msgspec.field(default_factory=dict)
    id: str = ""
    subject: str = ""
    dedupe_key: str = ""
    payload: dict[str, str] | None = None
    observed_at: str = ""
    expires_at: str = ""
    ttl: str = ""


def derive(result: Result, batch: RunBatch, derivation: str, group: GroupConfig, now: int) -> list[Draft]:
    """Return the drafts of the events that a run returned.

    Equal results of the same events get the same ids. `derivation` names the node and the subscription; it is stored in
    the payload, with the derivations of the source events, so that no chain of subscriptions can form a loop. Raises
    `PluginFailed` for an event that cannot be stored.
    """
    chain = _chain(batch, derivation)
    ids = ",".join(sorted(one.event.id for one in batch.kept))
    drafts: list[Draft] = []
    for index, raw in enumerate(result.events):
        try:
            event = _event(raw, f"{derivation}\n{ids}", chain, result, group, now)
            body = encode(event)
            if len(body) > group.limits.max_event_bytes:
                raise ValueError(f"{len(body)} bytes are over the limit of {group.limits.max_event_bytes} of the group")
        except (ValueError, OverflowError, msgspec.ValidationError, MessageError, EventdError) as error:
            words = error.message if isinstance(error, (MessageError, EventdError)) else str(error)
            raise PluginFailed(f"status.events[{index}] cannot be stored: {words}", reason="bad_event") from None
        drafts.append(Draft(event.id, event.source_node, event.type, expiry_micros(event), "", body.decode()))
    return drafts


def _event(
    raw: Mapping[str, Any], origin: str, chain: Sequence[str], result: Result, group: GroupConfig, now: int
) -> Event:
    given = msgspec.convert(raw, PluginEvent)
    payload = given.payload
    if payload is None:
        payload = given.attributes | ({"message": given.message} if given.message else {})
    observed = parse_time(given.observed_at) if given.observed_at else from_micros(result.observed_at)
    expires = parse_time(given.expires_at) if given.expires_at else UNSET
    if expires == UNSET:
        ttl = parse_duration(given.ttl) if given.ttl else result.ttl
        expires = from_micros(result.observed_at + ttl) if ttl > 0 else UNSET
    event = Event(
        id=given.id or _id_of(origin, given, payload),
        group=group.name,
        source_node=group.node_name,
        type=given.type,
        subject=given.subject,
        dedupe_key=given.dedupe_key,
        payload=payload | {DERIVED_BY: " ".join(chain)},
        observed_at=observed,
        expires_at=expires,
    )
    return normalise(event, now=now)


def _id_of(origin: str, given: PluginEvent, payload: Mapping[str, str]) -> str:
    content = msgspec.json.encode([given.type, given.subject, given.dedupe_key, sorted(payload.items())])
    return f"derived-{hashlib.sha256(origin.encode() + content).hexdigest()[:24]}"


def _chain(batch: RunBatch, derivation: str) -> list[str]:
    """Return the names of the subscriptions by which the events of a batch were derived, without repetitions, and
    `derivation` last."""
    before = (name for one in batch.kept for name in one.event.payload.get(DERIVED_BY, "").split())
    return [*dict.fromkeys([*before, derivation])]
