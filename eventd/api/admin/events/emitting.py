"""Prepares emitted events for the writer, and shows their results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from eventd.api.admin.events.emitted import drafts_from
from eventd.api.admin.events.emitted_leaves import show_leaves
from eventd.api.admin.events.event_columns import are_plain
from eventd.api.admin.events.event_texts import are_texts, decode_texts
from eventd.api.admin.resources.groups import EmitTarget
from eventd.api.framework.operations import Services
from eventd.dynamic.guard import OBSERVED, refuse_captured
from eventd.log.core.eventlog import EventLog
from eventd.log.core.units import Check, Publish
from eventd.log.core.values import AppendResult, Drafts, IdOwner, Outcome
from eventd.resources.group_configuration import GroupConfig
from federation.event import DECODER

MANY = 1_000
"""Maximum number of events, or of members of their payloads, in a request that is checked on the event loop."""
RESULTS = {
    Outcome.NEW: "new",
    Outcome.REFRESH: "refreshed",
    Outcome.DUPLICATE: "duplicate",
    Outcome.CONFLICT: "conflict",
}


async def prepare(
    services: Services, events: list[Any], place: EmitTarget, now: int, *, large: bool
) -> tuple[Drafts, Publish]:
    """Return the drafts of the events for a group as it is declared at `place`, and the unit that appends them.

    `now` in microseconds. `large`: check the events in a thread, whatever their number. Raises what `drafts_from` does.
    """
    heavy = large or _is_heavy(events)
    check_events = partial(_check, events, place.group, now=now, random=services.log.chance.token, heavy=heavy)
    drafts = await asyncio.to_thread(check_events) if heavy else check_events()
    check = _refusal_of(drafts) if OBSERVED in drafts.types else None
    ceiling = place.group.retention.max_bytes
    return drafts, Publish(place.topic, drafts, ceiling=ceiling, check=check, declared=place.version)


def _is_heavy(events: list[Any]) -> bool:
    """Return whether to check the events in a thread, by the number of events and members.

    Members are those of the payloads of events that are not `PlainEvent`s.
    """
    if len(events) <= MANY and are_plain(events):
        return False
    odd = (event for event in events[:MANY] if isinstance(event, dict))
    payloads = (event.get("payload") for event in odd)
    return (
        are_texts(events)
        or len(events) > MANY
        or sum(len(payload) for payload in payloads if isinstance(payload, dict)) > MANY
    )


def _check(events: list[Any], group: GroupConfig, *, now: int, random: Callable[[int], bytes], heavy: bool) -> Drafts:
    if are_texts(events):
        decode_texts(events, group, now=now, random=random)
    return drafts_from(events, group, now=now, random=random, heavy=heavy)


def _refusal_of(drafts: Drafts) -> Check:
    """Return the check, run in the writing transaction, that refuses reports of addresses this node captures itself."""
    events = [*map(DECODER.decode, drafts.bodies)]
    reports = [(event.type, event.subject, event.payload) for event in events]
    return lambda conn, at: refuse_captured(conn, reports, at)


def count_results(appended: AppendResult) -> dict[str, int]:
    """Return the number of events with each result."""
    new = appended.count(Outcome.NEW)
    if new == len(appended.outcomes):  # as usual
        return {word: new if outcome is Outcome.NEW else 0 for outcome, word in RESULTS.items()}
    return {word: appended.count(outcome) for outcome, word in RESULTS.items()}


def show_results(drafts: Drafts, appended: AppendResult) -> list[dict[str, Any]]:
    """Return the result of each event, with its id and, if that is taken, its owner."""
    outcomes = zip(drafts.event_ids, appended.outcomes, strict=True)
    results: list[dict[str, Any]] = [{"id": event_id, "result": RESULTS[outcome]} for event_id, outcome in outcomes]
    for index, owner in appended.owners.items():
        results[index]["owner"] = show_owner(owner)
    return results


async def show_exceptions(log: EventLog, drafts: Drafts, appended: AppendResult) -> dict[str, Any]:
    """Return the short answer to emitted events: counts, the results that are not `new`, and the leaves."""
    counts = count_results(appended)
    results = [] if counts[RESULTS[Outcome.NEW]] == len(drafts) else enumerate(show_results(drafts, appended))
    others = [{"index": index, **result} for index, result in results if result["result"] != RESULTS[Outcome.NEW]]
    return {"counts": counts, "results": others, **await show_leaves(log, appended)}


def show_owner(owner: IdOwner) -> dict[str, Any]:
    """Return the owner of an id as JSON."""
    return {"sourceNode": owner.source, "keyId": owner.key_id, "digest": owner.digest}
