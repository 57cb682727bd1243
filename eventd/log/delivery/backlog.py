"""The backlog of a link: how many events wait for a peer, since when, and how many are only refreshes.

`read_backlogs` passes once over the blocks ahead of many cursors. It sums up blocks with equal columns: for most peers,
all of their records are to be sent, or none. For the other peers it takes each block singly, and decodes it if its own
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

from eventd.log.core.blocks import Block, unpack
from eventd.log.core.head import read_head
from eventd.log.core.pages import PASSED_OVER, cost_of
from eventd.log.core.scan import blocks_at, outlines, pick
from eventd.log.core.values import Record
from eventd.log.core.wire_page import PeerFilter
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch
from federation.event import is_alive

COUNTED = 20_000
"""Maximum number of blocks read from one cursor to the next, and of records decoded for each; the rest is estimated."""
MOST_KINDS = 1000
"""Maximum number of combinations of types in an estimate, the most frequent first."""
SURVEYED = 250
"""Maximum number of records that one step of a survey decodes, in a millisecond or two."""


@dataclass(slots=True)
class Backlog:
    """The events up to the position `upto` that are to be sent to a peer. Times in microseconds.

    `oldest` and `newest` are when the first and the last of them were recorded; `expires_first` is their earliest
    expiry, if known. If not `exact`, there may be fewer events, and some may be newer or expire sooner; of a
    subscription, whose backlog is one page, there may be more. Only a survey gives their exact `bytes`, and the numbers
    of other records: `expired` are too late, `others` are not meant for the peer or have been at it.
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
        """Add the backlog of other positions; the greater `upto` of the two remains."""
        self.upto = max(self.upto, more.upto)
        self.count(more.events, more.bytes, more.oldest, more.newest, more.expires_first)
        self.expired += more.expired
        self.others += more.others
        self.exact &= more.exact

    def count(self, events: int, size: int, oldest: int | None, newest: int | None, expires_first: int | None) -> None:
        """Add further events that are to be sent."""
        self.events += events
        self.bytes += size
        if oldest is not None and (self.oldest is None or oldest < self.oldest):
            self.oldest = oldest
        if newest and (self.newest is None or newest > self.newest):
            self.newest = newest
        if expires_first is not None and (self.expires_first is None or expires_first < self.expires_first):
            self.expires_first = expires_first

    def count_block(self, block: Block, records: int) -> None:
        """Count this number of `records` of a block, and the bytes of the whole block, which are too many unless all
        of its records count."""
        self.count(records, block.bytes, block.recorded_at, block.recorded_at, block.expires_first)


def read_backlog(
    conn: Connection, topic_id: int, wanted: PeerFilter, *, after: int, now: int, but: Collection[int] = ()
) -> Backlog:
    """Return the backlog of a peer whose cursor is at `after`, not counting the positions in `but`."""
    return read_backlogs(conn, topic_id, [(wanted, after)], now=now, but=but)[0]


def read_backlogs(
    conn: Connection, topic_id: int, asked: Sequence[tuple[PeerFilter, int]], *, now: int, but: Collection[int] = ()
) -> list[Backlog]:
    """Return the backlogs of several peers, in order; `asked`: the filter and the cursor's position of each."""
    last, excluded = read_head(conn).last, sorted(but)
    counters = [_Counter(wanted, after, Backlog(last), now, COUNTED, excluded) for wanted, after in asked]
    for own in (True, False):  # for most peers, the blocks of other nodes need not be read
        behind = [counter for counter in counters if counter.after < last and counter.wanted.own == own]
        behind.sort(key=lambda counter: counter.after)
        while behind:
            behind = behind[_count_ahead(conn, topic_id, behind, own=own) :]
    return [counter.found for counter in counters]


def _count_ahead(conn: Connection, topic_id: int, counters: Sequence[_Counter], *, own: bool) -> int:
    """Let the counters, in the order of their cursors, count up to the head; return how many of the first are done.

    Beyond a bound, these estimate; the others, which begin beyond it, are left to the next call. With `own`, all count
    only blocks whose records entered the log at this node.
    """
    first, starts = counters[0], [counter.after for counter in counters]
    kinds: dict[tuple[int, str, str, str, bool], _Kind] = {}
    begun = looked = 0
    for block in outlines(conn, topic_id, first.after, first.found.upto, own=own):
        before = begun
        if begun < len(counters):
            begun = bisect_left(starts, block.last)
        looked = looked + 1 if begun == before else 1
        if looked > COUNTED:
            _estimate(conn, counters[:begun], block, own=own)
            break
        # The cursors of the others are inside the block.
        whole = begun if block.position > starts[-1] else bisect_left(starts, block.position)
        singly = [*counters[whole:begun]]
        if first.but and _within(first.but, block.position, block.last):
            singly += counters[:whole]
        elif whole:
            columns = block.own, block.types, block.sources, block.paths, is_alive(block.expires_first, first.now)
            kind = kinds.get(columns)
            if kind is None:
                kind = kinds[columns] = _Kind(block._replace(position=1, records=first.found.upto), counters)
            kind.sums[starts[whole - 1]].count_block(block, block.records)
            if kind.unsure:
                singly += [counter for counter in kind.unsure if counter.after < block.position]
        for counter in singly:
            counter.take(block)
    else:
        begun = len(counters)
    for each in kinds.values():
        each.distribute()
    for counter in counters[:begun]:
        counter.decode(conn)
    return begun


def survey(conn: Connection, topic_id: int, wanted: PeerFilter, *, after: int, upto: int, now: int) -> Backlog:
    """Return what a repair of `(after, upto]` would send, exactly, as far as one step reads: to the result's `upto`.

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


@dataclass(slots=True)
class _Counter:
    """Counts for one cursor: the records after its position `after` up to `found.upto`, except those at positions in
    `but`.

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
        """Count a block by its columns, or estimate it; return False if it is left to `decode` instead."""
        first, last = max(block.position, self.after + 1), min(block.last, self.found.upto)
        records, excluded = last + 1 - first, _within(self.but, first, last)
        meant = self.wanted.settles(block, self.now)
        # A part of a block has fewer bytes than its column says, and may expire later.
        vague = records < block.records and (self.sized or block.expires_first is not None)
        if meant is False:
            self.found.others += records
        elif meant and not vague and not excluded:
            self.found.count_block(block, records)
        elif self.left > 0:
            self.undecided.append(block.position)
            self.left -= cost_of(block)
            return False
        else:
            self.estimate(records - excluded, block.recorded_at)
        return True

    def estimate(self, records: int, oldest: int | None) -> None:
        """Count records that may have to be sent, recorded from `oldest` on; the backlog is not `exact` any more."""
        self.found.count(records, 0, oldest, None, None)
        self.found.exact = False

    def decode(self, conn: Connection) -> None:
        """Count, record by record, the blocks whose columns do not say whether their records are to be sent."""
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


class _Kind:
    """Blocks with equal columns, those of the `outline`: their `sums`, by the position of the last cursor before them.

    The counters that are `unsure` must take each of these blocks.
    """

    def __init__(self, outline: Block, counters: Iterable[_Counter]) -> None:
        verdicts = [(counter, counter.wanted.settles(outline, counter.now)) for counter in counters]
        self.sums: defaultdict[int, Backlog] = defaultdict(lambda: Backlog(0))
        self.unsure = [counter for counter, meant in verdicts if meant is None]
        self._takers = [counter for counter, meant in verdicts if meant]

    def distribute(self) -> None:
        """For each peer that is to get all records of these blocks, add the sums after its cursor to its counter."""
        starts, total = sorted(self.sums), Backlog(0)
        for counter in reversed(self._takers):  # in the order of their cursors
            while starts and starts[-1] >= counter.after:
                total.add(self.sums[starts.pop()])
            counter.found.add(total)


def _estimate(conn: Connection, counters: Iterable[_Counter], first: Block, *, own: bool) -> None:
    """Add an estimate of the records from block `first` on, by their types alone, to each counter.

    The database sums them up, which delays no writer.
    """
    rows = fetch(
        conn,
        "SELECT own, types, sum(records), min(recorded_at) FROM blocks WHERE topic_id = ? AND position >= ?"
        f"{' AND own = 1' if own else ''} GROUP BY own, types ORDER BY 3 DESC LIMIT ?",
        (first.topic_id, first.position, MOST_KINDS),
    )
    for counter in counters:
        last = counter.found.upto
        whole = first._replace(records=last + 1 - first.position)
        kinds = [(whole._replace(own=entered, types=types), int(records), at) for entered, types, records, at in rows]
        meant = [(records, at) for kind, records, at in kinds if counter.wanted.selection.settles(kind) is not False]
        records = sum(records for records, _ in meant) - _within(counter.but, first.position, last)
        counter.estimate(max(0, records), min((at for _, at in meant), default=None))


def _within(positions: Sequence[int], first: int, last: int) -> int:
    """Return how many of the positions, which are in order, are from `first` to `last`."""
    return bisect_right(positions, last) - bisect_left(positions, first)


# --- refreshes ----------------------------------------------------------------------------------------------------


def read_stale(
    conn: Connection, topic_id: int, wanted: PeerFilter, *, after: int, now: int, cursor: str = ""
) -> list[Record]:
    """Return the refreshes that wait for a peer whose cursor, at `after`, has passed the event's first record.

    The peer usually has these events, with an earlier expiry. Only the latest record of an event counts. With the name
    of the `cursor`, refreshes that repairs have delivered are left out.
    """
    sql = "SELECT position FROM event_ids WHERE topic_id = ? AND first_position <= ? AND position > ?"
    refreshed = [position for (position,) in fetch(conn, sql, (topic_id, after, after))]
    if not refreshed:
        return []
    carried = _carried_ahead(conn, cursor, after) if cursor else frozenset()
    found = (record for block, places in blocks_at(conn, refreshed) for record in pick(block, places))
    return [record for record in found if record.position not in carried and wanted.waits(record, now)]


def _carried_ahead(conn: Connection, cursor: str, after: int) -> Collection[int]:
    """Return the positions that repairs delivered in batches that end after the cursor's position `after`."""
    sql = "SELECT picked, exceptions FROM batches WHERE cursor = ? AND picked <> '' AND upto > ?"
    found: set[int] = set()
    for picked, exceptions in fetch(conn, sql, (cursor, after)):
        found |= set(json.loads(picked)) - {place for place, _ in json.loads(exceptions or "[]")}
    return found
