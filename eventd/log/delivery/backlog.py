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
from itertools import pairwise

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
"""Maximum number of blocks read from one cursor to the next, and of records decoded for one cursor: beyond, records are
estimated."""
MOST_KINDS = 1000
"""Maximum number of combinations of types in an estimate, the most frequent first."""
SURVEYED = 250
"""Maximum number of records that one step of a survey decodes, in a millisecond or two."""


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

    def count(self, events: int, size: int, oldest: int | None, newest: int | None, expires_first: int | None) -> None:
        """Count further events that are to be sent."""
        self.events += events
        self.bytes += size
        self.oldest = _earlier(self.oldest, oldest)
        self.newest = max(self.newest or 0, newest or 0) or None
        self.expires_first = _earlier(self.expires_first, expires_first)


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
    counters = [_Counter(wanted, after, Backlog(last), now, COUNTED, excluded) for wanted, after in asked]
    behind = [counter for counter in counters if counter.after < last]
    own = all(counter.wanted.own for counter in behind)
    kinds: dict[_Kind, dict[bool | None, list[_Counter]]] = {}
    sums: defaultdict[tuple[int, _Kind], Backlog] = defaultdict(lambda: Backlog(0))
    for start, end in pairwise([*sorted({counter.after for counter in behind}), last]):
        reached = [counter for counter in behind if counter.after <= start]
        for number, block in enumerate(outlines(conn, topic_id, start, end, own=own)):
            if number == COUNTED:
                _estimate(conn, reached, block, end, own=own)
                break
            if block.position <= start:  # the cursors before have counted all of it
                singly = [counter for counter in reached if counter.after == start]
            elif _within(excluded, block.position, block.last):
                singly = reached
            else:
                kind = block.own, block.types, block.sources, block.paths, is_alive(block.expires_first, now)
                if kind not in kinds:
                    kinds[kind] = _judge(block._replace(position=1, records=last), behind)
                sums[start, kind].count(*_numbers(block))
                singly = [counter for counter in kinds[kind][None] if counter.after <= start]
            for counter in singly:
                counter.take(block)
    for (start, kind), total in sums.items():
        for counter in kinds[kind][True]:
            if counter.after <= start:
                counter.found.add(total)
    for counter in behind:
        counter.decode(conn)
    return [counter.found for counter in counters]


def survey(conn: sa.Connection, topic_id: int, wanted: PeerFilter, *, after: int, upto: int, now: int) -> Backlog:
    """Count what a repair of `(after, upto]` would send, as far as one step may; the next begins after its `upto`.

    A step is short: it holds a connection, and mostly the interpreter lock, which deliveries wait for.
    """
    counter = _Counter(wanted, after, Backlog(upto), now, SURVEYED, sized=True)
    for block in outlines(conn, topic_id, after, upto, portion=2 + SURVEYED // PASSED_OVER):
        if counter.left <= 0:
            counter.found.upto = min(counter.found.upto, block.position - 1)
            break
        end = max(block.position, after + 1) + counter.left - 1
        if counter.take(block):
            counter.left -= PASSED_OVER
        elif end < block.last:
            counter.found.upto = min(counter.found.upto, end)
    counter.decode(conn)
    return counter.found


# --- the counter of one cursor ------------------------------------------------------------------------------------

_Kind = tuple[int, str, str, str, bool]
"""The columns by which a block is judged."""


@dataclass(slots=True)
class _Counter:
    """Counts for one cursor: the records after its position `after` up to `found.upto`, without the positions `but`.

    `left`: how many records may still be decoded. `sized`: `found.bytes` must be exact.
    """

    wanted: PeerFilter
    after: int
    found: Backlog
    now: int
    left: int
    but: Sequence[int] = ()
    sized: bool = False
    undecided: list[int] = field(default_factory=list)

    def take(self, block: Block) -> bool:
        """Count a block by its columns, or an estimate of it; return False if it is left to `decode` instead."""
        first, last = max(block.position, self.after + 1), min(block.last, self.found.upto)
        records, excluded = last + 1 - first, _within(self.but, first, last)
        vague = records < block.records and (self.sized or block.expires_first is not None)  # true only of the whole
        meant = self.wanted.settles(block, self.now)
        if meant is False:
            self.found.others += records
        elif meant and not (vague or excluded):
            self.found.count(records, *_numbers(block)[1:])
        elif self.left > 0:
            self.undecided.append(block.position)
            self.left -= cost_of(block)
            return False
        else:
            self.estimate(records - excluded, block.recorded_at)
        return True

    def estimate(self, records: int, oldest: int | None) -> None:
        """Count records of which some may not be meant for the peer, or have expired."""
        self.found.count(records, 0, oldest, None, None)
        self.found.exact = False

    def decode(self, conn: sa.Connection) -> None:
        """Count, one by one, the records of blocks whose columns were not sufficient."""
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


def _judge(outline: Block, counters: Iterable[_Counter]) -> dict[bool | None, list[_Counter]]:
    """Return the counters for which all records of an outline are to be sent, none (False), or unknown (None)."""
    judged: dict[bool | None, list[_Counter]] = {True: [], False: [], None: []}
    for counter in counters:
        judged[counter.wanted.settles(outline, counter.now)].append(counter)
    return judged


def _estimate(conn: sa.Connection, counters: Iterable[_Counter], first: Block, last: int, *, own: bool) -> None:
    """Count the records of the blocks from `first` to the position `last` by their types alone.

    The database sums them up, which delays no writer.
    """
    rows = fetch(
        conn,
        "SELECT own, types, sum(records), min(recorded_at) FROM blocks WHERE topic_id = ? AND position BETWEEN ? AND ?"
        f"{' AND own = 1' if own else ''} GROUP BY own, types ORDER BY 3 DESC LIMIT ?",
        (first.topic_id, first.position, last, MOST_KINDS),
    )
    whole = first._replace(records=last + 1 - first.position)
    kinds = [(whole._replace(own=entered, types=types), int(records), at) for entered, types, records, at in rows]
    for counter in counters:
        meant = [(records, at) for kind, records, at in kinds if counter.wanted.selection.settles(kind) is not False]
        records = sum(records for records, _ in meant) - _within(counter.but, first.position, last)
        counter.estimate(max(0, records), min((at for _, at in meant), default=None))


def _numbers(block: Block) -> tuple[int, int, int, int, int | None]:
    return block.records, block.bytes, block.recorded_at, block.recorded_at, block.expires_first


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
