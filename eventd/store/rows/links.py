"""The receiving end of a link: marks, nonces that were seen, receipts that were given, gaps that senders reported.

All rows that belong to a batch are written in the transaction that stores its events, while the head is locked, so
reading before writing is safe.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import bulk_insert, execute, execute_many, fetch, insert_row

MOST_SHOWN = 2000
"""Maximum number of links in a listing.

There may be many more between two rounds of retention, because a member of the group can invent senders.
"""


@dataclass(frozen=True, slots=True)
class StoredMark:
    """The part of a sender's log that this node has received: the positions `(base, upto]`."""

    epoch: str
    incarnation: int
    base: int
    upto: int


@dataclass(frozen=True, slots=True)
class InboundLink:
    """A link from another node: its mark here, the time of its last batch (microseconds), and its number of gaps."""

    node: str
    mark: StoredMark
    updated_at: int
    gaps: int


def read_mark(conn: Connection, topic_id: int, node: str) -> StoredMark | None:
    """Return the mark of the link from a node; None before its first batch."""
    rows = fetch(
        conn,
        "SELECT epoch, incarnation, base, upto FROM inbound_links WHERE topic_id = ? AND node = ?",
        (topic_id, node),
    )
    return StoredMark(*rows[0]) if rows else None


def write_mark(conn: Connection, topic_id: int, node: str, mark: StoredMark, now: int) -> None:
    """Set the mark of the link from a node, and the time of its last batch."""
    execute(
        conn,
        "INSERT INTO inbound_links (topic_id, node, epoch, incarnation, base, upto, updated_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (topic_id, node) DO UPDATE SET epoch = excluded.epoch,"
        " incarnation = excluded.incarnation, base = excluded.base, upto = excluded.upto,"
        " updated_at = excluded.updated_at",
        (topic_id, node, mark.epoch, mark.incarnation, mark.base, mark.upto, now),
    )


def count_links(conn: Connection, topic_id: int) -> int:
    """Return the number of nodes with a mark in this topic."""
    return int(fetch(conn, "SELECT count(*) FROM inbound_links WHERE topic_id = ?", (topic_id,))[0][0])


def stale_links(
    conn: Connection, topic_id: int, peers: AbstractSet[str], *, most: int, before: int
) -> list[tuple[str, int]]:
    """Return the nodes whose marks may be deleted, each with the time of its last batch, most recent first.

    They are not declared peers (`peers`), and either have sent no batch since `before`, or are not among the `most`
    undeclared nodes that sent last.
    """
    rows = fetch(
        conn, "SELECT node, updated_at FROM inbound_links WHERE topic_id = ? ORDER BY updated_at DESC", (topic_id,)
    )
    strangers = [(node, at) for node, at in rows if node not in peers]
    return [(node, at) for number, (node, at) in enumerate(strangers) if number >= most or at < before]


def delete_links(conn: Connection, topic_id: int, stale: Iterable[tuple[str, int]]) -> int:
    """Delete the marks that `stale_links` returned, unless the node has sent a batch since. The head must be locked.

    Returns their number.
    """
    return execute_many(
        conn,
        "DELETE FROM inbound_links WHERE topic_id = ? AND node = ? AND updated_at = ?",
        [(topic_id, node, at) for node, at in stale],
    )


def record_gap(
    conn: Connection, topic_id: int, node: str, epoch: str, after: int, upto: int, reason: str, now: int
) -> None:
    """Store a gap that the sender reported, or a step back of its log."""
    values = {"topic_id": topic_id, "node": node, "epoch": epoch, "after": after, "upto": upto, "reason": reason}
    insert_row(conn, "inbound_gaps", {**values, "recorded_at": now})


def nonce_seen(conn: Connection, group: str, key_id: str, nonce: str) -> bool:
    """Return whether this nonce of a group and key is stored: a request with it was seen before."""
    sql = "SELECT 1 FROM nonces WHERE group_name = ? AND key_id = ? AND nonce = ?"
    return bool(fetch(conn, sql, (group, key_id, nonce)))


def keep_nonce(conn: Connection, group: str, key_id: str, nonce: str, keep_until: int) -> None:
    """Store a nonce until `keep_until`, when its request is too old to be accepted anyway."""
    execute(
        conn,
        "INSERT INTO nonces (group_name, key_id, nonce, keep_until) VALUES (?, ?, ?, ?)",
        (group, key_id, nonce, keep_until),
    )


@dataclass(frozen=True, slots=True)
class StoredReceipt:
    """The receipt that this node gave for a batch, with the batch's range and digest as the sender wrote them."""

    receipt: str
    range: str
    digest: str


def read_receipt(conn: Connection, topic_id: int, node: str, batch_id: str) -> StoredReceipt | None:
    """Return the receipt given for a batch; None if it is not stored (any more)."""
    rows = fetch(
        conn,
        "SELECT receipt, covers, digest FROM inbound_batches WHERE topic_id = ? AND node = ? AND batch_id = ?",
        (topic_id, node, batch_id),
    )
    return StoredReceipt(*rows[0]) if rows else None


@dataclass(frozen=True, slots=True)
class LinkReceipt:
    """A receipt that this node gave to `node`, with the range of the batch as the sender wrote it.

    `positions`: those of its events in the sender's log, empty if they are not known.
    """

    node: str
    receipt: str
    range: str
    positions: str


def read_receipts_at(conn: Connection, topic_id: int, time: int) -> list[LinkReceipt]:
    """Return the stored receipts of the batches received at exactly this time (microseconds), in the order of storage.

    Batches that were stored in one transaction have the same time, and so have their events.
    """
    names = "node, receipt, covers, positions"
    sql = f"SELECT {names} FROM inbound_batches WHERE recorded_at = ? AND topic_id = ? ORDER BY id"
    return [LinkReceipt(*row) for row in fetch(conn, sql, (time, topic_id))]


def keep_receipt(
    conn: Connection,
    *,
    topic_id: int,
    node: str,
    batch_id: str,
    key_id: str,
    covers: str,
    digest: str,
    receipt: str,
    now: int,
    positions: str = "",
) -> None:
    """Store a receipt, so that a repeated batch gets the same one.

    `positions`: those of the batch's events in the sender's log, if all of them were stored.
    """
    names = ("topic_id", "node", "batch_id", "key_id", "covers", "digest", "receipt", "recorded_at", "positions")
    row = (topic_id, node, batch_id, key_id, covers, digest, receipt, now, positions)
    bulk_insert(conn, "inbound_batches", names, [row])


def read_inbound_links(conn: Connection, topic_id: int, *, node: str = "") -> list[InboundLink]:
    """Return the links on which batches for this topic arrived, sorted by node: the `MOST_SHOWN` that were used last.

    With `node`, only the link from that node.
    """
    sql = "SELECT node, count(*) FROM inbound_gaps WHERE topic_id = ? AND book = '' GROUP BY node"
    gaps = dict(fetch(conn, sql, (topic_id,)))
    only, params = (" AND node = ?", (topic_id, node)) if node else ("", (topic_id,))
    sql = (
        "SELECT node, updated_at, epoch, incarnation, base, upto FROM inbound_links"
        f" WHERE topic_id = ?{only} ORDER BY updated_at DESC, node LIMIT {MOST_SHOWN}"
    )
    return [
        InboundLink(sender, StoredMark(*mark), updated_at, gaps.get(sender, 0))
        for sender, updated_at, *mark in sorted(fetch(conn, sql, params))
    ]


@dataclass(frozen=True, slots=True)
class InboundGap:
    """A range `(after, upto]` of a sender's positions, and its problem. `recorded_at` in microseconds.

    `reason` is `lost`: its records did not arrive; or `taken_back`: the sender's log was reset to a position before
    events that it had sent, and this is the range of its first batch after that.
    """

    id: int
    node: str
    epoch: str
    after: int
    upto: int
    reason: str
    recorded_at: int


_GAPS = "SELECT id, node, epoch, after, upto, reason, recorded_at FROM inbound_gaps WHERE topic_id = ? AND book = ''"


def read_inbound_gaps(
    conn: Connection, topic_id: int, *, node: str, after: int, limit: int, newest: bool = False
) -> list[InboundGap]:
    """Return up to `limit` gaps of a topic's senders, with ids above `after`, oldest first.

    With `newest`, those with ids below `after` (0: all), newest first. `node`: only those of this sender, if given.
    """
    sql = _GAPS
    params: list[object] = [topic_id]
    if after:
        sql += " AND id < ?" if newest else " AND id > ?"
        params.append(after)
    if node:
        sql += " AND node = ?"
        params.append(node)
    order = "DESC" if newest else "ASC"
    return [InboundGap(*row) for row in fetch(conn, f"{sql} ORDER BY id {order} LIMIT ?", (*params, limit))]


def count_inbound_gaps(conn: Connection, topic_id: int) -> list[tuple[str, str, int, int, int]]:
    """Return (node, reason, number of gaps, time of the last, number of positions) for each sender and reason, sorted.

    Times in microseconds.
    """
    sql = (
        "SELECT node, reason, count(*), max(recorded_at), sum(upto - after) FROM inbound_gaps"
        " WHERE topic_id = ? AND book = '' GROUP BY node, reason"
    )
    return sorted((*found, int(positions)) for *found, positions in fetch(conn, sql, (topic_id,)))


def read_last_gaps(conn: Connection, topic_id: int, node: str, limit: int) -> list[InboundGap]:
    """Return the `limit` newest gaps of a sender, oldest first."""
    rows = fetch(conn, f"{_GAPS} AND node = ? ORDER BY id DESC LIMIT ?", (topic_id, node, limit))
    return [InboundGap(*row) for row in reversed(rows)]
