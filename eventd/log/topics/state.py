"""The state of topics: of one, of many ordered by name, and the totals of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eventd.log.core.topic_row import TopicRow, find_topic, list_topics
from eventd.log.topics.limits import TopicSize, read_size
from eventd.runtime.clock import Moment
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch
from eventd.store.rows.leases import JobCounts, count_jobs


class TopicState(NamedTuple):
    """A topic, its size at some time, and the counts of its jobs if it is a queue."""

    line: TopicRow
    standing: TopicSize
    jobs: JobCounts | None


def read_state(conn: Connection, name: str, at: Moment) -> TopicState | None:
    """Return the state of a topic; None: no topic has this name."""
    line = find_topic(conn, name)
    return None if line is None else _state(conn, line, at)


def list_states(
    conn: Connection, *, prefixes: Sequence[str], prefix: str, after: str, limit: int, at: Moment
) -> tuple[list[TopicState], bool]:
    """Return the states of at most `limit` topics, of groups and of records, and whether there are more.

    They are ordered by the bytes of their names, after the name `after`; for `prefixes` and `prefix` see `list_topics`.
    """
    lines = list_topics(conn, prefixes=prefixes, prefix=prefix, after=after, limit=limit)
    return [_state(conn, line, at) for line in lines[:limit]], len(lines) > limit


def _state(conn: Connection, line: TopicRow, at: Moment) -> TopicState:
    standing = read_size(conn, line, at.wall)
    return TopicState(line, standing, count_jobs(conn, line.id, standing.count, at.steady) if line.is_queue else None)


class TopicFigures(NamedTuple):
    """The totals of all topics of records: their number by durability, and their stored records and bytes.

    Also the numbers of routers, of queues, and of leased jobs; a lease that has ended counts until the queue is used.
    """

    by_class: dict[str, int]
    records: int
    bytes: int
    routers: int
    queues: int
    leases: int


def read_figures(conn: Connection) -> TopicFigures:
    """Return the `TopicFigures`, from the tables `topics`, `routers` and `queues`: no record is read."""
    rows = fetch(
        conn,
        "SELECT durability, count(*), coalesce(sum(next_seq - 1 - evicted_seq - deleted), 0), coalesce(sum(bytes), 0)"
        " FROM topics WHERE form = 'record' AND name >= '0' GROUP BY durability",
    )
    queues = fetch(conn, "SELECT count(*) FROM topics WHERE name >= '0' AND config LIKE ?", ('{"type":"queue"%',))
    return TopicFigures(
        {str(durability): int(count) for durability, count, _, _ in rows},
        sum(int(records) for _, _, records, _ in rows),
        sum(int(size) for _, _, _, size in rows),
        int(fetch(conn, "SELECT count(*) FROM routers")[0][0]),
        int(queues[0][0]),
        int(fetch(conn, "SELECT coalesce(sum(held), 0) FROM queues")[0][0]),
    )
