"""Events: emit, list, prune."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple

import msgspec
from pydantic import Field

from eventd.api.admin.events.emitted_leaves import show_leaves
from eventd.api.admin.events.emitting import count_results, prepare, show_exceptions, show_owner, show_results
from eventd.api.admin.events.event_columns import MOST, read_events
from eventd.api.admin.events.event_search import SEARCH_PAGES, SEARCH_SECONDS
from eventd.api.admin.events.refuted_marks import read_refuted_marks
from eventd.api.admin.events.returned_marks import read_shown_marks
from eventd.api.admin.resources.groups import find_target, read_waits, recall_target
from eventd.api.bodies.bodies import SMALL_BYTES
from eventd.api.framework.moments import read_span, show_time
from eventd.api.framework.operations import Params, Services
from eventd.api.framework.paging import MAX_PAGE_SIZE, PAGE_SIZE, After, Limit, PageStart, read_token, write_token
from eventd.errors import Conflict, EventdError, Invalid
from eventd.groups.lookup import find_group, read_group_topic
from eventd.groups.retention import apply_retention, eviction_pace
from eventd.log.core.head import read_head
from eventd.log.core.id_conflicts import UNKNOWN
from eventd.log.core.listing import EventQuery, list_latest
from eventd.log.core.scan import blocks_at, pick
from eventd.log.core.values import AppendResult, Drafts, Head, IdOwner, Outcome, Record
from eventd.log.history.trees import read_tree
from eventd.log.witnesses.event_states import EventHistory, admitting_node, pick_in_state, read_event_states, span_of
from eventd.resources.group_configuration import GroupConfig
from eventd.store.engine.database import Connection
from eventd.text.arguments import as_argument
from federation.event import is_plain
from federation.loops import decode_path

PRUNE_PATIENCE = 20.0
"""Seconds for which a prune yields to what clients write. Then it hurries: its own client waits for a minute."""


class IdTaken(Conflict):
    """Another event has the id of the only event of a request; `detail` names it."""

    def __init__(self, message: str, owner: IdOwner, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.detail = {"owner": show_owner(owner)}


def show_event(record: Record) -> dict[str, Any]:
    """Return a stored event as JSON, with the members of its envelope, its seq, its storage time and its path."""
    event = msgspec.json.decode(record.body)
    return {
        "id": event["id"],
        "group": event["group"],
        "sourceNode": event.get("sourceNode", ""),
        "type": event["type"],
        "subject": event.get("subject", ""),
        "dedupeKey": event.get("dedupeKey", ""),
        "payload": event.get("payload", {}),
        "observedAt": event["observedAt"],
        "expiresAt": event["expiresAt"],
        "recordedAt": show_time(record.recorded_at),
        "seq": record.seq,
        "path": list(decode_path(record.path)),
    }


class Emit(Params):
    """Events to store in one group: none if one is invalid; else all but duplicates and events with a taken id."""

    group: str
    events: list[Any] = Field(
        min_length=1,
        max_length=MOST,
        description="Each has a type and optionally id, sourceNode, subject, dedupeKey, payload, observedAt,"
        " expiresAt or ttl.",
    )
    brief: bool = Field(default=False, description="Leave the stored events out of the answer, which is faster.")
    exceptions: bool = Field(
        default=False, description="Answer with results only of events that are not new, each with its index."
    )

    @classmethod
    def read_quickly(cls, path: Mapping[str, str], body: bytes | bytearray) -> Emit | None:
        plain = read_events(body) if is_plain(path["group"]) else None
        if plain is None:
            return None
        return (_LargeEmit if len(body) > SMALL_BYTES else cls).model_construct(
            group=path["group"], events=plain.events, brief=plain.brief, exceptions=plain.exceptions
        )


class _LargeEmit(Emit):
    """An emit request whose body is so large that its events are checked in a thread, not on the event loop."""


async def emit(services: Services, params: Emit) -> dict[str, Any]:
    drafts, appended = await _append(services, params)
    if len(drafts) == 1 and appended.outcomes[0] is Outcome.CONFLICT:
        raise _conflict(drafts.event_ids[0], params.group, appended.owners[0])
    if params.exceptions:
        return await show_exceptions(services.log, drafts, appended)
    counts, results = count_results(appended), show_results(drafts, appended)
    if params.brief:
        return {"counts": counts, "results": results, **await show_leaves(services.log, appended)}
    stored = await services.database.read(_read_stored, list(appended.positions), services.log.unsettled_trees)
    for result, position in zip(results, appended.positions, strict=True):
        result |= stored.get(position, {"event": None})
    return {"counts": counts, "results": results}


def _read_stored(conn: Connection, positions: list[int], unsettled: Collection[int]) -> dict[int, dict[str, Any]]:
    """Return the events that are stored at these positions, as JSON, with the place of the leaf of each that has one.

    An index never appears without its tree, nor in a tree of `unsettled`, whose leaves may still move.
    """
    found, origins = dict[int, dict[str, Any]](), dict[int, str]()
    for block, places in blocks_at(conn, positions):
        for record in pick(block, places):
            shown: dict[str, Any] = {"event": show_event(record)}
            if block.tree is not None and block.leaf is not None and block.tree not in unsettled:
                if block.tree not in origins:
                    origins[block.tree] = read_tree(conn, block.tree).origin
                shown |= {"origin": origins[block.tree], "leaf": block.leaf + record.position - block.position}
            found[record.position] = shown
    return found


def _conflict(event_id: str, group: str, owner: IdOwner) -> Conflict:
    hint = "give the new event an id of its own"
    if owner.source == UNKNOWN:
        gone = f"the id {event_id} is taken in group {group} by another event, which is not stored any more"
        return Conflict(gone, hint=hint)
    where = f"came with the key {owner.key_id}" if owner.key_id else "was emitted at this node"
    if owner.key_id == UNKNOWN:
        where = "came from another node"
    return IdTaken(
        f"the id {event_id} is taken in group {group} by another event of {owner.source or 'no source'}, which {where};"
        f" its digest is {owner.digest}",
        owner,
        hint=f"{hint}; routerctl federation event list --group {group} --id"
        f" {as_argument(event_id, 'EVENT_ID')} --include-expired shows the other one",
    )


async def _append(services: Services, params: Emit) -> tuple[Drafts, AppendResult]:
    """Append the events to the group as it is declared now; return their drafts and the result.

    The declaration and the topic found by the last request are tried first, which saves a database read: the writer
    verifies that they are current, and events refused by a replaced declaration are checked again by the current one.
    """
    now = services.clock.now()
    place = recall_target(services.database, params.group) or await find_target(services.database, params.group, now)
    while True:
        try:
            large = isinstance(params, _LargeEmit)
            drafts, unit = await prepare(services, params.events, place, now, large=large)
            return drafts, await services.log.submit(unit)
        except EventdError:
            present = await find_target(services.database, params.group, now)
            if present is place:
                raise
            place = present


class ListEvents(Params):
    """Which events to list. Times are RFC 3339 or ages (`15m`)."""

    group: str
    type: list[str] = Field(default=[], description="Only events of this type; repeatable.")
    subject_prefix: str = Field(default="", description="Only events whose subject has this prefix.")
    source: str = Field(default="", description="Only events with this source node.")
    id: str = Field(default="", description="Only this event.")
    since: str = Field(default="", description="Only events observed at this time or later.")
    until: str = Field(default="", description="Only events observed at this time or earlier.")
    include_expired: bool = Field(default=False, description="Show expired events, too.")
    history: EventHistory | None = Field(
        default=None, description="Only events of other nodes with this check result (needs `history.mode: verify`)."
    )
    newest: bool = Field(default=False, description="Newest first; `after` then continues with older ones.")
    after: After = ""
    limit: Limit = PAGE_SIZE


async def list_events(services: Services, params: ListEvents) -> dict[str, Any]:
    now = services.clock.now()
    since, until = read_span(params.since, params.until, now)
    ask, start = await services.database.read(_open_listing, params, now, since, until)
    records, seen = await _read_page(services, params, ask)
    states = {}
    if start.is_checked:
        states = await services.database.read(read_event_states, ask.topic_id, params.group, records)
    marks = await services.database.read(read_shown_marks, ask.topic_id, records)
    refuted = await services.database.read(read_refuted_marks, ask.topic_id, records)
    shown = [
        show_event(record)
        | ({"returned": marks[record.event_id]} if record.event_id in marks else {})
        | ({"mark": refuted[record.position]} if record.position in refuted else {})
        | (
            {"history": states[record.position], "admittedBy": admitting_node(record)}
            if record.position in states
            else {}
        )
        for record in records
    ]
    return {
        "events": shown,
        "next": None if seen is None else write_token(start.head, seen),
        "upto": write_token(start.head, start.head.last),
        "gap": start.place.gap,
    }


async def _read_page(services: Services, params: ListEvents, ask: EventQuery) -> tuple[list[Record], int | None]:
    """Return the events of a page, and the position after which the next page begins; None for the last page.

    With a result of the check, full pages of the log are read, as few of their events may have it, and the work is
    bounded as that of a search is: the page may have fewer events than its limit, or none.
    """
    begun, state = services.clock.monotonic(), params.history
    records, size = list[Record](), 0
    for number in count(1):
        most = params.limit - len(records) if state is None else MAX_PAGE_SIZE
        found = await services.database.read(list_latest, replace(ask, limit=most))
        fitting = found.records
        if state is not None:
            fitting = await services.database.read(pick_in_state, ask.topic_id, params.group, fitting, state)
        for record in fitting:
            if records and (len(records) == params.limit or size + record.size > ask.max_bytes):
                return records, records[-1].position
            records.append(record)
            size += record.size
        if not found.more:
            break
        is_late = number >= SEARCH_PAGES or services.clock.monotonic() - begun >= SEARCH_SECONDS
        if len(records) == params.limit or size >= ask.max_bytes or (state is not None and is_late):
            return records, found.seen
        ask = replace(ask, before=found.seen) if params.newest else replace(ask, after=found.seen)
    return records, None


class _ListingStart(NamedTuple):
    """The end of the log, and where the page of a listing starts. `is_checked`: the group checks events of others."""

    head: Head
    place: PageStart
    is_checked: bool


def _open_listing(
    conn: Connection, params: ListEvents, now: int, since: int | None, until: int | None
) -> tuple[EventQuery, _ListingStart]:
    group = find_group(conn, params.group)
    head, topic = read_head(conn), read_group_topic(conn, params.group)
    place = read_token(params.after, head, topic)
    ask = EventQuery(
        topic_id=topic.id,
        now=None if params.include_expired else now,
        event_id=params.id,
        types=params.type,
        subject_prefix=params.subject_prefix,
        source=params.source,
        since=since,
        until=until,
        after=0 if params.newest else place.position,
        before=(place.position or head.next_position) if params.newest else head.next_position,
        newest=params.newest,
        limit=params.limit,
        refuted=bool(params.id) or params.history is EventHistory.REFUTED,
    )
    if params.history is not None:
        ask = _narrow(conn, group, ask, params.history)
    return ask, _ListingStart(head, place, group.verifies_history)


def _narrow(conn: Connection, group: GroupConfig, ask: EventQuery, state: EventHistory) -> EventQuery:
    """Return the query without what no event in this state can precede or follow. Raises Invalid without checks."""
    if not group.verifies_history:
        raise Invalid(
            f"group {group.name} does not check events of other nodes: its history.mode is {group.history_mode}",
            hint="set history.mode: verify in the EventGroup",
        )
    span = span_of(conn, ask.topic_id, state)
    if span is None:
        return ask
    first, last = span
    before = last + 1 if ask.before is None else min(ask.before, last + 1)
    return replace(ask, after=max(ask.after, first - 1), before=before)


class Prune(Params):
    """The group whose retention is applied now."""

    group: str
    waits: bool = Field(default=False, description="Also show the `retentionWaits`, as they are now.")


async def prune(services: Services, params: Prune) -> dict[str, Any]:
    group = await services.database.read(find_group, params.group)
    pace = eviction_pace(services.log)
    evicted = await apply_retention(services.log, group.name, pace, patience=PRUNE_PATIENCE)
    if services.metrics is not None:
        services.metrics.pruned(group.name, evicted.records)
    answer = {
        "group": group.name,
        "removed": evicted.records,
        "evictedSeq": evicted.upto_seq,
        "bounded": group.retention.is_bounded,
    }
    if params.waits:
        answer["retentionWaits"] = await services.database.read(_read_waits, services, group)
    return answer


def _read_waits(conn: Connection, services: Services, group: GroupConfig) -> dict[str, int]:
    """Return what the group's retention waits for now: an answer from before it was applied would contradict it."""
    topic = read_group_topic(conn, group.name)
    return read_waits(conn, services, group, topic if topic.id else None, services.clock.now(), shared=False)
