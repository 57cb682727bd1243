"""Sends events to one peer again: the request is checked first, then a repair is started."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self
from weakref import WeakKeyDictionary

from pydantic import Field, model_validator

from eventd.api.framework.moments import read_span, show_time
from eventd.api.framework.operations import Params, Services
from eventd.errors import Conflict, EventdError, Invalid, NotFound
from eventd.groups.links import read_cursor_of, wanted_by
from eventd.groups.lookup import find_group, find_peer, read_group_topic
from eventd.log.core.scan import read_at
from eventd.log.core.topic_row import TopicRow
from eventd.log.core.values import Record
from eventd.log.cursors.cursors import Cursor, set_paused
from eventd.log.delivery.backlog import Backlog, survey
from eventd.log.delivery.repairs import MOST_POSITIONS, numbered_between, read_placed, recorded_between, start_repair
from eventd.log.delivery.selection import Selection
from eventd.resources.group_configuration import PeerConfig
from eventd.store.engine.database import Connection, Database
from federation.event import is_alive
from federation.loops import decode_path, may_send


class Redeliver(Params):
    """Which events to send again: ids, a range of seq, or a span of time. The receiver drops those it has."""

    group: str
    peer: str = Field(description="The peer, by its node name.")
    ids: list[str] = Field(
        default=[], max_length=MOST_POSITIONS, description="The ids of the events; all of them or none are sent."
    )
    from_seq: int | None = Field(default=None, ge=1, description="The first seq to send, in the group.")
    to_seq: int | None = Field(default=None, ge=1, description="The last seq to send, in the group.")
    since: str = Field(
        default="", description="Only events stored at this node at this time or later: RFC 3339, or an age (`15m`)."
    )
    until: str = Field(default="", description="Only events stored at this node at this time or earlier.")
    dry_run: bool = Field(default=False, description="Only show what would be sent.")

    @model_validator(mode="after")
    def _one_way_to_choose(self) -> Self:
        ways = [bool(self.ids), self.from_seq is not None or self.to_seq is not None, bool(self.since or self.until)]
        if sum(ways) != 1:
            raise ValueError("select events in one way: ids, a range of seq (fromSeq, toSeq), or since and until")
        return self


@dataclass(frozen=True, slots=True)
class PeerLink:
    """A declared peer, the cursor of the link to it, and the topic of its group."""

    peer: PeerConfig
    cursor: Cursor
    topic: TopicRow

    @classmethod
    def read(cls, conn: Connection, group: str, node: str) -> Self:
        """Return the link. Raises NotFound for an undeclared group or peer, Conflict until a node has registered it."""
        peer = find_peer(find_group(conn, group), node)
        cursor = read_cursor_of(conn, peer)
        if cursor is None:
            raise Conflict(f"nothing has been sent to {node} yet", hint="start the node: routerd-eventd serve")
        return cls(peer, cursor, read_group_topic(conn, group))

    def start(self, conn: Connection, after: int, upto: int, selection: Mapping[str, Any], now: int) -> str:
        """Start a repair of the records in `(after, upto]` that `selection` takes; return its name.

        If the link is paused, so is the repair.
        """
        name = start_repair(
            conn,
            group=self.peer.group,
            node=self.peer.node_name,
            topic_id=self.topic.id,
            after=after,
            upto=upto,
            selection=selection,
            now=now,
        )
        if self.cursor.paused_at is not None:
            set_paused(conn, name, at=self.cursor.paused_at, by=self.cursor.paused_by)
        return name

    def start_at(self, conn: Connection, positions: Sequence[int], now: int) -> str:
        """Start a repair of the records at these positions, as far as the peer selects them; return its name."""
        selection = Selection(self.peer.selector, self.peer.relay, positions=frozenset(positions))
        return self.start(conn, min(positions) - 1, max(positions), selection.to_json(), now)

    def why_not(self, record: Record | None, now: int) -> str:
        """Return why a record (None: retention has removed it) cannot be sent to this peer again; empty if it can."""
        if record is None:
            return "retention has removed it"
        if not is_alive(record.expires_at, now):
            return f"it expired at {show_time(record.expires_at)}"
        if not Selection.of(self.peer).matches(record):
            return f"it is not meant for {self.peer.node_name}"
        if may_send(decode_path(record.path), record.node, self.peer.node_name, relay=True):
            return f"it came from {self.peer.node_name}, or through it"
        if record.position > self.cursor.position:
            return "it is still in the backlog of the link"
        return ""


async def redeliver(services: Services, params: Redeliver) -> dict[str, Any]:
    now = services.clock.now()
    plan = await (_plan_ids if params.ids else _plan_range)(services, params, now)
    if not params.dry_run:
        await services.database.write(_start, params, plan, now)
    return {"group": params.group, "peer": params.peer, "dryRun": params.dry_run, **plan.answer}


class _Plan(NamedTuple):
    """A planned repair of `positions`, or of `(after, upto]` if there are none, and the response that describes it."""

    positions: Sequence[int]
    after: int
    upto: int
    answer: Mapping[str, Any]


def _start(conn: Connection, params: Redeliver, plan: _Plan, now: int) -> None:
    link = PeerLink.read(conn, params.group, params.peer)
    if plan.positions:
        link.start_at(conn, plan.positions, now)
    else:
        link.start(conn, plan.after, plan.upto, Selection.of(link.peer).to_json(), now)


async def _plan_ids(services: Services, params: Redeliver, now: int) -> _Plan:
    return await services.database.read(_look_up_ids, params, now)


def _look_up_ids(conn: Connection, params: Redeliver, now: int) -> _Plan:
    link = PeerLink.read(conn, params.group, params.peer)
    ids = list(dict.fromkeys(params.ids))
    placed = read_placed(conn, link.topic.id, ids)
    records = {r.position: r for r in read_at(conn, [at for at in placed.values() if at is not None])}
    _require_all(link, ids, placed, records, now)
    answer = {
        "events": len(records),
        "bytes": sum(record.size for record in records.values()),
        **_span([record.recorded_at for record in records.values()]),
        "expired": 0,
        "notMeant": 0,
        "waiting": 0,
        "evicted": 0,
    }
    return _Plan(sorted(records), 0, 0, answer)


def _require_all(
    link: PeerLink, ids: Sequence[str], placed: Mapping[str, int | None], records: Mapping[int, Record], now: int
) -> None:
    """Raise NotFound or Conflict, with reasons by id, if the event of any of the ids cannot be sent again."""
    reasons = {}
    for event_id in ids:
        at = placed.get(event_id)
        none = f"group {link.peer.group} has no event with this id"
        record = None if at is None else records.get(at)
        if reason := link.why_not(record, now) if event_id in placed else none:
            reasons[event_id] = reason
    if reasons:
        raise _refusal(reasons, Conflict if reasons.keys() & placed.keys() else NotFound)


def _refusal(reasons: Mapping[str, str], kind: type[EventdError]) -> EventdError:
    if len(reasons) == 1:
        [(event_id, reason)] = reasons.items()
        return kind(f"event {event_id} cannot be sent again: {reason}")
    lines = [f"  {event_id}: {reason}" for event_id, reason in list(reasons.items())[:20]]
    more = [f"  and {len(reasons) - 20} more"] if len(reasons) > 20 else []
    return kind("\n".join([f"{len(reasons)} events cannot be sent again, so none is:", *lines, *more]))


def _span(times: Sequence[int]) -> dict[str, Any]:
    return {"oldest": show_time(min(times, default=None)), "newest": show_time(max(times, default=None))}


async def _plan_range(services: Services, params: Redeliver, now: int) -> _Plan:
    link, after, upto = await services.database.read(_open_range, params, now)
    sent = max(after, min(upto, link.cursor.position))
    found = await _survey(services, link, after, sent, now)
    waiting = (await _survey(services, link, sent, upto, now)).events
    counts = {"expired": found.expired, "notMeant": found.others, "waiting": waiting}
    counts["evicted"] = _evicted(link.topic, params)
    if not params.dry_run and found.events == 0:
        raise Conflict(_nothing(params.peer, counts))
    span = {"oldest": show_time(found.oldest), "newest": show_time(found.newest)}
    return _Plan((), after, sent, {"events": found.events, "bytes": found.bytes, **span, **counts})


def _open_range(conn: Connection, params: Redeliver, now: int) -> tuple[PeerLink, int, int]:
    link = PeerLink.read(conn, params.group, params.peer)
    return (link, *_range(conn, link.topic, params, now))


_surveying: WeakKeyDictionary[Database, asyncio.Lock] = WeakKeyDictionary()
"""Locks held during each step of a survey, by database: simultaneous surveys would delay deliveries and not end
sooner."""
_REST = 1
"""The rest after a step of a survey, as a multiple of its duration."""


async def _survey(services: Services, link: PeerLink, after: int, upto: int, now: int) -> Backlog:
    """Return how many records in `(after, upto]` a repair would send, with their bytes and times, and how many it
    would not send.

    Rests after each short step, so that deliveries are not delayed.
    """
    database, clock, wanted, found = services.database, services.clock, wanted_by(link.peer), Backlog(after)
    lock = _surveying.setdefault(database, asyncio.Lock())
    while found.upto < upto:
        async with lock:
            begun = clock.monotonic()
            step = await database.read(survey, link.topic.id, wanted, after=found.upto, upto=upto, now=now)
            found.add(step)
            await clock.sleep(_REST * (clock.monotonic() - begun))
    return found


def _evicted(topic: TopicRow, params: Redeliver) -> int:
    """Return how many of the requested seqs were evicted; 0 if a span of time was requested, as it is unknown then."""
    if params.from_seq is None and params.to_seq is None:
        return 0
    last = topic.evicted_seq if params.to_seq is None else min(params.to_seq, topic.evicted_seq)
    return max(0, last - (params.from_seq or 1) + 1)


def _range(conn: Connection, topic: TopicRow, params: Redeliver, now: int) -> tuple[int, int]:
    if params.since or params.until:
        since, until = read_span(params.since, params.until, now)
        return recorded_between(conn, topic.id, since, until)
    last = topic.next_seq - 1 if params.to_seq is None else params.to_seq
    if params.from_seq is not None and params.from_seq > last:
        if params.to_seq is None:
            raise Invalid(f"group {params.group} ends at seq {last}, and the range begins at {params.from_seq}")
        raise Invalid(f"the range ends at seq {last}, before it begins at {params.from_seq}")
    return numbered_between(conn, topic.id, params.from_seq or 1, last)


def _nothing(peer: str, counts: Mapping[str, int]) -> str:
    words = {
        "expired": "expired",
        "notMeant": f"not meant for {peer}",
        "waiting": "already in the backlog",
        "evicted": "removed by retention",
    }
    reasons = [f"{count} {words[name]}" for name, count in counts.items() if count]
    return f"there is nothing to send to {peer} again: {', '.join(reasons) or 'the range holds no event'}"
