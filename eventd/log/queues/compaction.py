"""Compaction: removes the records of finished jobs, when that pays.

An ack is one row in the table of leases. Rewriting a block for each ack would cost as much as a thousand acks, so a
block after the floor is rewritten once half of its bytes belong to finished jobs, and removed when all of them do.
Until then readers skip finished jobs; see `acked_seqs`. The head must be locked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eventd.log.core.scan import read_block
from eventd.log.core.topic_row import TopicRow, read_topic_by_id, update_topic
from eventd.log.retention.prefix import advance_floor
from eventd.log.retention.rewrite import rewrite_blocks
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute_many, fetch, fetch_in
from eventd.store.rows.leases import acked_seqs

_PLACES = 250
"""Maximum number of seqs looked up in one statement."""


class _Share(NamedTuple):
    """A block without its lines, and how many of its bytes belong to finished jobs (`done`)."""

    position: int
    seq: int
    records: int
    bytes: int
    done: int

    @property
    def last_seq(self) -> int:
        return self.seq + self.records - 1


def compact(conn: Connection, topic_id: int, seqs: Sequence[int], now: int) -> None:
    """Remove records of jobs that have just finished, given by their seqs in order, at least one.

    Those right after the floor are removed at once, others once finished jobs make up half of the bytes of their block.
    """
    topic = read_topic_by_id(conn, topic_id)
    if seqs[0] == topic.evicted_seq + 1:
        topic = advance_floor(conn, topic, now)
    shares = _shares(conn, topic_id, [seq for seq in seqs if seq > topic.evicted_seq])
    ripe = [share for share in shares if share.done and 2 * share.done >= share.bytes]
    if ripe:
        _rewrite(conn, topic, ripe, now)


def _shares(conn: Connection, topic_id: int, seqs: Sequence[int]) -> list[_Share]:
    """Return the blocks that may contain these seqs, each with the bytes of its finished jobs."""
    firsts: set[int] = set()
    start = "SELECT max(seq) FROM blocks WHERE topic_id = ? AND seq <= place"
    for at in range(0, len(seqs), _PLACES):
        some = seqs[at : at + _PLACES]
        values = ", ".join(["(CAST(? AS BIGINT))"] * len(some))
        sql = f"WITH places(place) AS (VALUES {values}) SELECT DISTINCT ({start}) FROM places"
        firsts.update(seq for (seq,) in fetch(conn, sql, (*some, topic_id)) if seq is not None)
    done = (
        "SELECT coalesce(sum(size), 0) FROM leases WHERE leases.topic_id = blocks.topic_id"
        " AND leases.seq >= blocks.seq AND leases.seq < blocks.seq + blocks.records AND free_at IS NULL"
    )
    sql = f"SELECT position, seq, records, bytes, ({done}) FROM blocks WHERE topic_id = ? AND seq {{in}}"
    return [_Share(*row) for row in fetch_in(conn, sql, (topic_id,), sorted(firsts))] if firsts else []


def _rewrite(conn: Connection, topic: TopicRow, shares: Sequence[_Share], now: int) -> None:
    """Remove the records of finished jobs from these blocks, and the rows of these jobs from `leases`."""
    read = [share for share in shares if share.done < share.bytes or topic.ids]
    removed = [
        (read_block(conn, share.position), acked_seqs(conn, topic.id, share.seq, share.last_seq)) for share in read
    ]
    dropped = [share.position for share in shares if share not in read]
    rewritten = rewrite_blocks(conn, topic, removed, now=now, dropped=dropped)
    execute_many(
        conn,
        "DELETE FROM leases WHERE topic_id = ? AND seq >= ? AND seq <= ? AND free_at IS NULL",
        [(topic.id, share.seq, share.last_seq) for share in shares],
    )
    if rewritten.copies:
        update_topic(conn, topic, topic._replace(ids=topic.ids - rewritten.copies))
