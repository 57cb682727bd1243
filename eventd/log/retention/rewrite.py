"""Removes single records from blocks, and builds the rest that replaces a block of which a part is removed.

The head must be locked.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import takewhile
from typing import NamedTuple

from eventd.log.core.append import write_blocks
from eventd.log.core.blocks import Block, weight_of
from eventd.log.core.records import read_provenance
from eventd.log.core.topic_row import TopicRow
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute_many

PIECE_RECORDS = 32
"""Records of the pieces that a block is split into when little of it is removed: the next removal is usually nearby,
and should not cost as much as the whole block again."""

Copy = tuple[str, int]
"""A router's copy that keeps the id of the copied record: that id, and the position of the copy."""


def without(block: Block, removed: Collection[int], *, split: bool = False) -> list[Block]:
    """Return the rest of a block without the records of the `removed` seqs, as one block or `split` into pieces.

    It begins with the first remaining record; lines of records removed after that are empty. Pieces in which all lines
    are empty are left out. `removed` are seqs of the block.
    """
    piece = PIECE_RECORDS if split else block.records
    rows, empty = block.rows(), block.empty_row
    for seq in removed:
        rows[seq - block.seq] = empty
    begin = sum(1 for _ in takewhile(empty.__eq__, rows))
    remaining: list[Block] = []
    for start in range(begin, len(rows), piece):
        some = rows[start : start + piece]
        if size := sum(map(weight_of, block.bodies_of(some))):
            remaining.append(block.made_of(some, start, size))
    return remaining


class Removal(NamedTuple):
    """What a rewrite removed: bytes of bodies, without `dropped` blocks, and the number of copies with a record id."""

    bytes: int
    copies: int


def rewrite_blocks(
    conn: Connection,
    topic: TopicRow,
    removed: Sequence[tuple[Block, Collection[int]]],
    *,
    now: int,
    split: bool = False,
    dropped: Sequence[int] = (),
) -> Removal:
    """Remove the records of some seqs from each of some blocks. The caller updates the row of the topic.

    `split`: what remains of a block that loses few records is stored as several smaller blocks. `dropped`: the
    positions of further blocks, which are deleted completely; the caller knows that no copy in them keeps a record id.
    """
    remaining: list[Block] = []
    for block, seqs in removed:
        remaining += without(block, seqs, split=split and len(seqs) * PIECE_RECORDS < block.records)
    replaced = [(position,) for position in (*dropped, *(block.position for block, _ in removed))]
    execute_many(conn, "DELETE FROM blocks WHERE position = ?", replaced)
    write_blocks(conn, remaining)
    copies = [copy for block, seqs in removed for copy in copies_in(block, seqs)] if topic.ids else []
    size = sum(block.bytes for block, _ in removed) - sum(part.bytes for part in remaining)
    return Removal(size, expire_copies(conn, topic.id, copies, now))


def copies_in(block: Block, seqs: Collection[int]) -> list[Copy]:
    """Return (record id, position) of the records at these `seqs` of a block that are copies and keep a record id."""
    shift = block.position - block.seq
    entries = enumerate(block.entries(), block.seq)
    return [(read_provenance(path).id, seq + shift) for seq, (path, _) in entries if " " in path and seq in seqs]


def expire_copies(conn: Connection, topic_id: int, copies: Sequence[Copy], now: int) -> int:
    """Mark the ids of these copies as removed at `now`, so that they are deleted later; return how many were marked."""
    return execute_many(
        conn,
        "UPDATE event_ids SET gone_at = ? WHERE topic_id = ? AND event_id = ? AND position = ? AND gone_at IS NULL",
        [(now, topic_id, identity, position) for identity, position in copies],
    )
