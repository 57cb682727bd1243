"""When a peer first acknowledged records, for the checks of a link's delays."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from eventd.store.engine.database import fetch


class AcknowledgedRange(NamedTuple):
    """Positions `(after, upto]` that a peer acknowledged, other than by a repair, except for those `left_out`."""

    after: int
    upto: int
    acked_at: int
    left_out: frozenset[int]


def read_acknowledged(conn: sa.Connection, cursor: str, first: int, last: int) -> list[AcknowledgedRange]:
    """Return the ranges that overlap the positions `first` to `last`, in the order of their acknowledgement; no
    repairs."""
    rows = fetch(
        conn,
        "SELECT after, upto, acked_at, exceptions FROM batches WHERE cursor = ? AND picked = '' AND status <> 0"
        " AND upto >= ? AND after < ? ORDER BY id",
        (cursor, first, last),
    )
    return [
        AcknowledgedRange(after, upto, at, frozenset(place for place, _ in json.loads(out or "[]")))
        for after, upto, at, out in rows
    ]


def first_acknowledged(passages: Iterable[AcknowledgedRange], positions: Sequence[int]) -> dict[int, int]:
    """Return when each of the positions (in order) was first acknowledged; without those that no range contains.

    A range that is sent again, because the peer turned out to have less, does not make its records late.
    """
    found: dict[int, int] = {}
    waiting = list(positions)
    for passage in passages:
        start, stop = bisect_right(waiting, passage.after), bisect_right(waiting, passage.upto)
        brought = [place for place in waiting[start:stop] if place not in passage.left_out]
        found |= dict.fromkeys(brought, passage.acked_at)
        waiting[start:stop] = [place for place in waiting[start:stop] if place in passage.left_out]
    return found


def oldest_proof(conn: sa.Connection, cursor: str) -> int | None:
    """Return when the earliest stored batch of a cursor was acknowledged; None if none is stored.

    Batches acknowledged later are all still stored.
    """
    sql = "SELECT acked_at FROM batches WHERE cursor = ? ORDER BY upto LIMIT 1"
    rows = fetch(conn, sql, (cursor,))
    return int(rows[0][0]) if rows else None
