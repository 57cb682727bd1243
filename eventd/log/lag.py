"""What waits for a peer: how much, since when, and what of it is only a longer life of what the peer has."""

from __future__ import annotations

from typing import NamedTuple

import sqlalchemy as sa

from eventd.log.blocks import Block, unpack
from eventd.log.head import read_head
from eventd.log.lines import Wanted
from eventd.log.reading import cost_of
from eventd.log.scan import blocks_at, outlines, pick
from eventd.store.database import fetch

COUNTED = 20_000
"""Blocks that are looked at to count what waits for a peer, or records where blocks have to be taken apart."""
MOST_KINDS = 1000
"""Combinations of types by which the rest is counted, the commonest first."""


class Lag(NamedTuple):
    """What waits for a peer: records that are alive and meant for it. `oldest` is when the first was recorded."""

    events: int
    oldest: int | None


def read_lag(conn: sa.Connection, topic_id: int, wanted: Wanted, *, after: int, now: int) -> Lag:
    """What waits for a peer whose cursor is at `after`. Times in microseconds.

    Beyond COUNTED only the types are looked at: all that could be meant is counted there.
    """
    events, looked, last = 0, 0, read_head(conn).last
    times: list[int] = []
    undecided: list[int] = []
    for block in outlines(conn, topic_id, after, last, own=wanted.own):
        if looked >= COUNTED:
            further, recorded_at = _lag_by_types(conn, wanted, block, last)
            events += further
            times += [recorded_at] if recorded_at is not None else []
            break
        meant = wanted.settles(block, now)
        if meant is None:
            undecided.append(block.position)
            looked += cost_of(block)
        else:
            looked += 1
        if meant:
            events += block.last - max(after, block.position - 1)
            times.append(block.recorded_at)
    for block, _ in blocks_at(conn, undecided):
        part = block.within(after, block.last)
        count = sum(wanted.waits(record, now) for record in unpack(part)) if part else 0
        events += count
        times += [block.recorded_at] if count else []
    return Lag(events, min(times, default=None))


def _lag_by_types(conn: sa.Connection, wanted: Wanted, first: Block, last: int) -> Lag:
    """What could be meant for a peer from a block on: the database adds up, which holds up nobody else."""
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
    return Lag(sum(records for records, _ in meant), min((at for _, at in meant), default=None))


def count_stale(conn: sa.Connection, topic_id: int, wanted: Wanted, *, after: int, now: int) -> int:
    """Events that were passed on to a peer with a shorter life: their refresh lies beyond its cursor, at `after`."""
    sql = "SELECT position FROM event_ids WHERE topic_id = ? AND first_position <= ? AND position > ?"
    refreshed = [position for (position,) in fetch(conn, sql, (topic_id, after, after))]
    found = (record for block, places in blocks_at(conn, refreshed) for record in pick(block, places))
    return sum(wanted.waits(record, now) for record in found)
