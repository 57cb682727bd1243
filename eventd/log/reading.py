"""Pages of the log: records in position order, gaps first, in one snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from eventd.log.head import read_head
from eventd.log.values import Gap, Page, Record
from eventd.store.database import fetch, fetch_in

COLUMNS = ", ".join(Record._fields)
_OWN = {False: "", True: " AND path = ''"}
_R_COLUMNS = ", ".join(f"r.{name}" for name in Record._fields)


def read_page(
    conn: sa.Connection,
    topic_id: int,
    after: int,
    *,
    limit: int,
    max_bytes: int,
    until: int | None = None,
    own: bool = False,
) -> Page:
    """The records of one topic beyond `after`, at most `limit` and about `max_bytes` of bodies (at least one).

    `until` ends the scan at that position; `own` leaves out what came from other nodes. The gap and the records come
    from one snapshot.
    """
    head = read_head(conn)
    end = head.last if until is None else min(until, head.last)
    evicted, evicted_seq, largest, lost = fetch(
        conn, "SELECT evicted_position, evicted_seq, largest, lost_position FROM topics WHERE id = ?", (topic_id,)
    )[0]
    gaps = [Gap(topic_id, after, evicted, evicted_seq)] if evicted > after else []
    where, place = f"topic_id = ? AND position > ? AND position <= ?{_OWN[own]}", (topic_id, after, end)
    if limit * largest > max_bytes:
        limit = affordable(conn, where, place, limit, max_bytes)
    rows = fetch(conn, f"SELECT {COLUMNS} FROM records WHERE {where} ORDER BY position LIMIT ?", (*place, limit))
    full = len(rows) == limit
    upto = rows[-1][0] if full else max(end, after)
    return Page([*map(Record._make, rows)], gaps, upto, full, head, lost)


def affordable(conn: sa.Connection, where: str, params: Sequence[object], limit: int, max_bytes: int) -> int:
    """How many of the first records that fulfil the condition fit into `max_bytes`; at least one."""
    sizes = fetch(conn, f"SELECT size FROM records WHERE {where} ORDER BY position LIMIT ?", (*params, limit))
    total = 0
    for count, (size,) in enumerate(sizes):
        total += size
        if total > max_bytes:
            return max(1, count)
    return max(1, limit)


def read_at(conn: sa.Connection, positions: Sequence[int]) -> list[Record]:
    """The records at these positions that still exist, in order."""
    rows = fetch_in(conn, f"SELECT {COLUMNS} FROM records WHERE position {{in}}", (), positions)
    return sorted(map(Record._make, rows))


@dataclass(frozen=True, slots=True)
class Question:
    """What to list. Times in microseconds; `None` and empty mean any.

    `now` hides what has expired; `after` and `before` are positions for paging, exclusive.
    """

    topic_id: int
    now: int | None = None
    event_id: str = ""
    types: Sequence[str] = ()
    subject_prefix: str = ""
    source: str = ""
    since: int | None = None
    until: int | None = None
    after: int = 0
    before: int | None = None
    newest: bool = False
    limit: int = 100


def list_latest(conn: sa.Connection, ask: Question) -> list[Record]:
    """The latest record of each id that answers the question, in log order; the `newest` ones if asked so."""
    where, params = _conditions(ask)
    rows = fetch(
        conn,
        f"SELECT {_R_COLUMNS} FROM records r JOIN event_ids e ON e.topic_id = r.topic_id"
        f" AND e.event_id = r.event_id AND e.position = r.position WHERE {' AND '.join(where)}"
        f" ORDER BY r.position {'DESC' if ask.newest else 'ASC'} LIMIT ?",
        (*params, ask.limit),
    )
    found = [*map(Record._make, rows)]
    return found[::-1] if ask.newest else found


def _conditions(ask: Question) -> tuple[list[str], list[object]]:
    where: Mapping[str, object | None] = {
        "r.topic_id = ?": ask.topic_id,
        "r.position > ?": ask.after,
        "r.position < ?": ask.before,
        "e.event_id = ?": ask.event_id or None,
        "r.node = ?": ask.source or None,
        "r.ts >= ?": ask.since,
        "r.ts <= ?": ask.until,
        "(r.expires_at IS NULL OR r.expires_at >= ?)": ask.now,
        # a plain comparison of the first characters: LIKE would give % and _ a meaning
        "substr(r.subject, 1, length(CAST(? AS TEXT))) = ?": ask.subject_prefix or None,
    }
    texts: list[str] = []
    params: list[object] = []
    for text, value in where.items():
        if value is not None:
            texts.append(text)
            params += [value] * text.count("?")
    if ask.types:
        texts.append(f"r.tag IN ({', '.join('?' * len(ask.types))})")
        params += ask.types
    return texts, params
