"""Sending again: which records a repair would carry, the cursor that makes it, and the dead letters it may take up.

A repair is a cursor beside the peer's own, over a closed range of positions. The node sends what it picks, marked as a
repair, and deletes it at its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from eventd.log.cursors import create_cursor, next_repair_name
from eventd.log.deliveries import Interest
from eventd.store.database import fetch, fetch_in
from eventd.store.registry import announce
from eventd.store.schema import dead_letters

MOST_POSITIONS = 10_000
"""Positions one repair names. A repair of more is a range."""


class Placed(NamedTuple):
    """Where the latest record of an event id is. Times in microseconds; `gone_at` is when retention removed it."""

    position: int
    expires_at: int | None
    gone_at: int | None


def read_placed(conn: sa.Connection, topic_id: int, ids: Sequence[str]) -> dict[str, Placed]:
    """The places of those of the ids that are known."""
    sql = "SELECT event_id, position, expires_at, gone_at FROM event_ids WHERE topic_id = ? AND event_id {in}"
    return {row[0]: Placed(*row[1:]) for row in fetch_in(conn, sql, (topic_id,), list(ids))}


def recorded_between(conn: sa.Connection, topic_id: int, since: int | None, until: int | None) -> tuple[int, int]:
    """The half-open range of positions recorded in a span of time (microseconds, both ends in it); (0, 0) for none."""
    conditions = (
        ["topic_id = ?"] + ["recorded_at >= ?"] * (since is not None) + ["recorded_at <= ?"] * (until is not None)
    )
    params = [topic_id, *[time for time in (since, until) if time is not None]]
    sql = f"SELECT min(position), max(position) FROM records WHERE {' AND '.join(conditions)}"
    first, last = fetch(conn, sql, params)[0]
    return (0, 0) if first is None else (int(first) - 1, int(last))


def numbered_between(conn: sa.Connection, topic_id: int, first: int, last: int) -> tuple[int, int]:
    """The half-open range of positions of the seqs `first` to `last`, as far as they still exist; (0, 0) for none."""
    sql = "SELECT min(position), max(position) FROM records WHERE topic_id = ? AND seq >= ? AND seq <= ?"
    lowest, highest = fetch(conn, sql, (topic_id, first, last))[0]
    return (0, 0) if lowest is None else (int(lowest) - 1, int(highest))


class Survey(NamedTuple):
    """What a repair of a range would find. Times in microseconds, sizes in bytes.

    `events` would be sent; `expired` are too late, `others` are not meant for the peer.
    """

    events: int
    bytes: int
    first: int | None
    last: int | None
    oldest: int | None
    newest: int | None
    expired: int
    others: int


def survey(conn: sa.Connection, topic_id: int, interest: Interest, *, after: int, upto: int, now: int) -> Survey:
    """Look over the records in `(after, upto]`."""
    where, params = interest.conditions()
    within, place = "r.topic_id = ? AND r.position > ? AND r.position <= ?", (topic_id, after, upto)
    alive = "(r.expires_at IS NULL OR r.expires_at >= ?)"
    total = fetch(conn, f"SELECT count(*) FROM records r WHERE {within}", place)[0][0]
    meant = fetch(conn, f"SELECT count(*) FROM records r WHERE {within} AND {where}", (*place, *params))[0][0]
    events, size, first, last, oldest, newest = fetch(
        conn,
        "SELECT count(*), coalesce(sum(r.size), 0), min(r.position), max(r.position), min(r.recorded_at),"
        f" max(r.recorded_at) FROM records r WHERE {within} AND {alive} AND {where}",
        (*place, now, *params),
    )[0]
    return Survey(events, int(size), first, last, oldest, newest, meant - events, total - meant)


def start_repair(
    conn: sa.Connection,
    *,
    group: str,
    node: str,
    topic_id: int,
    after: int,
    upto: int,
    selection: Mapping[str, Any],
    now: int,
) -> str:
    """Make the cursor of a repair of `(after, upto]` and tell running nodes; its name."""
    announce(conn)  # locks the head, which comes before any cursor
    name = next_repair_name(conn, group, node)
    create_cursor(
        conn, name, kind="repair", topic_id=topic_id, position=after, until=upto, selection=selection, now=now
    )
    return name


class Letter(NamedTuple):
    """A dead letter as an operator sees it, and what is left of its record. Times in microseconds.

    `tag` is None when the record is gone.
    """

    id: int
    cursor: str
    position: int
    event_id: str
    reason: str
    detail: str
    attempts: int
    parked_at: int
    tag: str | None
    subject: str | None
    expires_at: int | None


def read_letters(
    conn: sa.Connection,
    topic_id: int,
    *,
    cursor: str = "",
    event_id: str = "",
    ids: Sequence[int] = (),
    after: int = 0,
    limit: int,
    newest: bool = False,
) -> list[Letter]:
    """Dead letters of a topic beyond the letter `after`, oldest first, or the newest first."""
    sql = (
        "SELECT d.id, d.cursor, d.position, d.event_id, d.reason, d.detail, d.attempts, d.parked_at, r.tag, r.subject,"
        " r.expires_at FROM dead_letters d LEFT JOIN records r ON r.position = d.position"
        " WHERE d.topic_id = ? AND d.id > ?"
    )
    params: list[object] = [topic_id, after]
    for condition, value in ((" AND d.cursor = ?", cursor), (" AND d.event_id = ?", event_id)):
        if value:
            sql += condition
            params.append(value)
    if ids:
        rows = fetch_in(conn, f"{sql} AND d.id {{in}} ORDER BY d.id", params, list(ids))
    else:
        rows = fetch(conn, f"{sql} ORDER BY d.id {'DESC' if newest else 'ASC'} LIMIT ?", (*params, limit))
    return [Letter(*row) for row in rows]


def count_letters(conn: sa.Connection, topic_id: int) -> dict[str, int]:
    """How many dead letters each cursor of a topic has."""
    sql = "SELECT cursor, count(*) FROM dead_letters WHERE topic_id = ? GROUP BY cursor"
    return dict(fetch(conn, sql, (topic_id,)))


def remove_letters(conn: sa.Connection, ids: Sequence[int]) -> int:
    """Forget dead letters; how many there were."""
    return sum(conn.execute(dead_letters.delete().where(dead_letters.c.id == at)).rowcount for at in ids)
