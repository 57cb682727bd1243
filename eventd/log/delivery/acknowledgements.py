"""The ledger rows of a link or callback: when records were acknowledged, which batches were, and what was lost."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from math import inf
from typing import Final, NamedTuple

from eventd.log.cursors.steps import CALLBACK_PROTOCOL, GAP_PROTOCOL
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch, indexed_by


def first_acknowledged(conn: Connection, cursor: str, positions: Sequence[int]) -> dict[int, int]:
    """Return when each of `positions` (ascending) was first acknowledged, by position, in microseconds.

    The time of a position is that of the first stored batch whose range contains the position and that does not leave
    it out, even if the record is not meant for the peer. A position without such a batch is not in the result. Repairs
    do not count. If a range is sent again, because the peer turned out to have less, the time of its first batch
    remains.
    """
    if not positions:
        return {}
    rows = fetch(
        conn,
        "SELECT after, upto, acked_at, exceptions FROM batches WHERE cursor = ? AND picked = '' AND status <> 0"
        " AND upto >= ? AND after < ? ORDER BY id DESC",
        (cursor, positions[0], positions[-1]),
    )
    found: dict[int, int] = {}
    for after, upto, acked_at, exceptions in rows:  # the latest first: earlier ones replace it
        left_out = {position for position, _ in json.loads(exceptions or "[]")}
        covered = positions[bisect_right(positions, after) : bisect_right(positions, upto)]
        found |= {position: acked_at for position in covered if position not in left_out}
    return found


def oldest_proof(conn: Connection, cursor: str) -> int | None:
    """Return when the first stored batch of a peer's cursor was acknowledged (microseconds); None if none is stored.

    Batches are removed by age, so all that were acknowledged later are still stored. The first is the one with the
    lowest id: repairs, and a cursor that was moved back, acknowledge low positions late.
    """
    sql = "SELECT acked_at FROM batches WHERE id = (SELECT min(id) FROM batches WHERE cursor = ?)"
    rows = fetch(conn, sql, (cursor,))
    return int(rows[0][0]) if rows else None


class AcceptedBatch(NamedTuple):
    """The ledger row of an acknowledged batch; see `DeliveredBatch`. Times in microseconds."""

    id: int
    batch_id: str
    after: int
    upto: int
    events: int
    attempts: int
    sent_at: int
    acked_at: int
    status: int
    key_id: str
    receipt: str


def read_newest_batches(
    conn: Connection, cursor: str, *, before: int | None, below: int | None = None, limit: int
) -> list[AcceptedBatch]:
    """Return up to `limit` acknowledged batches of a callback's cursor, newest first.

    Only those from before a time (microseconds; None: all), and with ids below one (None: all). Resends and reports of
    losses are included, and rows without a message are not.
    """
    bounds = [("acked_at", before), ("id", below)]
    given = {column: value for column, value in bounds if value is not None}
    bound, params = "".join(f" AND {column} < ?" for column in given), (cursor, *given.values())
    columns = ", ".join(AcceptedBatch._fields)
    sql = f"SELECT {columns} FROM batches WHERE cursor = ?{bound} AND status <> 0 AND batch_id <> ''"
    found = [
        AcceptedBatch._make(row)
        for protocol in (CALLBACK_PROTOCOL, GAP_PROTOCOL)  # an index each: those of one callback by id
        for row in fetch(conn, f"{sql} AND protocol = '{protocol}' ORDER BY id DESC LIMIT ?", (*params, limit))
    ]
    return sorted(found, key=lambda batch: batch.id, reverse=True)[:limit]


class GapRow(NamedTuple):
    """The ledger row of lost records; see `DeliveredBatch`. `acked_at` in microseconds."""

    cursor: str
    acked_at: int
    receipt: str


def read_recent_gaps(conn: Connection, since: int) -> list[GapRow]:
    """Return the ledger rows of lost records of all cursors of callbacks since a time, in microseconds."""
    gaps = f"protocol = '{GAP_PROTOCOL}' AND receipt <> ''"  # those of links have no receipt
    sql = f"SELECT cursor, acked_at, receipt FROM batches WHERE {gaps} AND acked_at >= ?"
    return [GapRow._make(row) for row in fetch(conn, sql, (since,))]


MOST_GAPS: Final = 1000
"""Maximum number of gaps of a link that are counted, the newest ones."""


class LinkLosses(NamedTuple):
    """The gaps of a link in its ledger: ranges whose events were evicted before the link reached them.

    `times`: the number of gaps; `most`: that of the lost events, or more; `last_at`: when the last gap was noted, in
    microseconds.
    """

    times: int = 0
    most: int = 0
    last_at: int = 0


NO_LOSSES: Final = LinkLosses()


def count_link_losses(conn: Connection, cursor: str, topic_id: int) -> LinkLosses:
    """Count the newest gaps of a link, as long as its ledger has the rows, and the events that were lost in them.

    Records of other topics have positions in a gap, too. But there are no more events than retention has removed from
    the topic, except in gaps from before it was created: those are of an earlier group of this name.

    An index has the rows in this order on SQLite. PostgreSQL sorts them, and keeps no more than these in memory.
    """
    table = f"batches{indexed_by(conn, 'batches_gaps')}"
    newest = f"SELECT after, upto, acked_at FROM {table} WHERE cursor = ? AND protocol = 'gap' ORDER BY id DESC LIMIT ?"
    earlier = "CASE WHEN acked_at < ? THEN upto - after ELSE 0 END"
    topic = fetch(conn, "SELECT evicted_seq, created_at FROM topics WHERE id = ?", (topic_id,))
    evicted, created_at = topic[0] if topic else (inf, 0)
    sql = f"SELECT count(*), sum(upto - after), sum({earlier}), max(acked_at) FROM ({newest}) AS newest"
    times, positions, before, last_at = fetch(conn, sql, (created_at, cursor, MOST_GAPS))[0]
    return LinkLosses(times, int(before + min(positions - before, evicted)), last_at) if times else NO_LOSSES


def read_gaps(conn: Connection, cursor: str, *, limit: int) -> list[AcceptedBatch]:
    """Return up to `limit` ledger rows of records that were lost before a cursor passed them, newest first."""
    columns = ", ".join(AcceptedBatch._fields)
    sql = f"SELECT {columns} FROM batches WHERE cursor = ? AND protocol = '{GAP_PROTOCOL}' ORDER BY id DESC LIMIT ?"
    return [AcceptedBatch._make(row) for row in fetch(conn, sql, (cursor, limit))]
