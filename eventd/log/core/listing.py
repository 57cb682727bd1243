"""Lists the events of a topic: the latest record of each id, filtered, oldest or newest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from eventd.log.core.blocks import Block, names, unpack
from eventd.log.core.head import read_head
from eventd.log.core.pages import LOOKED_AT, PASSED_OVER, UNREAD, cost_of
from eventd.log.core.scan import outlines, outlines_back, read_block, scan, scan_back
from eventd.log.core.values import Record
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch
from eventd.store.ids.known import read_ids_from, read_ids_of
from federation.event import DECODER, is_alive, written

OUTLINES = 32
"""How many blocks are read together, without their lines, when most of them may be skipped."""


@dataclass(frozen=True, slots=True)
class EventQuery:
    """Which events to list. Times in microseconds; `None` and empty mean any.

    A type may be one of `types`, or begin with one of `type_prefixes`. `payload` are members of the payload with their
    values. `since` and `until` bound the time of observation, inclusive; `stored_since` and `stored_until` the time at
    which this node stored the record. With `now`, events that have expired by that time are
    left out. `after` and `before` are positions for paging, exclusive. A page holds at most `limit` records and
    `max_bytes` of their bodies, which the first record may exceed. `newest`: from the last position to the first.
    `refuted`: also refuted records, whose id now belongs to another record or is free.
    """

    topic_id: int
    now: int | None = None
    event_id: str = ""
    types: Sequence[str] = ()
    subject_prefix: str = ""
    source: str = ""
    since: int | None = None
    until: int | None = None
    after: int = 0
    before: int | None = None
    newest: bool = False
    limit: int = 100
    max_bytes: int = 8 << 20
    type_prefixes: tuple[str, ...] = ()
    payload: Sequence[tuple[str, str]] = ()
    stored_since: int | None = None
    stored_until: int | None = None
    refuted: bool = False

    def fits(self, record: Record) -> bool:
        """Return whether a record passes the filters; whether it is the latest record of its id is not checked here."""
        return (
            (not self.event_id or record.event_id == self.event_id)
            and self.takes_type(record.tag)
            and record.subject.startswith(self.subject_prefix)
            and (not self.source or record.node == self.source)
            and (self.since is None or record.ts >= self.since)
            and (self.until is None or record.ts <= self.until)
            and (self.now is None or is_alive(record.expires_at, self.now))
            and self._stored_in_time(record.recorded_at)
            and self._has_payload(record)
        )

    def takes_type(self, name: str) -> bool:
        """Return whether a record of this type may be listed."""
        return not self.names_types or name in self.types or name.startswith(self.type_prefixes)

    @property
    def names_types(self) -> bool:
        """Return whether only some types are listed."""
        return bool(self.types or self.type_prefixes)

    def _stored_in_time(self, time: int) -> bool:
        return (self.stored_since is None or time >= self.stored_since) and (
            self.stored_until is None or time <= self.stored_until
        )

    def _has_payload(self, record: Record) -> bool:
        if not self.payload:
            return True
        payload = DECODER.decode(record.body).payload
        return all(payload.get(key) == value for key, value in self.payload)

    def rules_out(self, block: Block) -> bool:
        """Return whether the columns and the undecoded text of a block prove that none of its records is listed."""
        return self.rules_out_by_names(block) or not all(text in block.text for text in self._texts)

    def rules_out_by_names(self, block: Block) -> bool:
        """Return whether the types, sources and time of the block prove that none of its records is listed."""
        types, sources = names(block.types), names(block.sources)
        return (
            bool(self.names_types and types is not None and not any(map(self.takes_type, types)))
            or bool(self.source and sources is not None and self.source not in sources)
            or not self._stored_in_time(block.recorded_at)
        )

    @property
    def _texts(self) -> list[str]:
        """Return texts that the body of every listed record contains."""
        subject = [f'"subject":{written(self.subject_prefix)[:-1]}'] if self.subject_prefix else []
        return subject + [f"{written(key)}:{written(value)}" for key, value in self.payload]

    def sieve(self) -> Callable[[str], bool]:
        """Return a test of bodies, False only if the text excludes the record: a search costs less than decoding."""
        texts, types = self._texts, [f'"type":{written(name)}' for name in self.types]
        types += [f'"type":{written(prefix)[:-1]}' for prefix in self.type_prefixes]
        return lambda line: all(text in line for text in texts) and (not types or any(name in line for name in types))


@dataclass(frozen=True, slots=True)
class EventList:
    """A page of records in the order of the query.

    If there may be `more`, the next page begins after the position `seen` or, with the newest first, before it.
    """

    records: Sequence[Record]
    more: bool
    seen: int


def list_latest(conn: Connection, ask: EventQuery) -> EventList:
    """Return a page of the records that match the query and are the latest of their id, in the query's order.

    A query with few matches in a long log takes several pages, some of which may be empty.
    """
    found: list[Record] = []
    size = seen = 0
    for fitting, seen, is_enough in _fitting(conn, ask):
        for record in latest(conn, ask.topic_id, fitting, refuted=ask.refuted):
            if found and (len(found) == ask.limit or size + record.size > ask.max_bytes):
                return EventList(found, True, found[-1].position)
            found.append(record)
            size += record.size
        if is_enough:
            return EventList(found, True, seen)
    return EventList(found, False, seen)


def _fitting(conn: Connection, ask: EventQuery) -> Iterator[tuple[list[Record], int, bool]]:
    """Yield matching records in several lists, superseded records included.

    With each list come the last position read, and whether the limit of work per page is reached.
    """
    fitting: list[Record] = []
    looked = seen = 0
    may_be = ask.sieve()
    for block in _blocks(conn, ask):
        if ask.rules_out(block):
            looked += PASSED_OVER
        else:
            decoded = unpack(block, may_be)
            cost = cost_of(block)
            looked += max(1, cost // UNREAD, cost * len(decoded) // block.records)
            records = [record for record in decoded if ask.fits(record)]
            fitting += records[::-1] if ask.newest else records
        seen = block.position if ask.newest else block.last
        if len(fitting) >= ask.limit or looked >= LOOKED_AT:
            yield fitting, seen, looked >= LOOKED_AT
            fitting = []
    yield fitting, seen, False


def _blocks(conn: Connection, ask: EventQuery) -> Iterator[Block]:
    end = read_head(conn).next_position if ask.before is None else ask.before
    if ask.event_id:
        of = ask.topic_id, ask.event_id
        known = read_ids_of(conn, ask.topic_id, [ask.event_id]).values()
        found = [row.position for row in known if row.gone_at is None]
        if ask.refuted:
            sql = "SELECT position FROM refuted_events WHERE topic_id = ? AND event_id = ?"
            found += [row[0] for row in fetch(conn, sql, of)]
        for place in sorted({place for place in found if ask.after < place < end}, reverse=ask.newest):
            yield from scan(conn, ask.topic_id, place - 1, place)
        return
    if ask.names_types or ask.source:
        yield from _named(conn, ask, end)
    elif ask.newest:
        yield from scan_back(conn, ask.topic_id, ask.after, end)
    else:
        yield from scan(conn, ask.topic_id, ask.after, end - 1)


def _named(conn: Connection, ask: EventQuery, end: int) -> Iterator[Block]:
    """Yield all blocks of a query by type or source; those that `rules_out_by_names` excludes lack their lines."""
    look = partial(outlines_back, before=end) if ask.newest else partial(outlines, until=end - 1)
    for block in look(conn, ask.topic_id, ask.after, portion=OUTLINES):
        if ask.rules_out_by_names(block):
            yield block
        elif part := read_block(conn, block.position).within(ask.after, end - 1):
            yield part


def latest(conn: Connection, topic_id: int, records: Sequence[Record], *, refuted: bool = False) -> list[Record]:
    """Return the given records, without those that a later record with the same event id has superseded.

    Refuted records are left out, or all stay with `refuted`: a later record with the id is not a refresh of them.
    """
    marked = _marked_among(conn, topic_id, records)
    if not refuted:
        records = [record for record in records if record.position not in marked]
    # No record after the last refresh has a later one: usually this covers all.
    [(end,)] = fetch(conn, f"SELECT max(position) {_REFRESHED}", (topic_id,))
    before = [record.event_id for record in records if end is not None and record.position < end]
    if not before:
        return [*records]
    places = {event_id: row.position for event_id, row in read_ids_of(conn, topic_id, before).items()}
    return [one for one in records if places.get(one.event_id, one.position) == one.position or one.position in marked]


def _marked_among(conn: Connection, topic_id: int, records: Sequence[Record]) -> set[int]:
    """Return the positions of refuted records between the first and the last of these records."""
    if not records:
        return set()
    ends = records[0].position, records[-1].position
    sql = "SELECT position FROM refuted_events WHERE topic_id = ? AND position BETWEEN ? AND ?"
    return {position for (position,) in fetch(conn, sql, (topic_id, min(ends), max(ends)))}


_REFRESHED = "FROM event_ids WHERE topic_id = ? AND first_position IS NOT NULL"


def refreshed_span(conn: Connection, topic_id: int) -> tuple[int, int]:
    """Return the range of positions `[first, end)` that contains every record a later refresh has superseded.

    The last refresh itself is at `end`. (0, 0) if no event was refreshed.
    """
    [(first, end)] = fetch(conn, f"SELECT min(first_position), max(position) {_REFRESHED}", (topic_id,))
    return (first, end) if first is not None else (0, 0)


class IdPlace(NamedTuple):
    """The place of an event's latest record. Times in microseconds.

    `gone_at` is when retention evicted the record; None if it is stored. `expires_at` is set only for an evicted
    record.
    """

    topic_id: int
    position: int
    gone_at: int | None
    expires_at: int | None


def read_id_places(conn: Connection, event_id: str, topic_ids: Sequence[int]) -> list[IdPlace]:
    """Return the place of an event in each of these topics that knows its id."""
    known = ((topic_id, read_ids_of(conn, topic_id, [event_id]).get(event_id)) for topic_id in topic_ids)
    return [IdPlace(topic_id, row.position, row.gone_at, row.expires_at) for topic_id, row in known if row]


def read_first_position(conn: Connection, topic_id: int, event_id: str) -> int | None:
    """Return the position of the first record of an event that was refreshed; None if it was not."""
    sql = "SELECT first_position FROM event_ids WHERE topic_id = ? AND event_id = ?"
    rows = fetch(conn, sql, (topic_id, event_id))
    return rows[0][0] if rows else None


def read_ids(conn: Connection, topic_id: int, prefix: str, limit: int) -> list[str]:
    """Return the first ids of stored records of a topic that begin with a prefix.

    Some are missed on a Postgres database that sorts texts by the rules of a language.
    """
    sql = (
        "SELECT event_id FROM event_ids WHERE topic_id = ? AND event_id >= ? AND event_id < ? AND gone_at IS NULL"
        " ORDER BY event_id LIMIT ?"
    )
    rows = fetch(conn, sql, (topic_id, prefix, f"{prefix}\U0010ffff", limit))
    found = [row[0] for row in rows if row[0].startswith(prefix)]
    more = read_ids_from(conn, topic_id, prefix, limit)
    return sorted([*found, *more])[:limit] if more else found


SLACK = 10 * 60 * SECOND
"""How far the clock of a node may have been put back between two records, for `place_at` to find the first of them."""


def place_at(conn: Connection, topic_id: int, time: int, end: int) -> int:
    """Return a position before `end` that no record of the topic stored at `time` (microseconds) or later precedes.

    It is found in a few steps, since records are stored in the order of time but for a clock that was put back.
    """
    low, high = 0, end  # everything before `low` was stored earlier, everything from `high` on may be later
    early = time - SLACK
    sql = "SELECT position, records, recorded_at FROM blocks WHERE topic_id = ? AND position < ?"
    while low < high:
        middle = (low + high + 1) // 2
        rows = fetch(conn, f"{sql} ORDER BY position DESC LIMIT 1", (topic_id, middle))
        if rows and rows[0][0] >= low and rows[0][2] >= early:
            high = rows[0][0]
        elif rows and rows[0][0] + rows[0][1] > middle:
            low = min(high, rows[0][0] + rows[0][1])
        else:
            low = middle
    return low


def stored_at_or_before(conn: Connection, topic_id: int, position: int) -> int | None:
    """Return when the record at a position, or the last stored one before it, was stored; None if there is none."""
    sql = "SELECT recorded_at FROM blocks WHERE topic_id = ? AND position <= ? ORDER BY position DESC LIMIT 1"
    rows = fetch(conn, sql, (topic_id, position))
    return int(rows[0][0]) if rows else None
