"""What a topic's own limits take from it: its oldest records, over a cap or beyond their time to live.

All of this happens in an open transaction that holds the head. Only a prefix goes; what went is remembered as lost. A
lot goes in several steps: the topic then is due at once, and the rest goes in the background.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import sqlalchemy as sa

from eventd.log.core.blocks import Block
from eventd.log.core.head import lock_head
from eventd.log.core.losses import CAP, SOURCE_TRIM, TTL, Loss, note_losses
from eventd.log.core.records import content_size
from eventd.log.core.scan import read_block
from eventd.log.core.topic_row import (
    STEP_RECORDS,
    Range,
    Stock,
    empty_seqs,
    first_live,
    held_blocks,
    last_of,
    live_ranges,
    read_done,
    read_stock,
    remove_prefix,
    write_stock,
)
from eventd.log.topics.topic_line import TopicLine
from eventd.store.engine.database import execute, fetch

NEVER = 1 << 62
"""Later than any time; a time to live may be longer than that."""
AT_ONCE = 100
"""Topics that one step of the sweep looks at."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a topic holds at some time: live records, bytes of their data and meta, and the seq of the first, if any.

    In an empty topic `earliest_seq` is that of the next record.
    """

    count: int
    bytes: int
    earliest_seq: int


# --- age ----------------------------------------------------------------------------------------------------------


def due_at(recorded_at: int, ttl_ms: int) -> int:
    """The first time at which a record has outlived its time to live. Microseconds.

    A write sets `topics.due_at` to that of its records where it is not set.
    """
    return min((recorded_at // 1000 + ttl_ms + 1) * 1000, NEVER)


def expired_upto(conn: sa.Connection, stock: Stock, now: int) -> int:
    """The last seq of those at the beginning that have outlived their time to live; that of the floor for none."""
    if stock.due_at is None or stock.due_at > now or not stock.bounds.ttl_ms:
        return stock.evicted_seq
    first_kept = max(0, now // 1000 - stock.bounds.ttl_ms) * 1000
    kept = fetch(
        conn,
        "SELECT seq FROM blocks WHERE topic_id = ? AND seq + records - 1 > ? AND recorded_at >= ? ORDER BY seq LIMIT 1",
        (stock.id, stock.evicted_seq, first_kept),
    )
    if kept:
        return max(stock.evicted_seq, int(kept[0][0]) - 1)
    return stock.head_seq if stock.count else stock.evicted_seq


class Aged(NamedTuple):
    """What has outlived its time to live and is still there: all that lives in `ranges`, up to the seq `upto`."""

    upto: int
    ranges: list[Range]
    bytes: int


def read_aged(conn: sa.Connection, stock: Stock, now: int) -> Aged:
    """What a reader must not see any more."""
    upto = expired_upto(conn, stock, now)
    if upto == stock.evicted_seq:
        return Aged(upto, [], 0)
    ranges: list[Range] = []
    size = 0
    for block in held_blocks(conn, stock):
        if block.seq > upto:
            break
        done = read_done(conn, stock, block.seq, last_of(block))
        ranges += live_ranges([block], done, stock.evicted_seq, upto)
        size += block.bytes - sum(done.values())
    return Aged(upto, ranges, size)


def read_standing(conn: sa.Connection, line: TopicLine, now: int) -> Standing:
    """What the topic holds, without what has outlived its time to live and is still there."""
    if line.due_at is None or line.due_at > now:
        return Standing(line.live, line.bytes, line.earliest_seq)
    stock = read_stock(conn, line.id)
    aged = read_aged(conn, stock, now)
    gone = sum(last - first + 1 for first, last in aged.ranges)
    return Standing(stock.count - gone, stock.bytes - aged.bytes, first_live(conn, stock, aged.upto))


def apply_ttl(conn: sa.Connection, topic_id: int, now: int) -> None:
    """Remove what has outlived its time to live, as far as one step goes. Before anything is written or counted.

    Has to be called only where `topics.due_at` is reached.
    """
    stock = read_stock(conn, topic_id)
    if stock.due_at is not None and stock.due_at <= now:
        _age(conn, stock, now)


def age_out(conn: sa.Connection, topic_id: int, now: int) -> None:
    """Remove all that has outlived its time to live, however much that is.

    Before a topic is set anew: readers have been told that it is gone, and it must not come back.
    """
    stock = read_stock(conn, topic_id)
    while stock.due_at is not None and stock.due_at <= now:
        stock = _age(conn, stock, now)


def _age(conn: sa.Connection, stock: Stock, now: int) -> Stock:
    """Remove what has outlived its time to live, and say when to look again."""
    upto = expired_upto(conn, stock, now)
    if upto > stock.evicted_seq:
        stock = remove_prefix(conn, stock, upto, now=now, reason=TTL)
    return _due(conn, stock, now if stock.evicted_seq < upto else _next_due(conn, stock, now))


def _next_due(conn: sa.Connection, stock: Stock, now: int) -> int | None:
    """When the oldest record will have outlived its time to live."""
    if not stock.bounds.ttl_ms or not stock.count:
        return None
    oldest = fetch(
        conn,
        "SELECT recorded_at FROM blocks WHERE topic_id = ? AND seq + records - 1 > ? ORDER BY seq LIMIT 1",
        (stock.id, stock.evicted_seq),
    )
    return max(now + 1, due_at(oldest[0][0], stock.bounds.ttl_ms)) if oldest else None


def _due(conn: sa.Connection, stock: Stock, at: int | None) -> Stock:
    if stock.due_at == at:
        return stock
    execute(conn, "UPDATE topics SET due_at = ? WHERE id = ?", (at, stock.id))
    return replace(stock, due_at=at)


# --- caps ---------------------------------------------------------------------------------------------------------


def apply_caps(conn: sa.Connection, topic_id: int, now: int) -> None:
    """Remove what is over the caps, the oldest first, as far as one step goes. After something was written.

    What is too old goes first: that is not lost to a cap. A topic that refuses what is over its caps never loses a
    record to them.
    """
    stock = read_stock(conn, topic_id)
    if stock.due_at is not None and stock.due_at <= now:
        stock = _age(conn, stock, now)
    _cap(conn, stock, now)


def _cap(conn: sa.Connection, stock: Stock, now: int) -> Stock:
    surplus = _surplus(stock)
    if not surplus:
        return stock
    left = remove_prefix(conn, stock, _reach(conn, stock, *surplus), now=now, reason=CAP)
    return _due(conn, left, now) if _surplus(left) and left.evicted_seq > stock.evicted_seq else left


def _surplus(stock: Stock) -> tuple[int, int] | None:
    """How many records, and how many bytes, are over the caps and have to go; None where nothing has."""
    bounds = stock.bounds
    if bounds.discard == "reject":
        return None
    records = stock.count - bounds.cap_records if bounds.cap_records else 0
    size = stock.bytes - bounds.cap_bytes if bounds.cap_bytes else 0
    return (max(0, records), max(0, size)) if records > 0 or size > 0 else None


def _reach(conn: sa.Connection, stock: Stock, records: int, size: int) -> int:
    """The seq up to which all has to go, so that so many live records and so many bytes go."""
    if not stock.deleted and not size:
        return stock.evicted_seq + records
    for block in held_blocks(conn, stock):
        done = read_done(conn, stock, block.seq, last_of(block))
        live = sum(last - first + 1 for first, last in live_ranges([block], done, stock.evicted_seq, last_of(block)))
        weight = block.bytes - sum(done.values())
        if live >= records and weight >= size:
            return _reach_within(conn, block, {*empty_seqs(block), *done}, stock.evicted_seq, records, size)
        records, size = records - live, size - weight
    return stock.head_seq


def _reach_within(conn: sa.Connection, block: Block, gone: set[int], floor: int, records: int, size: int) -> int:
    if not block.text:
        block = read_block(conn, block.position)
    for seq, body in enumerate(block.bodies(), block.seq):
        if records <= 0 and size <= 0:
            return seq - 1
        if seq > floor and seq not in gone:
            records, size = records - 1, size - content_size(body)
    return last_of(block)


# --- both ---------------------------------------------------------------------------------------------------------


def apply_limits(conn: sa.Connection, topic_id: int, now: int) -> int:
    """Both, and when to look again: after a topic was set anew, and again and again; how many seqs went."""
    stock = read_stock(conn, topic_id)
    left = _cap(conn, _age(conn, replace(stock, due_at=now), now), now)
    return left.evicted_seq - stock.evicted_seq


def sweep(conn: sa.Connection, now: int) -> int:
    """Take a little from topics that are due; how many of them were looked at. Repeat until none are."""
    lock_head(conn)
    looked = went = 0
    for (topic_id,) in fetch(conn, "SELECT id FROM topics WHERE due_at <= ? ORDER BY due_at LIMIT ?", (now, AT_ONCE)):
        went += apply_limits(conn, topic_id, now)
        looked += 1
        if went >= STEP_RECORDS:
            break
    return looked


def is_due(conn: sa.Connection, now: int) -> bool:
    """Whether `sweep` would find something to do."""
    return bool(fetch(conn, "SELECT 1 FROM topics WHERE due_at <= ? LIMIT 1", (now,)))


def forget_ephemeral(conn: sa.Connection, after: int, now: int) -> int | None:
    """Take a little from the topics whose records do not outlive a run of the node, of those with ids beyond `after`.

    For the start of a node, before it serves: repeat it beyond the id that it answers, until that is None.
    """
    lock_head(conn)
    sql = "SELECT id FROM topics WHERE id > ? AND durability = 'ephemeral' AND evicted_seq < next_seq - 1"
    held = fetch(conn, f"{sql} ORDER BY id LIMIT ?", (after, AT_ONCE))
    went = 0
    for (topic_id,) in held:
        stock = read_stock(conn, topic_id)
        left = remove_prefix(conn, stock, stock.head_seq, now=now, reason=TTL)
        went += left.evicted_seq - stock.evicted_seq
        if left.evicted_seq < left.head_seq:
            return after
        after = topic_id
        if went >= STEP_RECORDS:
            break
    return after if held else None


def open_hole(conn: sa.Connection, topic_id: int, records: int) -> None:
    """Give the next seqs to copies that will never come, because their source lost what they were to be made of."""
    stock = read_stock(conn, topic_id)
    upto = stock.head_seq + records
    note_losses(conn, topic_id, [Loss(stock.next_seq, upto, SOURCE_TRIM)])
    left = replace(stock, next_seq=upto + 1, deleted=stock.deleted + records)
    write_stock(conn, stock, left if left.count else replace(left, deleted=0, evicted_seq=upto))
