"""Finds seqs of a topic without a stored record, though retention has not removed them: the database was damaged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eventd.log.core.head import read_head
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch
from eventd.store.ids.ranges import count_spans

BLOCKS_PER_STEP = 2000
"""How many blocks a step reads, without their lines: a few milliseconds."""


class MissingRecords(NamedTuple):
    """The seqs `first` to `last` without a record, whose positions were in (after, before)."""

    first: int
    last: int
    after: int
    before: int

    @property
    def records(self) -> int:
        return self.last - self.first + 1


class MissingStep(NamedTuple):
    """The ranges that a step found, the newest first, and the position before which the next step continues.

    The position is None at the beginning of the topic.
    """

    ranges: list[MissingRecords]
    before: int | None


def find_missing(conn: Connection, topic_id: int, before: int | None = None) -> MissingStep:
    """Return which seqs before a position (None: all) are missing, as far back as one step reads.

    A later step begins at a block of the step before it. Only for topics of groups: in others, a block may lack records
    that were deleted.
    """
    topic = fetch(conn, "SELECT evicted_seq, evicted_position, next_seq FROM topics WHERE id = ?", (topic_id,))
    if not topic:
        return MissingStep([], None)
    [(floor, floor_position, end)] = topic
    place = read_head(conn).last + 1
    sql = "SELECT seq, records, position FROM blocks WHERE topic_id = ? AND position < ? ORDER BY position DESC LIMIT ?"
    rows = fetch(conn, sql, (topic_id, place if before is None else before + 1, BLOCKS_PER_STEP))
    ranges = []
    for seq, records, position in rows:
        if before is None and seq + records < end:
            ranges.append(MissingRecords(seq + records, end - 1, position + records - 1, place))
        end, place, before = seq, position, None
    if len(rows) == BLOCKS_PER_STEP:
        return MissingStep(ranges, place)
    if end > floor + 1:
        ranges.append(MissingRecords(floor + 1, end - 1, floor_position, place))
    return MissingStep(ranges, None)


def count_unstored(conn: Connection, topic_id: int, lost: Sequence[MissingRecords]) -> int:
    """Return how many events of these missing ranges were not stored again since. Reads all ids of the topic.

    `lost` are all the ranges of successive steps of `find_missing`.
    """
    if not lost:
        return 0
    # An id whose position is in no block is that of a lost event: its block would be the last one that begins before.
    sql = (
        "SELECT count(*) FROM event_ids AS known"
        " WHERE topic_id = ? AND gone_at IS NULL AND position > ? AND position < ?"
        " AND NOT coalesce((SELECT blocks.position + blocks.records > known.position FROM blocks"
        " WHERE blocks.topic_id = known.topic_id AND blocks.position <= known.position"
        " ORDER BY blocks.position DESC LIMIT 1), FALSE)"
    )
    within = min(each.after for each in lost), max(each.before for each in lost)
    in_rows = int(fetch(conn, sql, (topic_id, *within))[0][0])
    return in_rows + count_spans(conn, topic_id, [(each.after + 1, each.before - 1) for each in lost])
