"""Removing the records of jobs that are done, when that pays.

An ack is one line in the table of leases. Rewriting a block for each would cost as much as a thousand of them, so a
block beyond the floor is rewritten when half of what it holds is done, and dropped when all of it is. Until then
readers leave out what is done; see `acked_seqs`. The head must be locked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import sqlalchemy as sa

from eventd.log.core.blocks import Block
from eventd.log.core.topic_row import copies_in, forget_copies, read_stock, rebuilt, settle_floor, write_stock
from eventd.store.engine.database import bulk_insert, execute_many, fetch, fetch_in
from eventd.store.rows.leases import acked_seqs
from eventd.store.schema.tables import blocks

_PLACES = 250
"""Seqs looked up in one statement."""
_COLUMNS = ", ".join(Block._fields)


class _Share(NamedTuple):
    """A block, and how many bytes of its content are done."""

    seq: int
    records: int
    bytes: int
    done: int


def clear(conn: sa.Connection, topic_id: int, seqs: Sequence[int], now: int) -> None:
    """Remove the records of these jobs, in order, which have just been done: at the floor at once, or when it pays."""
    stock = read_stock(conn, topic_id)
    if seqs[0] == stock.evicted_seq + 1:
        stock = settle_floor(conn, stock, now)
    shares = _shares(conn, topic_id, [seq for seq in seqs if seq > stock.evicted_seq])
    ripe = [share for share in shares if share.done and 2 * share.done >= share.bytes]
    if ripe:
        ids = _thin(conn, topic_id, ripe, now, knows_copies=stock.ids > 0)
        write_stock(conn, stock, replace(stock, ids=stock.ids - ids))


def _shares(conn: sa.Connection, topic_id: int, seqs: Sequence[int]) -> list[_Share]:
    """The blocks that hold these seqs."""
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
    sql = f"SELECT seq, records, bytes, ({done}) FROM blocks WHERE topic_id = ? AND seq {{in}}"
    return [_Share(*row) for row in fetch_in(conn, sql, (topic_id,), sorted(firsts))] if firsts else []


def _thin(conn: sa.Connection, topic_id: int, shares: Sequence[_Share], now: int, *, knows_copies: bool) -> int:
    """Remove what is done from these blocks; how many identities of copies are remembered for a while only."""
    left: list[Block] = []
    ids = 0
    for share in shares:
        if share.done < share.bytes or knows_copies:
            block, done = _read(conn, topic_id, share)
            left += rebuilt(block, _without(block, done), most=block.records)
            ids += forget_copies(conn, topic_id, copies_in(block, done), now) if knows_copies else 0
    execute_many(conn, "DELETE FROM blocks WHERE topic_id = ? AND seq = ?", [(topic_id, each.seq) for each in shares])
    bulk_insert(conn, blocks, Block._fields, left)
    execute_many(
        conn,
        "DELETE FROM leases WHERE topic_id = ? AND seq >= ? AND seq < ? AND free_at IS NULL",
        [(topic_id, share.seq, share.seq + share.records) for share in shares],
    )
    return ids


def _read(conn: sa.Connection, topic_id: int, share: _Share) -> tuple[Block, frozenset[int]]:
    """A block, and which of its seqs are done."""
    sql = f"SELECT {_COLUMNS} FROM blocks WHERE topic_id = ? AND seq = ?"
    block = Block._make(fetch(conn, sql, (topic_id, share.seq))[0])
    return block, acked_seqs(conn, topic_id, share.seq, share.seq + share.records - 1)


def _without(block: Block, done: frozenset[int]) -> list[str]:
    """The lines of a block, those of what is done empty."""
    return [block.empty_row if seq in done else row for seq, row in enumerate(block.rows(), block.seq)]
