"""Which seqs of a topic have a record, without reading lines where the topic's row is sufficient."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise

from eventd.log.core.blocks import Block
from eventd.log.core.scan import outlines, scan_seqs
from eventd.log.core.topic_row import TopicRow
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch

_EVERYWHERE = 1 << 62

Range = tuple[int, int]
"""Consecutive seqs: the first and the last."""


def held_blocks(conn: Connection, topic: TopicRow) -> Iterator[Block]:
    """Yield the blocks after the floor (`evicted_seq`), in order; without their lines if no line can be empty."""
    if topic.deleted or topic.is_queue:
        return scan_seqs(conn, topic.id, topic.evicted_seq, topic.head_seq)
    return outlines(conn, topic.id, 0, _EVERYWHERE)


def read_done(conn: Connection, topic: TopicRow, first: int, last: int) -> dict[int, int]:
    """Return the content bytes of finished jobs that are still stored, by seq, from `first` to `last` inclusive.

    Empty for a topic that is not a queue.
    """
    if not topic.is_queue:
        return {}
    sql = "SELECT seq, size FROM leases WHERE topic_id = ? AND seq >= ? AND seq <= ? AND free_at IS NULL"
    return dict(fetch(conn, sql, (topic.id, first, last)))


def empty_seqs(block: Block) -> list[int]:
    """Return the seqs of a block whose lines have no body: their records are removed."""
    if not block.has_empty:
        return []
    return [seq for seq, body in enumerate(block.bodies(), block.seq) if not body]


def live_ranges(held: Iterable[Block], removed: Collection[int], after: int, upto: int) -> list[Range]:
    """Return the ranges of seqs in `(after, upto]` with a record: all in the blocks but empty lines and `removed`."""
    ranges: list[Range] = []
    for block in held:
        inside = range(max(block.seq, after + 1), min(block.last_seq, upto) + 1)
        cuts = sorted({*empty_seqs(block), *removed}.intersection(inside))
        for before, behind in pairwise([inside.start - 1, *cuts, inside.stop]):
            if behind - before < 2:
                continue
            if ranges and ranges[-1][1] == before:
                ranges[-1] = (ranges[-1][0], behind - 1)
            else:
                ranges.append((before + 1, behind - 1))
    return ranges


def first_live(conn: Connection, topic: TopicRow, after: int) -> int:
    """Return the first seq after `after` (the floor or more) that has a record; the next to be assigned if none has."""
    if not topic.deleted:
        return after + 1
    for block in scan_seqs(conn, topic.id, after, topic.head_seq):
        done = read_done(conn, topic, block.seq, block.last_seq)
        for first, _ in live_ranges([block], done, after, block.last_seq):
            return first
    return topic.next_seq
