"""Losses of a topic: the ranges of seqs that retention removed, or that a router's source lost, each with the reason.

Records deleted by request, and events that had expired, are not included (unless ranges around them were joined), so
readers are only notified of records they missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from eventd.log.core.head import lock_head
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import bulk_insert, execute, execute_many, fetch

CAP, TTL, SOURCE_TRIM, MIXED = "cap", "ttl", "source_trim", "mixed"
"""Why records were lost: over a limit; too old, or of an ephemeral topic when the node started; lost by a router's
source before they were copied; several of these."""

MOST_RANGES = 1000
"""Maximum number of ranges that a topic keeps. Beyond it the oldest are joined, and may then include records that were
deleted by request or are stored."""


class Loss(NamedTuple):
    """Lost records of a topic: the seqs `first` to `last`, inclusive, and the reason (`mixed`: several)."""

    first: int
    last: int
    reason: str

    @property
    def records(self) -> int:
        return self.last - self.first + 1


def note_losses(conn: Connection, topic_id: int, lost: Sequence[Loss]) -> None:
    """Store losses of a topic, which are in order and not stored yet. The head must be locked.

    Adjacent ranges with the same reason become one.
    """
    joined: list[Loss] = []
    for loss in lost:
        if joined and joined[-1].last + 1 == loss.first and joined[-1].reason == loss.reason:
            joined[-1] = joined[-1]._replace(last=loss.last)
        else:
            joined.append(loss)
    if joined and _lengthen(conn, topic_id, joined[0]):
        del joined[0]
    bulk_insert(conn, "topic_losses", ("topic_id", "first_seq", "last_seq", "reason"), [(topic_id, *x) for x in joined])


def _lengthen(conn: Connection, topic_id: int, loss: Loss) -> bool:
    """Extend the stored range of the same reason that ends right before the loss; return whether there is one."""
    return bool(
        execute(
            conn,
            "UPDATE topic_losses SET last_seq = ? WHERE topic_id = ? AND last_seq = ? AND reason = ? AND first_seq ="
            " (SELECT max(first_seq) FROM topic_losses WHERE topic_id = ? AND first_seq < ?)",
            (loss.last, topic_id, loss.first - 1, loss.reason, topic_id, loss.first),
        )
    )


def read_losses(conn: Connection, topic_id: int, after: int, upto: int) -> list[Loss]:
    """Return the losses of a topic with seqs in `(after, upto]`, in order; the first and last are cut to that range."""
    start = "coalesce((SELECT max(first_seq) FROM topic_losses WHERE topic_id = ? AND first_seq <= ?), 0)"
    rows = fetch(
        conn,
        "SELECT first_seq, last_seq, reason FROM topic_losses"
        f" WHERE topic_id = ? AND first_seq >= {start} AND first_seq <= ? AND last_seq > ? ORDER BY first_seq",
        (topic_id, topic_id, after, upto, after),
    )
    return [Loss(max(first, after + 1), min(last, upto), reason) for first, last, reason in rows]


def reason_of(lost: Iterable[Loss]) -> str:
    """Return the one reason that all these losses have; `mixed` if they have several, or there are none."""
    reasons = {loss.reason for loss in lost}
    return reasons.pop() if len(reasons) == 1 else MIXED


def read_crowded(conn: Connection, *, most: int = MOST_RANGES) -> list[int]:
    """Return the ids of topics with more than `most` ranges. Reads the whole table: not for use under a lock."""
    sql = "SELECT topic_id FROM topic_losses GROUP BY topic_id HAVING count(*) > ? ORDER BY topic_id"
    return [topic_id for (topic_id,) in fetch(conn, sql, (most,))]


def join_oldest(conn: Connection, topic_id: int, *, most: int = MOST_RANGES) -> int:
    """Join the oldest ranges of a topic with more than `most` into one; return by how much their number decreased.

    Locks the head. Records between the joined ranges count as lost from then on, even if a request deleted them or they
    are still stored.
    """
    lock_head(conn)
    ranges = int(fetch(conn, "SELECT count(*) FROM topic_losses WHERE topic_id = ?", (topic_id,))[0][0])
    if ranges <= most:
        return 0
    sql = "SELECT first_seq, last_seq, reason FROM topic_losses WHERE topic_id = ? ORDER BY first_seq LIMIT ?"
    oldest = [Loss(*row) for row in fetch(conn, sql, (topic_id, ranges - most + 1))]
    joined = Loss(oldest[0].first, oldest[-1].last, reason_of(oldest))
    execute_many(
        conn,
        "DELETE FROM topic_losses WHERE topic_id = ? AND first_seq = ?",
        [(topic_id, loss.first) for loss in oldest],
    )
    bulk_insert(conn, "topic_losses", ("topic_id", "first_seq", "last_seq", "reason"), [(topic_id, *joined)])
    return len(oldest) - 1
