"""When records were first acknowledged, and what of the rest expires first: for those who judge how a link is doing."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import sqlalchemy as sa

from eventd.log.core.blocks import unpack
from eventd.log.core.head import read_head
from eventd.log.core.pages import cost_of
from eventd.log.core.scan import blocks_at, outlines, pick
from eventd.log.core.values import Record
from eventd.log.core.wire_page import Wanted
from eventd.log.cursors.cursors import Cursor
from eventd.log.delivery.lag import COUNTED, read_lag
from eventd.store.engine.database import fetch


class Passage(NamedTuple):
    """A range `(after, upto]` that a peer acknowledged in the ordinary course, except for the positions `left_out`."""

    after: int
    upto: int
    acked_at: int
    left_out: frozenset[int]


def read_passages(conn: sa.Connection, cursor: str, first: int, last: int) -> list[Passage]:
    """The ranges that touch the positions `first` to `last`, in the order of their acknowledgement; no repairs."""
    rows = fetch(
        conn,
        "SELECT after, upto, acked_at, exceptions FROM batches WHERE cursor = ? AND picked = '' AND status <> 0"
        " AND upto >= ? AND after < ? ORDER BY id",
        (cursor, first, last),
    )
    return [
        Passage(after, upto, at, frozenset(place for place, _ in json.loads(out or "[]")))
        for after, upto, at, out in rows
    ]


def first_acknowledged(passages: Iterable[Passage], positions: Sequence[int]) -> dict[int, int]:
    """When each of the positions (in order) was acknowledged for the first time, as far as a range brought it.

    A range that is sent again, because the peer turned out to have less, does not make its records late.
    """
    found: dict[int, int] = {}
    waiting = list(positions)
    for passage in passages:
        start, stop = bisect_right(waiting, passage.after), bisect_right(waiting, passage.upto)
        brought = [place for place in waiting[start:stop] if place not in passage.left_out]
        found |= dict.fromkeys(brought, passage.acked_at)
        waiting[start:stop] = [place for place in waiting[start:stop] if place in passage.left_out]
    return found


def oldest_proof(conn: sa.Connection, cursor: str) -> int | None:
    """When the earliest range that is still remembered was acknowledged; None when none is.

    What was acknowledged later than that has not been forgotten: it was there, or it never was.
    """
    sql = "SELECT acked_at FROM batches WHERE cursor = ? ORDER BY upto LIMIT 1"
    rows = fetch(conn, sql, (cursor,))
    return int(rows[0][0]) if rows else None


def stale_places(conn: sa.Connection, cursor: Cursor, wanted: Wanted, now: int) -> list[int]:
    """Where the refreshes are of events that the peer has with a shorter life, as far as no repair brought them."""
    return [record.position for record in read_stale(conn, cursor, wanted, now)]


def read_stale(conn: sa.Connection, cursor: Cursor, wanted: Wanted, now: int) -> list[Record]:
    """These refreshes themselves."""
    sql = "SELECT position FROM event_ids WHERE topic_id = ? AND first_position <= ? AND position > ?"
    refreshed = [int(row[0]) for row in fetch(conn, sql, (cursor.topic_id, cursor.position, cursor.position))]
    if not refreshed:
        return []
    carried = _carried_ahead(conn, cursor)
    found = (
        r for block, places in blocks_at(conn, refreshed) for r in pick(block, places) if r.position not in carried
    )
    return [record for record in found if wanted.waits(record, now)]


def _carried_ahead(conn: sa.Connection, cursor: Cursor) -> set[int]:
    """What repairs delivered before the cursor came to it."""
    sql = "SELECT picked, exceptions FROM batches WHERE cursor = ? AND picked <> '' AND upto > ?"
    found: set[int] = set()
    for picked, exceptions in fetch(conn, sql, (cursor.name, cursor.position)):
        found |= set(json.loads(picked)) - {place for place, _ in json.loads(exceptions or "[]")}
    return found


class Ahead(NamedTuple):
    """What waits for a peer: how many events, when the first of them was recorded, and which expiry comes first.

    Where `in_full` is False, there may be fewer than `events`, and some may expire sooner.
    """

    events: int
    oldest: int | None
    expires_first: int | None
    in_full: bool


def survey_ahead(
    conn: sa.Connection, topic_id: int, wanted: Wanted, *, after: int, now: int, but: Collection[int] = ()
) -> Ahead:
    """What waits for a peer whose cursor is at `after`, without the positions `but`. Times in microseconds."""
    found = _Tally()
    left_out = sorted(but)
    looked = 0
    undecided: list[int] = []
    for block in outlines(conn, topic_id, after, read_head(conn).last, own=wanted.own):
        if looked >= COUNTED:
            lag = read_lag(conn, topic_id, wanted, after=after, now=now)
            found.take_apart(conn, undecided, wanted, after, now, but)
            return Ahead(max(0, lag.events - len(but)), lag.oldest, found.expires_first, False)
        looked += 1
        meant = wanted.settles(block, now)
        if meant and bisect_right(left_out, block.last) > bisect_left(left_out, block.position):
            meant = None
        # What expires first in a block that the cursor is in the middle of may lie behind it.
        if meant and (block.position > after or block.expires_first is None):
            found.add(block.last - max(after, block.position - 1), block.recorded_at, block.expires_first)
        elif meant is not False:
            undecided.append(block.position)
            looked += cost_of(block)
    found.take_apart(conn, undecided, wanted, after, now, but)
    return Ahead(found.events, found.oldest, found.expires_first, True)


@dataclass(slots=True)
class _Tally:
    events: int = 0
    oldest: int | None = None
    expires_first: int | None = None

    def add(self, events: int, recorded_at: int, expires_first: int | None) -> None:
        self.events += events
        self.oldest = _earlier(self.oldest, recorded_at)
        self.expires_first = _earlier(self.expires_first, expires_first)

    def take_apart(
        self,
        conn: sa.Connection,
        places: Sequence[int],
        wanted: Wanted,
        after: int,
        now: int,
        but: Collection[int],
    ) -> None:
        """Add what waits in the blocks at these places, record by record."""
        for block, _ in blocks_at(conn, places):
            part = block.within(after, block.last)
            for record in unpack(part) if part else ():
                if record.position not in but and wanted.waits(record, now):
                    self.add(1, record.recorded_at, record.expires_at)


def _earlier(one: int | None, other: int | None) -> int | None:
    return min((time for time in (one, other) if time is not None), default=None)
