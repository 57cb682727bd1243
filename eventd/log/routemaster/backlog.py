"""The backlog of each subscriber: how many events wait, and since when. Counted from the log.

The records after the subscribers' cursors are read once for all of them. A block whose tags name one topic is counted
without its lines; only of other blocks are the lines read. What is measured regularly must not read a long log each
time: then only the newest blocks are read, and what lies before them is not counted.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from eventd.log.core.blocks import Block, names
from eventd.log.core.head import read_head
from eventd.log.core.records import tag_text
from eventd.log.core.scan import outlines, read_block
from eventd.log.core.topic_row import find_topic
from eventd.log.cursors.cursors import read_cursors
from eventd.log.topics.topics import ROUTEMASTER
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch
from eventd.store.rows.callback_cursors import CALLBACK
from eventd.store.rows.routemaster import Interval, SubscriberRow, read_subscribers


class QueuedEvents(NamedTuple):
    """The number of events that wait, and when the oldest was recorded, in microseconds; None: none waits.

    Unless it is `exact`, older events wait besides.
    """

    queued: int = 0
    oldest: int | None = None
    exact: bool = True


class SubscriberState(NamedTuple):
    """A subscriber and its backlog."""

    row: SubscriberRow
    backlog: QueuedEvents


def read_states(conn: Connection, *, most_blocks: int | None = None) -> list[SubscriberState]:
    """Return all subscribers, ordered by identity, with the backlog of each.

    `most_blocks`: read only so many of the newest blocks of the log; None: all that hold waiting events.
    """
    subscribers = read_subscribers(conn)
    positions = {cursor.name: cursor.position for cursor in read_cursors(conn, CALLBACK)}
    after = {row.identity: positions[row.cursor] for row in subscribers if row.cursor in positions}
    waiting = [row for row in subscribers if row.identity in after]
    topic, head = find_topic(conn, ROUTEMASTER), read_head(conn).last
    topics: dict[str, _Positions] = {}
    first = 0
    if topic is not None and waiting:
        least = 0 if most_blocks is None else _begin_of_newest(conn, topic.id, most_blocks)
        first = max(topic.evicted_position, least, min(after[row.identity] for row in waiting))
        topics = _read_positions(conn, topic.id, first, head, {name for row in waiting for name in _topics_of(row)})
    counted = [_count(topics, row.intervals, max(first, after.get(row.identity, head))) for row in subscribers]
    evicted = 0 if topic is None else topic.evicted_position
    return [
        SubscriberState(row, found._replace(exact=max(evicted, after.get(row.identity, head)) >= first))
        for row, found in zip(subscribers, counted, strict=True)
    ]


def _begin_of_newest(conn: Connection, topic_id: int, blocks: int) -> int:
    """Return the position before the newest `blocks` blocks of a topic; 0 if the topic has no earlier block."""
    sql = "SELECT position FROM blocks WHERE topic_id = ? ORDER BY position DESC LIMIT 1 OFFSET ?"
    rows = fetch(conn, sql, (topic_id, blocks - 1))
    return int(rows[0][0]) - 1 if rows else 0


def _topics_of(row: SubscriberRow) -> Iterator[str]:
    return (interval.topic for interval in row.intervals)


class _Positions:
    """The positions of the events of one topic, in order, as runs of consecutive ones."""

    def __init__(self) -> None:
        self._firsts = array("q")
        self._lengths = array("q")
        self._counts = array("q")  # events before each run
        self._times = array("q")
        self._total = 0

    def add(self, position: int, records: int, recorded_at: int) -> None:
        """Add a run that follows all others."""
        self._firsts.append(position)
        self._lengths.append(records)
        self._counts.append(self._total)
        self._times.append(recorded_at)
        self._total += records

    def count_upto(self, position: int) -> int:
        """Return the number of events up to a position."""
        at = bisect_right(self._firsts, position) - 1
        if at < 0:
            return 0
        return self._counts[at] + min(self._lengths[at], position - self._firsts[at] + 1)

    def time_after(self, position: int) -> int:
        """Return when the first event after a position was recorded; there must be one."""
        at = bisect_right(self._counts, self.count_upto(position)) - 1
        return self._times[at]


def _read_positions(
    conn: Connection, topic_id: int, after: int, until: int, wanted: Iterable[str]
) -> dict[str, _Positions]:
    found = {topic: _Positions() for topic in sorted(wanted)}
    for block in outlines(conn, topic_id, after, until):
        tags = names(block.types)
        topics = {tag.partition(".")[0] for tag in tags} if tags is not None else set[str]()
        if len(topics) == 1:
            (topic,) = topics
            skipped = max(0, after + 1 - block.position)
            if topic in found:
                found[topic].add(block.position + skipped, block.records - skipped, block.recorded_at)
        elif tags is None or any(topic in found for topic in topics):
            _add_lines(found, read_block(conn, block.position), after)
    return found


def _add_lines(found: dict[str, _Positions], block: Block, after: int) -> None:
    for position, body in enumerate(block.bodies(), block.position):
        topic = tag_text(body)[1:].partition(".")[0] if body and position > after else ""
        if topic in found:
            found[topic].add(position, 1, block.recorded_at)


def _count(topics: dict[str, _Positions], intervals: Iterable[Interval], cursor: int) -> QueuedEvents:
    queued, oldest = 0, list[int]()
    for topic, after, upto in intervals:
        start, positions = max(after, cursor), topics.get(topic)
        if positions is None:  # nothing was read
            continue
        count = positions.count_upto(upto if upto is not None else 2**62) - positions.count_upto(start)
        if count > 0:
            queued += count
            oldest.append(positions.time_after(start))
    return QueuedEvents(queued, min(oldest, default=None))
