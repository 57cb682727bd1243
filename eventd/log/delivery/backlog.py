"""The backlog of a link: how many events wait for a peer, since when, and how many are only refreshes.

`read_backlogs` passes once over the blocks ahead of one cursor or many. It sums up blocks with equal columns: for most
peers, all of their records are to be sent, or none. For other peers it takes each block singly, and decodes it if its
columns are not sufficient. The work is bounded: the rest of a long backlog is estimated.

`survey` takes blocks in the same way, but is exact: a step ends at its bound, and the next one continues there. What
waits for a subscription is not counted here, because its trigger needs the payload of each event.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from eventd.log.core.blocks import Block, unpack
from eventd.log.core.head import read_head
from eventd.log.core.pages import PASSED_OVER, cost_of
from eventd.log.core.scan import blocks_at, outlines, pick
from eventd.log.core.values import Record
from eventd.log.core.wire_page import PeerFilter
from eventd.store.engine.database import fetch
from federation.event import is_alive

COUNTED = 20_000
"""Maximum number of blocks counted by their columns, or of records where blocks must be decoded; the rest is estimated."""
MOST_KINDS = 1000
"""Maximum number of combinations of types in an estimate, the most frequent first."""
SURVEYED = 250
"""Maximum number of records that one step of a survey decodes, in a millisecond or two."""

_Kind = tuple[int, str, str, str, bool]
"""The columns that decide which records of a block are to be sent: equal for all blocks of a kind."""


@dataclass(slots=True)
class Backlog:
    """The events up to the position `upto` that are to be sent to a peer. Times in microseconds.

    `oldest` and `newest` are when the first and the last of them were recorded; `expires_first` is their earliest
    expiry, if known. If not `exact`, there may be fewer events, and some may expire sooner. Only a survey gives their
    `bytes`, and the numbers of other records: `expired` are too late, `others` are not meant for the peer or have
    passed it.
    """

    upto: int
    events: int = 0
    bytes: int = 0
    oldest: int | None = None
    newest: int | None = None
    expires_first: int | None = None
    expired: int = 0
    others: int = 0
    exact: bool = True

    def lag(self, now: int) -> int:
        """Return how long ago (microseconds) the oldest event was recorded; 0 without events."""
        return 0 if self.oldest is None else max(0, now - self.oldest)

    def add(self, more: Backlog) -> None:
        """Add the backlog of other positions, in the range or after it."""
        self.upto = max(self.upto, more.upto)
        self.count(more.events, more.bytes, more.oldest, more.newest, more.expires_first)
        self.expired += more.expired
        self.others += more.others
        self.exact &= more.exact

    def count(self, events: int, size: int, oldest: int | None, newest: int | None, expires_first: int | None) -> None:
        """Count further events that are to be sent."""
        self.events += events
        self.bytes += size
        self.oldest = _earlier(self.oldest, oldest)
        self.newest = max(self.newest or 0, newest or 0) or None
        self.expires_first = _earlier(self.expires_first, expires_first)

    def count_block(self, block: Block, records: int) -> None:
        """Count this many records of a block; its `bytes` only fit if these are all."""
        self.count(records, block.bytes, block.recorded_at, block.recorded_at, block.expires_first)


def _earlier(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def read_backlog(
    conn: sa.Connection, topic_id: int, wanted: PeerFilter, *, after: int, now: int, but: Collection[int] = ()
) -> Backlog:
    """Return the backlog of a peer whose cursor is at `after`, without the positions `but`."""
    return read_backlogs(conn, topic_id, [(wanted, after)], now=now, but=but)[0]


def read_backlogs(
    conn: sa.Connection, topic_id: int, asked: Sequence[tuple[PeerFilter, int]], *, now: int, but: Collection[int] = ()
) -> list[Backlog]:
    """Return the backlogs of several peers, in order; `asked`: the filter and the cursor's position of each."""
    last, excluded = read_head(conn).last, sorted(but)
    found = {at: Backlog(last) for at in range(len(asked))}
    behind = sorted((at for at, (_, after) in enumerate(asked) if after < last), key=lambda at: asked[at][1])
    while behind:
        counters = [_Counter(*asked[at], Backlog(last), now, excluded) for at in behind]
        counted = _count_ahead(conn, topic_id, counters, last)
        found |= zip(behind, counted, strict=False)
        behind = behind[len(counted) :]
    return list(found.values())


def _count_ahead(conn: sa.Connection, topic_id: int, counters: Sequence[_Counter], last: int) -> list[Backlog]:
    """Return the backlogs of the first of the counters, which are in the order of their cursors, up to the head `last`.

    These are all, unless the bound is exceeded: then those that began first.
    """
    starts, now, excluded = [counter.after for counter in counters], counters[0].now, counters[0].but
    own = all(counter.wanted.own for counter in counters)
    kinds: dict[_Kind, dict[bool | None, list[_Counter]]] = {}
    sums: defaultdict[tuple[int, _Kind], Backlog] = defaultdict(lambda: Backlog(0))
    looked = 0
    for block in outlines(conn, topic_id, starts[0], last, own=own):
        if looked >= COUNTED:
            counters = [counter for counter in counters if counter.after == starts[0]]
            _estimate(conn, counters, block, own=own)
            break
        whole, inside = bisect_left(starts, block.position), bisect_left(starts, block.last)
        singly = [*counters[whole:inside]]
        if _within(excluded, block.position, block.last):
            singly += counters[:whole]
        elif whole:
            kind = block.own, block.types, block.sources, block.paths, is_alive(block.expires_first, now)
            if kind not in kinds:
                kinds[kind] = _judge(block._replace(position=1, records=last), counters)
            sums[starts[whole - 1], kind].count_block(block, block.records)
            singly += [counter for counter in kinds[kind][None] if counter.after < block.position]
        looked += 1 if all([counter.take(block) for counter in singly]) else cost_of(block)
    for (start, kind), total in sums.items():
        for counter in kinds[kind][True]:
            if counter.after <= start:
                counter.found.add(total)
    return [counter.done(conn) for counter in counters]


def survey(conn: sa.Connection, topic_id: int, wanted: PeerFilter, *, after: int, upto: int, now: int) -> Backlog:
    """Count what a repair of `(after, upto]` would send, as far as one step may; the next begins after its `upto`.

    A step is short: it holds a connection, and mostly the interpreter lock, which deliveries wait for.
    """
    counter, left = _Counter(wanted, after, Backlog(upto), now, sized=True), SURVEYED
    for block in outlines(conn, topic_id, after, upto, portion=2 + SURVEYED // PASSED_OVER):
        if left <= 0:
            counter.found.upto = min(counter.found.upto, block.position - 1)
            break
        end = max(block.position, after + 1) + left - 1
        if counter.take(block):
            left -= PASSED_OVER
            continue
        left -= cost_of(block)
        if end < block.last:
            counter.found.upto = min(counter.found.upto, end)
    return counter.done(conn)


@dataclass(slots=True)
class _Counter:
    """Counts for one cursor: the records after its position `after` up to `found.upto`, without the positions `but`.

    `sized`: `found.bytes` must be exact.
    """

    wanted: PeerFilter
    after: int
    found: Backlog
    now: int
    but: Sequence[int] = ()
    sized: bool = False
    undecided: list[int] = field(default_factory=list)

    def take(self, block: Block) -> bool:
        """Count a block by its columns; return False if these are not sufficient: `done` decodes it."""
        first, last = max(block.position, self.after + 1), min(block.last, self.found.upto)
        meant, records = self.wanted.settles(block, self.now), last + 1 - first
        # A part of a block has fewer bytes than its column says, and may expire later.
        vague = records < block.records and (self.sized or block.expires_first is not None)
        if meant is False:
            self.found.others += records
        elif meant and not vague and not _within(self.but, first, last):
            self.found.count_block(block, records)
        else:
            self.undecided.append(block.position)
            return False
        return True

    def done(self, conn: sa.Connection) -> Backlog:
        """Count the records of undecided blocks one by one, and return the result."""
        for block, _ in blocks_at(conn, self.undecided):
            part = block.within(self.after, self.found.upto)
            for record in unpack(part) if part else ():
                if _within(self.but, record.position, record.position):
                    continue
                if not self.wanted.selection.matches(record):
                    self.found.others += 1
                elif reason := self.wanted.hindrance(record, self.now):
                    self.found.expired += reason == "expired"
                    self.found.others += reason != "expired"
                else:
                    self.found.count(1, record.size, record.recorded_at, record.recorded_at, record.expires_at)
        return self.found


def _judge(outline: Block, counters: Iterable[_Counter]) -> dict[bool | None, list[_Counter]]:
    """Return the counters for which all records of the outline are to be sent (True), none, or some (None: decode)."""
    judged: dict[bool | None, list[_Counter]] = {True: [], False: [], None: []}
    for counter in counters:
        judged[counter.wanted.settles(outline, counter.now)].append(counter)
    return judged


def _estimate(conn: sa.Connection, counters: Iterable[_Counter], first: Block, *, own: bool) -> None:
    """Count the records from a block on by their types alone.

    The database sums them up, which delays no writer.
    """
    rows = fetch(
        conn,
        "SELECT own, types, sum(records), min(recorded_at) FROM blocks WHERE topic_id = ? AND position >= ?"
        f"{' AND own = 1' if own else ''} GROUP BY own, types ORDER BY 3 DESC LIMIT ?",
        (first.topic_id, first.position, MOST_KINDS),
    )
    for counter in counters:
        last, found = counter.found.upto, counter.found
        whole = first._replace(records=last + 1 - first.position)
        kinds = [(whole._replace(own=entered, types=types), int(records), at) for entered, types, records, at in rows]
        meant = [(records, at) for kind, records, at in kinds if counter.wanted.selection.settles(kind) is not False]
        records = sum(records for records, _ in meant) - _within(counter.but, first.position, last)
        found.count(max(0, records), 0, min((at for _, at in meant), default=None), None, None)
        found.exact = False


def _within(positions: Sequence[int], first: int, last: int) -> int:
    """Return how many of the positions, which are in order, are from `first` to `last`."""
    return bisect_right(positions, last) - bisect_left(positions, first)


# --- refreshes ----------------------------------------------------------------------------------------------------


def read_stale(
    conn: sa.Connection, topic_id: int, wanted: PeerFilter, *, after: int, now: int, cursor: str = ""
) -> list[Record]:
    """Return the refreshes that wait for a peer whose cursor is at `after`, if it has passed the event's first record.

    The peer has these events with an earlier expiry, or refused them. With the name of the `cursor`, refreshes that
    repairs have delivered are left out.
    """
    sql = "SELECT position FROM event_ids WHERE topic_id = ? AND first_position <= ? AND position > ?"
    refreshed = [position for (position,) in fetch(conn, sql, (topic_id, after, after))]
    if not refreshed:
        return []
    carried = _carried_ahead(conn, cursor, after) if cursor else frozenset()
    found = (record for block, places in blocks_at(conn, refreshed) for record in pick(block, places))
    return [record for record in found if record.position not in carried and wanted.waits(record, now)]


def _carried_ahead(conn: sa.Connection, cursor: str, after: int) -> Collection[int]:
    """Return the positions that repairs delivered in batches that end after the cursor's position `after`."""
    sql = "SELECT picked, exceptions FROM batches WHERE cursor = ? AND picked <> '' AND upto > ?"
    found: set[int] = set()
    for picked, exceptions in fetch(conn, sql, (cursor, after)):
        found |= set(json.loads(picked)) - {place for place, _ in json.loads(exceptions or "[]")}
    return found
