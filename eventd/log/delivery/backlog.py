"""The backlog of a link: how many events wait for a peer, since when, and how many are only refreshes.

Blocks are counted by their columns; only blocks whose columns are not sufficient are read and decoded.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import sqlalchemy as sa

from eventd.log.core.blocks import Block, unpack
from eventd.log.core.head import read_head
from eventd.log.core.pages import PASSED_OVER, cost_of
from eventd.log.core.scan import blocks_at, outlines, outlines_back, pick, scan
from eventd.log.core.values import Record
from eventd.log.core.wire_page import PeerFilter
from eventd.store.engine.database import fetch
from federation.event import is_alive

COUNTED = 20_000
"""Blocks that are counted one by one, or records where blocks must be decoded. The database sums up those beyond."""
MOST_KINDS = 1000
"""Combinations of types in which the records beyond `COUNTED` are summed up, the most frequent first."""
SURVEYED = 250
"""Records that one step of a survey decodes at most: a millisecond or two."""


class Backlog(NamedTuple):
    """Events after a cursor that wait for a peer and have not expired: how many, and when the first was recorded.

    `expires_first` is their earliest expiry. If the backlog is not `exact`, there may be fewer events, and some may
    expire sooner. Times in microseconds.
    """

    events: int
    oldest: int | None
    expires_first: int | None = None
    exact: bool = True


def read_backlog(
    conn: sa.Connection, topic_id: int, wanted: PeerFilter, *, after: int, now: int, but: Collection[int] = ()
) -> Backlog:
    """Return the backlog of a peer whose cursor is at `after`, without the positions `but`."""
    counted, undecided, excluded = _BacklogCounter(wanted, now), list[int](), sorted(but)
    last, looked = read_head(conn).last, 0
    estimate: Backlog | None = None
    estimated_from = 0
    for block in outlines(conn, topic_id, after, last, own=wanted.own):
        if looked >= COUNTED:
            estimate, estimated_from = _estimate(conn, wanted, block, last), block.position
            break
        meant = wanted.settles(block, now)
        begun = block.position <= after and block.expires_first is not None  # that one may be before the cursor
        if meant and (begun or bisect_right(excluded, block.last) > bisect_left(excluded, block.position)):
            meant = None
        if meant is None:
            undecided.append(block.position)
            looked += cost_of(block)
        else:
            looked += 1
            counted.add_block(block, meant, block.last - max(after, block.position - 1))
    for block, _ in blocks_at(conn, undecided):
        if part := block.within(after, block.last):
            counted.add_records(record for record in unpack(part) if record.position not in but)
    if estimate is None:
        return Backlog(counted.events, counted.oldest, counted.expires_first)
    beyond = len(excluded) - bisect_left(excluded, estimated_from)  # those before it are left out of the count
    events = counted.events + max(0, estimate.events - beyond)
    return Backlog(events, _earlier(counted.oldest, estimate.oldest), counted.expires_first, exact=False)


def _estimate(conn: sa.Connection, wanted: PeerFilter, first: Block, last: int) -> Backlog:
    """Return everything that could be meant for a peer from a block on, by types: the database sums up, which delays no
    writer."""
    own = "AND own = 1" if wanted.own else ""
    rows = fetch(
        conn,
        f"SELECT own, types, sum(records), min(recorded_at) FROM blocks WHERE topic_id = ? AND position >= ? {own}"
        " GROUP BY own, types ORDER BY 3 DESC LIMIT ?",
        (first.topic_id, first.position, MOST_KINDS),
    )
    whole = first._replace(records=last + 1 - first.position)
    kinds = [(whole._replace(own=entered, types=types), int(records), at) for entered, types, records, at in rows]
    meant = [(records, at) for kind, records, at in kinds if wanted.selection.settles(kind) is not False]
    return Backlog(sum(records for records, _ in meant), min((at for _, at in meant), default=None))


@dataclass(slots=True)
class _BacklogCounter:
    """The count for one peer so far."""

    wanted: PeerFilter
    now: int
    events: int = 0
    bytes: int = 0
    oldest: int | None = None
    newest: int | None = None
    expires_first: int | None = None
    expired: int = 0
    others: int = 0

    def add_block(self, block: Block, meant: bool, records: int) -> None:
        """Count `records` records of a block, all of which are to be sent (`meant`) or none."""
        if meant:
            self._add(records, block.bytes, block.recorded_at, block.expires_first)
        else:
            self.others += records

    def add_records(self, records: Iterable[Record]) -> None:
        """Count records one by one."""
        for record in records:
            if not self.wanted.selection.matches(record):
                self.others += 1
            elif not (reason := self.wanted.hindrance(record, self.now)):
                self._add(1, record.size, record.recorded_at, record.expires_at)
            elif reason == "expired":
                self.expired += 1
            else:
                self.others += 1

    def _add(self, events: int, size: int, recorded_at: int, expires_first: int | None) -> None:
        self.events += events
        self.bytes += size
        self.oldest = _earlier(self.oldest, recorded_at)
        self.newest = recorded_at if self.newest is None else max(self.newest, recorded_at)
        self.expires_first = _earlier(self.expires_first, expires_first)


def _earlier(one: int | None, other: int | None) -> int | None:
    return min((time for time in (one, other) if time is not None), default=None)


# --- many links ---------------------------------------------------------------------------------------------------


def read_backlogs(
    conn: sa.Connection, topic_id: int, asked: Sequence[tuple[PeerFilter, int]], *, now: int
) -> list[Backlog]:
    """Return the backlogs of several peers, in order; `asked`: the filter and the cursor's position of each.

    Most have no `expires_first`.

    Most cursors are at the end of the log, and the others have the same blocks ahead: these are read once for all.
    `read_backlog` is called only for a peer for which the columns of these blocks are not sufficient. No selection may
    name single positions, as a repair's does.
    """
    last = read_head(conn).last
    backlogs = [Backlog(0, None)] * len(asked)
    behind = sorted((at for at, (_, after) in enumerate(asked) if after < last), key=lambda at: -asked[at][1])
    if not behind:
        return backlogs
    kinds = _Kinds(now)
    blocks = outlines_back(conn, topic_id, asked[behind[-1]][1], last + 1)
    looked = islice(blocks, COUNTED)
    block = next(looked, None)
    for at in behind:
        wanted, after = asked[at]
        while block is not None and block.position > after:
            kinds.add(block, block.records)
            block = next(looked, None)
        ahead = kinds if block is None or block.last <= after else kinds.and_part(block, after)
        whole = block is not None or kinds.blocks < COUNTED
        found = ahead.backlog(wanted) if whole else None
        backlogs[at] = read_backlog(conn, topic_id, wanted, after=after, now=now) if found is None else found
    return backlogs


class _Kinds:
    """Blocks grouped by their columns: how many records, and when the first was recorded."""

    def __init__(self, now: int) -> None:
        self.blocks = 0
        self._now = now
        self._found: dict[tuple[object, ...], tuple[Block, int, int]] = {}

    def add(self, block: Block, records: int) -> None:
        """Count records of a block."""
        key = (block.own, block.types, block.sources, block.paths, is_alive(block.expires_first, self._now))
        _, before, oldest = self._found.get(key, (block, 0, block.recorded_at))
        self._found[key] = block, before + records, min(oldest, block.recorded_at)
        self.blocks += 1

    def and_part(self, block: Block, after: int) -> _Kinds:
        """Return a copy of these with the records of a block after a position added."""
        more = _Kinds(self._now)
        more._found |= self._found
        more.add(block, block.last - after)
        return more

    def backlog(self, wanted: PeerFilter) -> Backlog | None:
        """Return the backlog of a peer; None if single records must be checked."""
        meant = [(wanted.settles(block, self._now), records, oldest) for block, records, oldest in self._found.values()]
        if any(told is None for told, _, _ in meant):
            return None
        waits = [(records, oldest) for told, records, oldest in meant if told]
        return Backlog(sum(records for records, _ in waits), min((oldest for _, oldest in waits), default=None))


# --- a range ------------------------------------------------------------------------------------------------------


class Survey(NamedTuple):
    """The records that a repair of a range would send. Times in microseconds, sizes in bytes.

    `events` would be sent; `expired` are too late, `others` are not meant for the peer. Everything up to the position
    `upto` was read.
    """

    upto: int
    events: int = 0
    bytes: int = 0
    oldest: int | None = None
    newest: int | None = None
    expired: int = 0
    others: int = 0

    def plus(self, further: Survey) -> Survey:
        """Return the sum of two adjacent surveys."""
        times = [time for time in (self.oldest, self.newest, further.oldest, further.newest) if time is not None]
        return Survey(
            further.upto,
            self.events + further.events,
            self.bytes + further.bytes,
            min(times, default=None),
            max(times, default=None),
            self.expired + further.expired,
            self.others + further.others,
        )


def survey(conn: sa.Connection, topic_id: int, wanted: PeerFilter, *, after: int, upto: int, now: int) -> Survey:
    """Survey the records in `(after, upto]` in one step; call it again after the result's `upto`.

    A step is short: it holds a connection, and mostly the interpreter lock, which deliveries wait for.
    """
    counted, cost, at = _BacklogCounter(wanted, now), 0, upto
    for block in scan(conn, topic_id, after, upto):
        meant = wanted.settles(block, now)
        if meant is None:
            part = block.within(after, block.position + SURVEYED - cost - 1) or block
            counted.add_records(unpack(part))
            cost += cost_of(part)
        else:
            part = block
            counted.add_block(block, meant, block.records)
            cost += PASSED_OVER
        if cost >= SURVEYED:
            at = part.last
            break
    found = counted
    return Survey(at, found.events, found.bytes, found.oldest, found.newest, found.expired, found.others)


# --- refreshes ----------------------------------------------------------------------------------------------------


def read_stale(
    conn: sa.Connection, topic_id: int, wanted: PeerFilter, *, after: int, now: int, cursor: str = ""
) -> list[Record]:
    """Return the refreshes that wait for a peer whose cursor is at `after`, of events whose
    first record the cursor has passed: the peer has them with an earlier expiry, or refused them.

    With the name of the `cursor`, those that its repairs have delivered are left out.
    """
    sql = "SELECT position FROM event_ids WHERE topic_id = ? AND first_position <= ? AND position > ?"
    refreshed = [position for (position,) in fetch(conn, sql, (topic_id, after, after))]
    if not refreshed:
        return []
    carried = _carried_ahead(conn, cursor, after) if cursor else frozenset()
    found = (record for block, places in blocks_at(conn, refreshed) for record in pick(block, places))
    return [record for record in found if record.position not in carried and wanted.waits(record, now)]


def _carried_ahead(conn: sa.Connection, cursor: str, after: int) -> Collection[int]:
    """Return the positions that repairs delivered before the cursor reached them."""
    sql = "SELECT picked, exceptions FROM batches WHERE cursor = ? AND picked <> '' AND upto > ?"
    found: set[int] = set()
    for picked, exceptions in fetch(conn, sql, (cursor, after)):
        found |= set(json.loads(picked)) - {place for place, _ in json.loads(exceptions or "[]")}
    return found
