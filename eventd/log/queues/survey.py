"""Queues as an operator sees them: which exist, their jobs, and the oldest job of each that can be claimed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple

from eventd.log.core.scan import scan_seqs
from eventd.log.core.topic_row import COLUMNS, TopicRow
from eventd.log.topics.limits import expired_upto, read_size
from eventd.log.topics.topics import NAME
from eventd.runtime.clock import Moment
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch
from eventd.store.rows.leases import JobCounts, count_jobs, first_ended, read_free

MOST_TOPICS: Final = 20_000
"""Maximum number of topics that a search for queues looks at."""
MOST_BLOCKS: Final = 16
"""Maximum number of blocks in which the oldest job is searched: deleted records may precede it."""
_RETURNED: Final = 16


class ReadyJob(NamedTuple):
    """A job that can be claimed, and when it was written, in microseconds."""

    seq: int
    recorded_at: int


class QueueStanding(NamedTuple):
    """A queue, its jobs, how many of them are delayed, its size in bytes, and its oldest job that can be claimed."""

    line: TopicRow
    jobs: JobCounts
    delayed: int
    bytes: int
    oldest: ReadyJob | None


class QueuePage(NamedTuple):
    """Queues by name. `more`: others follow. `complete`: the search did not end at `MOST_TOPICS`."""

    queues: list[QueueStanding]
    more: bool
    complete: bool


def list_queues(
    conn: Connection, *, prefix: str, after: str, limit: int, sees: Callable[[str], bool], at: Moment
) -> QueuePage:
    """Return a page of the queues that the caller `sees`, after the name `after`, by the bytes of their names."""
    if prefix and not NAME.fullmatch(prefix):
        return QueuePage([], more=False, complete=True)
    within = ("name >= ? AND name > ? AND name < ?", (prefix or "0", after, f"{prefix}\x7f"))
    sql = f"SELECT count(*), max(name) FROM (SELECT name FROM topics WHERE {within[0]} ORDER BY name LIMIT ?) AS first"
    count, last = fetch(conn, sql, (*within[1], MOST_TOPICS))[0]
    found: list[TopicRow] = []
    if count:
        sql = f"SELECT {COLUMNS} FROM topics WHERE {within[0]} AND name <= ? AND config LIKE ? ORDER BY name LIMIT ?"
        most = limit + 1 if sees("") else MOST_TOPICS
        rows = fetch(conn, sql, (*within[1], last, '{"type":"queue"%', most))
        found = [line for line in map(TopicRow._make, rows) if sees(line.name)]
    shown = [read_standing(conn, line, at) for line in found[:limit]]
    more = len(found) > limit
    return QueuePage(shown, more, more or count < MOST_TOPICS)


def read_standing(conn: Connection, line: TopicRow, at: Moment) -> QueueStanding:
    """Return the state of a queue."""
    size = read_size(conn, line, at.wall)
    jobs = count_jobs(conn, line.id, size.count, at.steady)
    delayed = max(0, size.count - jobs.ready - jobs.in_flight)
    return QueueStanding(line, jobs, delayed, size.bytes, read_oldest_ready(conn, line, at) if jobs.ready else None)


def read_oldest_ready(conn: Connection, line: TopicRow, at: Moment) -> ReadyJob | None:
    """Return the job that was written first of those that can be claimed; None if none was found within the bounds."""
    floor = expired_upto(conn, line, at.wall)
    returned = [lease.seq for lease in read_free(conn, line.id, floor, _RETURNED)]
    ended = first_ended(conn, line.id, floor, at.steady)
    known = sorted([*returned, *([] if ended is None else [ended])])
    found = (_read_job(conn, line, seq - 1, seq) for seq in known)
    again = next((job for job in found if job is not None), None)
    rows = fetch(conn, "SELECT claimed_seq FROM queues WHERE topic_id = ?", (line.id,))
    claimed = max(floor, int(rows[0][0]) if rows else 0)
    if again is not None and again.seq <= claimed:
        return again  # each job that was never claimed has a later seq
    return _read_job(conn, line, claimed, line.head_seq)


def _read_job(conn: Connection, line: TopicRow, after: int, until: int) -> ReadyJob | None:
    """Return the first job in `(after, until]` whose record is stored."""
    for block in islice(scan_seqs(conn, line.id, after, until), MOST_BLOCKS):
        for seq, body in enumerate(block.bodies(), block.seq):
            if after < seq <= until and body:
                return ReadyJob(seq, block.recorded_at)
    return None
