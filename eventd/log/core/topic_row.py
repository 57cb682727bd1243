"""What a topic of records holds, and taking records out of it: from its beginning, or single ones.

Everything up to the floor, `topics.evicted_seq`, is gone. Beyond it a seq may have no record any more: its line is
empty, its block is gone, it is a job that is done, or its record never came. `topics.deleted` counts those, so how many
live is known without looking. The head must be locked by whoever writes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import msgspec
import sqlalchemy as sa

from eventd.log.core.blocks import Block
from eventd.log.core.head import shrink
from eventd.log.core.losses import Loss, note_losses
from eventd.log.core.records import content_size, read_provenance
from eventd.log.core.scan import outlines, read_block, scan_seqs
from eventd.store.engine.database import bulk_insert, execute, execute_many, fetch
from eventd.store.rows.leases import forget_upto
from eventd.store.schema.tables import blocks

PIECE = 32
"""Records of the blocks that a larger one is split into when a little of it goes: what goes next mostly is near, and
must not cost as much as the whole block again."""
STEP_RECORDS = 10_000
STEP_BYTES = 16 << 20
"""What one step takes out at most, so that nobody waits long for the head."""
_EVERYWHERE = 1 << 62
_PORTION = 256
"""Blocks read at once, without their lines."""
_COLUMNS = "id, next_seq, bytes, ids, evicted_seq, evicted_position, deleted, due_at, config"


class Bounds(msgspec.Struct, frozen=True):
    """The part of what is set for a topic that limits what it holds; 0: no limit."""

    type: str = "log"
    ttl_ms: int = 0
    cap_records: int = 0
    cap_bytes: int = 0
    discard: str = "old"


_decode_bounds = lru_cache(maxsize=256)(msgspec.json.Decoder(Bounds).decode)
_UNBOUNDED = Bounds()

Range = tuple[int, int]
"""The first and the last of some seqs."""


@dataclass(frozen=True, slots=True)
class Stock:
    """A topic's line, as far as it tells what the topic holds. Bytes are of data and meta."""

    id: int
    next_seq: int
    bytes: int
    ids: int
    evicted_seq: int
    evicted_position: int
    deleted: int
    due_at: int | None
    config: str

    @property
    def bounds(self) -> Bounds:
        return _decode_bounds(self.config) if self.config else _UNBOUNDED

    @property
    def is_queue(self) -> bool:
        return self.bounds.type == "queue"

    @property
    def head_seq(self) -> int:
        return self.next_seq - 1

    @property
    def count(self) -> int:
        """How many records live."""
        return self.head_seq - self.evicted_seq - self.deleted


def read_stock(conn: sa.Connection, topic_id: int) -> Stock:
    """The line of a topic that exists, in use or not."""
    return Stock(*fetch(conn, f"SELECT {_COLUMNS} FROM topics WHERE id = ?", (topic_id,))[0])


def write_stock(conn: sa.Connection, before: Stock, stock: Stock) -> Stock:
    """Write down what the topic, which held `before`, holds now."""
    shrink(conn, before.bytes - stock.bytes)
    execute(
        conn,
        "UPDATE topics SET next_seq = ?, bytes = ?, ids = ?, evicted_seq = ?, evicted_position = ?, deleted = ?,"
        " due_at = ? WHERE id = ?",
        (
            stock.next_seq,
            stock.bytes,
            stock.ids,
            stock.evicted_seq,
            stock.evicted_position,
            stock.deleted,
            stock.due_at,
            stock.id,
        ),
    )
    return stock


# --- what lives ---------------------------------------------------------------------------------------------------


def held_blocks(conn: sa.Connection, stock: Stock) -> Iterator[Block]:
    """The blocks beyond the floor, in order; without their lines where these tell nothing that is not known."""
    if stock.deleted or stock.is_queue:
        return scan_seqs(conn, stock.id, stock.evicted_seq, stock.head_seq)
    return outlines(conn, stock.id, 0, _EVERYWHERE)


def read_done(conn: sa.Connection, stock: Stock, first: int, last: int) -> dict[int, int]:
    """The jobs that are done while their records are stored: their seqs, with bytes of content."""
    if not stock.is_queue:
        return {}
    sql = "SELECT seq, size FROM leases WHERE topic_id = ? AND seq >= ? AND seq <= ? AND free_at IS NULL"
    return dict(fetch(conn, sql, (stock.id, first, last)))


def empty_seqs(block: Block) -> list[int]:
    """The seqs of a block whose lines are empty."""
    if not block.has_empty:
        return []
    return [seq for seq, body in enumerate(block.bodies(), block.seq) if not body]


def live_ranges(held: Iterable[Block], gone: Collection[int], after: int, upto: int) -> list[Range]:
    """The seqs in `(after, upto]` that have a record: all that blocks hold, but empty lines and what is `gone`."""
    ranges: list[Range] = []
    for block in held:
        inside = range(max(block.seq, after + 1), min(last_of(block), upto) + 1)
        cuts = sorted({*empty_seqs(block), *gone}.intersection(inside))
        for before, behind in pairwise([inside.start - 1, *cuts, inside.stop]):
            if behind - before < 2:
                continue
            if ranges and ranges[-1][1] == before:
                ranges[-1] = (ranges[-1][0], behind - 1)
            else:
                ranges.append((before + 1, behind - 1))
    return ranges


def last_of(block: Block) -> int:
    """The seq of a block's last record."""
    return block.seq + block.records - 1


def first_live(conn: sa.Connection, stock: Stock, after: int) -> int:
    """The first seq beyond `after` that has a record; the next one to be given where none has."""
    if not stock.deleted:
        return after + 1
    for block in scan_seqs(conn, stock.id, after, stock.head_seq):
        done = read_done(conn, stock, block.seq, last_of(block))
        for first, _ in live_ranges([block], done, after, last_of(block)):
            return first
    return stock.next_seq


# --- from the beginning -------------------------------------------------------------------------------------------


def remove_prefix(
    conn: sa.Connection,
    stock: Stock,
    upto: int,
    *,
    now: int,
    reason: str = "",
    records: int | None = None,
    size: int = STEP_BYTES,
) -> Stock:
    """Take out all up to a seq, as far as one step goes, and what is gone behind that anyway; the stock that is left.

    With a `reason`, what lived is remembered as lost for it; without one, it was to be deleted. One step ends with the
    block in which it has come to so many `records` (by default `STEP_RECORDS`) or bytes (`size`).
    """
    end = _step_end(conn, stock, upto, STEP_RECORDS if records is None else records, size)
    if end == upto:
        end = first_live(conn, stock, upto) - 1
    if end <= stock.evicted_seq:
        return stock
    done = read_done(conn, stock, stock.evicted_seq + 1, end)
    ranges, copies = _look_over(conn, stock, end, done)
    held = list(_outlines(conn, stock.id, end))
    size, position = _drop_blocks(conn, stock, held, end)
    if reason:
        note_losses(conn, stock.id, [Loss(first, last, reason) for first, last in ranges])
    if stock.is_queue:
        forget_upto(conn, stock.id, end)
    live = sum(last - first + 1 for first, last in ranges)
    return write_stock(
        conn,
        stock,
        replace(
            stock,
            bytes=stock.bytes - (size - sum(done.values())),
            ids=stock.ids - forget_copies(conn, stock.id, copies, now),
            evicted_seq=end,
            evicted_position=position,
            deleted=stock.deleted - (end - stock.evicted_seq - live),
        ),
    )


def _outlines(conn: sa.Connection, topic_id: int, upto: int) -> Iterator[Block]:
    """The blocks that hold something up to a seq, without their lines."""
    names = ", ".join([*Block._fields[:-1], "''"])
    sql = f"SELECT {names} FROM blocks WHERE topic_id = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT {_PORTION}"
    at, more = 0, True
    while more:
        rows = fetch(conn, sql, (topic_id, at, upto))
        yield from map(Block._make, rows)
        more = len(rows) == _PORTION
        at = rows[-1][2] if more else at


def _step_end(conn: sa.Connection, stock: Stock, upto: int, most: int, most_bytes: int) -> int:
    """The seq up to which one step goes, on its way to `upto`."""
    if upto - stock.evicted_seq <= PIECE:
        return upto
    records = size = 0
    for block in _outlines(conn, stock.id, upto):
        records += block.records
        size += block.bytes
        if records >= most or size >= most_bytes:
            return min(upto, last_of(block))
    return upto


Copy = tuple[str, int]
"""The identity and the position of a copy that keeps the identity of what it was made of."""


def _look_over(conn: sa.Connection, stock: Stock, end: int, done: Collection[int]) -> tuple[list[Range], list[Copy]]:
    """What lives up to a seq, and which copies with an identity there are; read only where that is not known."""
    after = stock.evicted_seq
    if not (stock.deleted or stock.ids):
        return [(after + 1, end)], []
    ranges: list[Range] = []
    copies: list[Copy] = []
    for block in scan_seqs(conn, stock.id, after, end):
        ranges += live_ranges([block], done, after, end)
        copies += copies_in(block, range(after + 1, end + 1)) if stock.ids else []
    return ranges, copies


def copies_in(block: Block, seqs: Collection[int]) -> list[Copy]:
    """Those of a block's records of some seqs that are copies with an identity."""
    found: list[Copy] = []
    shift = block.position - block.seq
    for seq, (path, _) in enumerate(block.facts(), block.seq):
        if " " in path and seq in seqs:
            found.append((read_provenance(path).id, seq + shift))
    return found


def forget_copies(conn: sa.Connection, topic_id: int, copies: Sequence[Copy], now: int) -> int:
    """Remember the identities of copies that go for a while only; how many there were."""
    return execute_many(
        conn,
        "UPDATE event_ids SET gone_at = ? WHERE topic_id = ? AND event_id = ? AND position = ? AND gone_at IS NULL",
        [(now, topic_id, identity, position) for identity, position in copies],
    )


def _drop_blocks(conn: sa.Connection, stock: Stock, held: Sequence[Block], end: int) -> tuple[int, int]:
    """Remove these blocks up to a seq, the last one maybe in part; bytes and last position of what went."""
    if not held:
        return 0, stock.evicted_position
    size, last = sum(block.bytes for block in held), held[-1]
    rest = _rest(read_block(conn, last.position), end) if last_of(last) > end else []
    size -= sum(piece.bytes for piece in rest)
    execute(conn, "DELETE FROM blocks WHERE topic_id = ? AND seq <= ?", (stock.id, end))
    bulk_insert(conn, blocks, Block._fields, rest)
    return size, min(last.last, last.position + end - last.seq)


def _rest(block: Block, end: int) -> list[Block]:
    """What a block holds beyond a seq."""
    cut = end + 1 - block.seq
    return rebuilt(block, block.rows(cut), skipped=cut)


def rebuilt(block: Block, lines: list[str], *, skipped: int = 0, most: int = PIECE) -> list[Block]:
    """A block in pieces of `most` lines, those of it without a record left out. `skipped`: its first lines, that go."""
    made: list[Block] = []
    for start in range(0, len(lines), most):
        piece = lines[start : start + most]
        if size := sum(map(content_size, block.bodies_of(piece))):
            made.append(block.made_of(piece, start + skipped, size))
    return made


# --- single records -----------------------------------------------------------------------------------------------


def empty_lines(conn: sa.Connection, stock: Stock, block: Block, seqs: Collection[int], now: int) -> Stock:
    """Delete the records of some seqs, which live in a block; the stock that is left. The floor stays where it is."""
    lines = block.rows()
    for seq in seqs:
        lines[seq - block.seq] = block.empty_row
    left = rebuilt(block, lines, most=PIECE if len(seqs) * PIECE < block.records else block.records)
    execute(conn, "DELETE FROM blocks WHERE position = ?", (block.position,))
    bulk_insert(conn, blocks, Block._fields, left)
    copies = copies_in(block, seqs) if stock.ids else []
    return write_stock(
        conn,
        stock,
        replace(
            stock,
            bytes=stock.bytes - block.bytes + sum(piece.bytes for piece in left),
            ids=stock.ids - forget_copies(conn, stock.id, copies, now),
            deleted=stock.deleted + len(seqs),
        ),
    )


def settle_floor(conn: sa.Connection, stock: Stock, now: int) -> Stock:
    """Move the floor over all that is gone at the beginning; the stock that is left."""
    return remove_prefix(conn, stock, stock.evicted_seq, now=now)
