"""What waits for a peer: how much, since when, and what of it is only a longer life of what the peer has."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import sqlalchemy as sa

from eventd.log.core.blocks import Block, unpack
from eventd.log.core.head import read_head
from eventd.log.core.pages import cost_of
from eventd.log.core.scan import blocks_at, outlines, outlines_back, pick
from eventd.log.core.wire_page import Wanted
from eventd.store.engine.database import fetch
from federation.event import is_alive

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


def read_lags(conn: sa.Connection, topic_id: int, asked: Sequence[tuple[Wanted, int]], *, now: int) -> list[Lag]:
    """What waits for each of several peers, given with where their cursors are. As `read_lag` tells it.

    Many stand at the end of the log, and those that have been away lie before it by the same blocks: these are read
    once for all. Only for a peer of which they do not tell enough is each looked at. None picks single positions, as a
    repair does.
    """
    last = read_head(conn).last
    lags = [Lag(0, None)] * len(asked)
    behind = sorted((at for at, (_, after) in enumerate(asked) if after < last), key=lambda at: -asked[at][1])
    if not behind:
        return lags
    kinds = _Kinds(now)
    blocks = outlines_back(conn, topic_id, asked[behind[-1]][1], last + 1)
    looked = islice(blocks, COUNTED)
    block = next(looked, None)
    for at in behind:
        wanted, after = asked[at]
        while block is not None and block.position > after:
            kinds.add(block, block.records)
            block = next(looked, None)
        told = kinds if block is None or block.last <= after else kinds.and_part(block, after)
        whole = block is not None or kinds.blocks < COUNTED
        lag = told.lag(wanted) if whole else None
        lags[at] = read_lag(conn, topic_id, wanted, after=after, now=now) if lag is None else lag
    return lags


class _Kinds:
    """Blocks by what they tell of themselves: how many records, and when the first was recorded."""

    def __init__(self, now: int) -> None:
        self.blocks = 0
        self._now = now
        self._found: dict[tuple[object, ...], tuple[Block, int, int]] = {}

    def add(self, block: Block, records: int) -> None:
        """Count so many records of a block."""
        key = (block.own, block.types, block.sources, block.paths, is_alive(block.expires_first, self._now))
        _, before, oldest = self._found.get(key, (block, 0, block.recorded_at))
        self._found[key] = block, before + records, min(oldest, block.recorded_at)
        self.blocks += 1

    def and_part(self, block: Block, after: int) -> _Kinds:
        """These, and what a block holds beyond a position."""
        more = _Kinds(self._now)
        more._found |= self._found
        more.add(block, block.last - after)
        return more

    def lag(self, wanted: Wanted) -> Lag | None:
        """What of it waits for a peer; None where that takes a look at single records."""
        meant = [(wanted.settles(block, self._now), records, oldest) for block, records, oldest in self._found.values()]
        if any(told is None for told, _, _ in meant):
            return None
        waits = [(records, oldest) for told, records, oldest in meant if told]
        return Lag(sum(records for records, _ in waits), min((oldest for _, oldest in waits), default=None))


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
