"""Removes the oldest records of a topic, and moves its floor: the seq up to which all its records are removed.

Only this module, and `skip_seqs` for an empty topic, moves a floor. A prefix is removed in steps, so that a writer
never waits long for the head, which must be locked. The caller decides what is recorded about it (losses, undelivered
records, ids).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from eventd.log.core.append import write_blocks
from eventd.log.core.blocks import OUTLINE, Block
from eventd.log.core.live_records import Range, first_live, live_ranges, read_done
from eventd.log.core.losses import Loss, note_losses
from eventd.log.core.scan import read_block, scan_seqs
from eventd.log.core.topic_row import TopicRow, update_topic
from eventd.log.retention import rewrite
from eventd.log.retention.rewrite import Copy, copies_in, expire_copies
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch
from eventd.store.rows.leases import forget_upto

STEP_RECORDS = 10_000
STEP_BYTES = 16 << 20
"""Approximate limits of one step, in records and bytes: it ends with the block in which it reaches one of the two."""
_OUTLINES = 256
"""Blocks that are read together, without their `text`."""


class PrefixNotes(NamedTuple):
    """What is to be recorded about a removed prefix.

    `live`: how many of its records are neither deleted nor finished jobs. `losses`: those reported to readers.
    `ids`: how many ids no longer have a record. `done_bytes`: bytes of finished jobs, which `topics.bytes` does not
    include any more. `lost_position`: that of the last unexpired one that a peer's or repair's cursor has not passed.
    """

    live: int
    losses: Sequence[Loss] = ()
    ids: int = 0
    done_bytes: int = 0
    lost_position: int = 0


def remove_prefix(
    conn: Connection, topic: TopicRow, blocks: Sequence[Block], upto: int, noted: PrefixNotes, *, split: bool = False
) -> TopicRow:
    """Remove all records up to the seq `upto`, and store the losses; return the topic's new row.

    `blocks` are those that contain one of them, possibly with an empty `text`. The rest of the last one is stored as
    one block, or `split` into pieces.
    """
    size, position, rest = 0, topic.evicted_position, list[Block]()
    if blocks:
        last = blocks[-1]
        if last.last_seq > upto:
            whole = last if last.text else read_block(conn, last.position)
            rest = rewrite.without(whole, range(whole.seq, upto + 1), split=split)
        size = sum(block.bytes for block in blocks) - sum(part.bytes for part in rest)
        position = min(last.last, last.position + upto - last.seq)
    execute(conn, "DELETE FROM blocks WHERE topic_id = ? AND seq <= ?", (topic.id, upto))
    write_blocks(conn, rest)
    note_losses(conn, topic.id, noted.losses)
    if topic.is_queue:
        forget_upto(conn, topic.id, upto)
    changed = topic._replace(
        bytes=topic.bytes - (size - noted.done_bytes),
        ids=topic.ids - noted.ids,
        evicted_seq=upto,
        evicted_position=position,
        lost_position=noted.lost_position or topic.lost_position,
        deleted=topic.deleted - (upto - topic.evicted_seq - noted.live),
    )
    return update_topic(conn, topic, changed)


# --- topics of records --------------------------------------------------------------------------------------------


def remove_records(
    conn: Connection,
    topic: TopicRow,
    upto: int,
    *,
    now: int,
    reason: str = "",
    records: int | None = None,
    size: int = STEP_BYTES,
) -> TopicRow:
    """Remove records of a topic of records up to the seq `upto`, as many as one step may; return the topic's new row.

    The floor also moves over the seqs after them whose records are removed already. Only with a `reason` are live
    records recorded as lost. A step ends with the block in which it reaches so many `records` (by default
    `STEP_RECORDS`) or bytes (`size`).
    """
    end = _step_end(conn, topic, upto, STEP_RECORDS if records is None else records, size)
    if end == upto:
        end = first_live(conn, topic, upto) - 1
    if end <= topic.evicted_seq:
        return topic
    done = read_done(conn, topic, topic.evicted_seq + 1, end)
    ranges, copies = _live_and_copies(conn, topic, end, done)
    noted = PrefixNotes(
        live=sum(last - first + 1 for first, last in ranges),
        losses=[Loss(first, last, reason) for first, last in ranges] if reason else (),
        ids=expire_copies(conn, topic.id, copies, now),
        done_bytes=sum(done.values()),
    )
    return remove_prefix(conn, topic, [*_outlines(conn, topic.id, end)], end, noted, split=True)


def advance_floor(conn: Connection, topic: TopicRow, now: int) -> TopicRow:
    """Move the floor over all seqs right after it that have no record any more; return the topic's new row.

    No live record is removed.
    """
    return remove_records(conn, topic, topic.evicted_seq, now=now)


def _outlines(conn: Connection, topic_id: int, upto: int) -> Iterator[Block]:
    """Yield the blocks that contain a seq up to `upto`, in order, with an empty `text`."""
    sql = f"SELECT {OUTLINE} FROM blocks WHERE topic_id = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT {_OUTLINES}"
    at, more = 0, True
    while more:
        rows = fetch(conn, sql, (topic_id, at, upto))
        yield from map(Block._make, rows)
        more = len(rows) == _OUTLINES
        at = rows[-1][2] if more else at


def _step_end(conn: Connection, topic: TopicRow, upto: int, most: int, most_bytes: int) -> int:
    """Return the seq at which the next step ends: `upto`, or the last seq of the block that reaches a limit."""
    if upto - topic.evicted_seq <= rewrite.PIECE_RECORDS:
        return upto
    records = size = 0
    for block in _outlines(conn, topic.id, upto):
        records += block.records
        size += block.bytes
        if records >= most or size >= most_bytes:
            return min(upto, block.last_seq)
    return upto


def _live_and_copies(
    conn: Connection, topic: TopicRow, end: int, done: Collection[int]
) -> tuple[list[Range], list[Copy]]:
    """Return the ranges of live seqs up to `end`, and the records up to there that are copies with a record id.

    Lines are read only if needed. `done`: the seqs of finished jobs.
    """
    after = topic.evicted_seq
    if not (topic.deleted or topic.ids):
        return [(after + 1, end)], []
    ranges: list[Range] = []
    copies: list[Copy] = []
    for block in scan_seqs(conn, topic.id, after, end):
        ranges += live_ranges([block], done, after, end)
        copies += copies_in(block, range(after + 1, end + 1)) if topic.ids else []
    return ranges, copies
