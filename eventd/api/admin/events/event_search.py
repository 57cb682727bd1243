"""Search of the events of a group, newest first and bounded, and of one event in all groups by its id."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
from pydantic import Field, field_validator

from eventd.api.admin.events.refuted_marks import find_refuted_record, read_refuted_marks
from eventd.api.framework.moments import read_span, show_time
from eventd.api.framework.operations import Params, Services
from eventd.api.framework.paging import After, read_token, write_token
from eventd.errors import NotFound
from eventd.groups.lookup import find_group, read_group_topic
from eventd.log.core.head import read_head
from eventd.log.core.listing import SLACK, EventQuery, list_latest, place_at, read_id_places, stored_at_or_before
from eventd.log.core.scan import read_at
from eventd.log.core.topic_row import TopicRow, read_group_topics
from eventd.log.core.values import Head, Record
from eventd.resources.kinds.registry import EVENT_GROUP
from eventd.store.engine.database import Connection
from eventd.store.rows.registry import read_resources
from federation.event import is_alive
from federation.loops import decode_path

SEARCH_SECONDS = 0.2
"""Seconds after which a request reads no further page of the log."""
SEARCH_PAGES = 10
"""Pages of the log that one request searches: each decodes about 5,000 events at most."""
MOST_FOUND = 200
"""Maximum number of events of one answer."""


class SearchEvents(Params):
    """Which events to search for, the newest first. All conditions must hold; times are those of storage here."""

    group: str
    type: list[str] = Field(
        default=[],
        max_length=50,
        description="Only events of this type, or with `*` at the end of types with this prefix; repeatable.",
    )
    subject_prefix: str = Field(default="", description="Only events whose subject has this prefix.")
    source: str = Field(default="", description="Only events with this source node.")
    id: str = Field(default="", description="Only this event.")
    since: str = Field(
        default="", description="Only events stored at this node at this time or later: RFC 3339, or an age (`15m`)."
    )
    until: str = Field(default="", description="Only events stored at this node at this time or earlier.")
    payload: list[str] = Field(
        default=[], max_length=20, description="Only events whose payload has this member, as `KEY=VALUE`; repeatable."
    )
    after: After = ""
    limit: int = Field(default=50, ge=1, le=MOST_FOUND, description="Maximum number of entries of the page.")

    @field_validator("payload")
    @classmethod
    def _members(cls, given: list[str]) -> list[str]:
        for member in given:
            if not member.partition("=")[0] or "=" not in member:
                raise ValueError(f"{member[:60]!r} is not KEY=VALUE")
        return given

    @property
    def members(self) -> list[tuple[str, str]]:
        """Return the members of the payload with their values."""
        return [(key, value) for key, _, value in (member.partition("=") for member in self.payload)]


class _SearchStart:
    """The start of a search: the log's end, the topic, the query, and the gap, if `after` refers to events that are
    gone."""

    def __init__(self, head: Head, topic: TopicRow, query: EventQuery, gap: dict[str, str] | None) -> None:
        self.head, self.topic, self.query, self.gap = head, topic, query, gap


async def search(services: Services, params: SearchEvents) -> dict[str, Any]:
    """Return a page of the events that match, and how far back the log was searched for it."""
    database, now, begun = services.database, services.clock.now(), services.clock.monotonic()
    since, until = read_span(params.since, params.until, now)
    start = await database.read(_open_search, params, since, until)
    query, records, more = start.query, list[Record](), True
    for _ in range(SEARCH_PAGES):
        found = await database.read(list_latest, query)
        records += found.records
        more, seen = found.more, found.seen
        query = replace(
            query,
            before=seen,
            limit=query.limit - len(found.records),
            max_bytes=query.max_bytes - sum(record.size for record in found.records),
        )
        late = services.clock.monotonic() - begun >= SEARCH_SECONDS
        if not more or query.limit <= 0 or query.max_bytes <= 0 or late:
            break
    back_to = await database.read(stored_at_or_before, start.topic.id, seen) if more else None
    refuted = await database.read(read_refuted_marks, query.topic_id, records)
    return {
        "events": [_show(record, now, refuted.get(record.position)) for record in records],
        "next": write_token(start.head, seen) if more else None,
        "searchedBackTo": show_time(back_to),
        "storedEvents": start.topic.ids,
        "gap": start.gap,
    }


def _open_search(conn: Connection, params: SearchEvents, since: int | None, until: int | None) -> _SearchStart:
    find_group(conn, params.group)
    head, topic = read_head(conn), read_group_topic(conn, params.group)
    place = read_token(params.after, head, topic)
    end = place.position or head.next_position
    first = 0 if since is None else place_at(conn, topic.id, since, end)
    last = end if until is None else place_at(conn, topic.id, until + 2 * SLACK, end)
    query = EventQuery(
        topic_id=topic.id,
        event_id=params.id,
        types=[name for name in params.type if not name.endswith("*")],
        type_prefixes=tuple(name[:-1] for name in params.type if name.endswith("*")),
        subject_prefix=params.subject_prefix,
        source=params.source,
        payload=params.members,
        stored_since=since,
        stored_until=until,
        after=max(0, first - 1),
        before=last,
        newest=True,
        limit=params.limit,
        refuted=True,
    )
    return _SearchStart(head, topic, query, place.gap)


def _show(record: Record, now: int, refuted: dict[str, Any] | None) -> dict[str, Any]:
    """Return the envelope of an event as JSON, without its payload."""
    event = msgspec.json.decode(record.body)
    shown = {
        "id": record.event_id,
        "group": event["group"],
        "sourceNode": record.node,
        "type": record.tag,
        "subject": record.subject,
        "dedupeKey": event.get("dedupeKey", ""),
        "observedAt": event["observedAt"],
        "expiresAt": event["expiresAt"],
        "expired": not is_alive(record.expires_at, now),
        "recordedAt": show_time(record.recorded_at),
        "seq": record.seq,
        "path": list(decode_path(record.path)),
        "bytes": record.size,
    }
    return shown | ({"mark": refuted} if refuted else {})


class FindEvent(Params):
    """The event to look for in all groups that the caller's key may access."""

    narrows = True

    id: str = Field(min_length=1, description="The id of the event.")


async def find(services: Services, params: FindEvent) -> dict[str, Any]:
    """Return where an event is stored or was stored, group by group. Raises `NotFound` if no group knows it."""
    places = await services.database.read(_read_places, params.id, services)
    if not places:
        raise NotFound(
            f"no group has an event {params.id[:200]}",
            hint="ids of evicted events are remembered for `id_retention`",
        )
    return {"id": params.id, "groups": places}


def _read_places(conn: Connection, event_id: str, services: Services) -> list[dict[str, Any]]:
    declared = {row.name for row in read_resources(conn, EVENT_GROUP.name) if services.sees(row.name)}
    topics = {topic.id: topic.group_name for topic in read_group_topics(conn) if topic.group_name in declared}
    places = read_id_places(conn, event_id, sorted(topics))
    held = read_at(conn, [place.position for place in places if place.gone_at is None])
    stored = {(record.topic_id, record.event_id): record for record in held}
    now = services.clock.now()
    found = []
    for place in places:
        record = stored.get((place.topic_id, event_id))
        about = {} if record is None else {"event": _show(record, now, None)}
        group = topics[place.topic_id]
        found.append({"group": group, "stored": record is not None, "evictedAt": show_time(place.gone_at)} | about)
    known = {place.topic_id for place in places}
    for topic_id in (one for one in topics if one not in known):
        record = find_refuted_record(conn, topic_id, event_id)
        if record is not None:
            mark = read_refuted_marks(conn, topic_id, [record]).get(record.position)
            found.append({"group": topics[topic_id], "stored": True, "evictedAt": None})
            found[-1]["event"] = _show(record, now, mark)
    return sorted(found, key=lambda one: str(one["group"]))
