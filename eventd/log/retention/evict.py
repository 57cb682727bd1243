"""Removing the oldest events of a group's topic, and saying so.

Only a prefix of a topic's seq is removed, in small transactions. What an applied peer still has to get is held, unless
the group says otherwise; what was removed all the same is remembered as a line that every reader behind it is told of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import sqlalchemy as sa

from eventd.log.core.blocks import BLOCK_RECORDS, Block, unpack
from eventd.log.core.head import lock_head, read_head
from eventd.log.core.losses import CAP, TTL, Loss, note_losses
from eventd.log.core.scan import read_block, scan
from eventd.log.core.topic_row import last_of
from eventd.log.cursors.trimmed import NUMBERED, note_forgotten
from eventd.store.engine.database import bulk_insert, execute, execute_many, fetch
from eventd.store.schema.tables import (
    batches,
    blocks,
    dead_letters,
    event_ids,
    id_conflicts,
    inbound_batches,
    inbound_gaps,
    nonces,
    refusals,
    write_keys,
)
from federation.event import content_digest, expiry_micros, is_alive, read_outlines

CHUNK = 2 * BLOCK_RECORDS
"""Records per transaction, so that an append never waits long behind retention. Both take turns: there must go more in
one than an append brings, or a log would grow as long as it is written to as fast as it can be."""
CHUNK_BYTES = 16 << 20
"""Bytes of bodies per transaction: what goes is read once more, for the digest that stays of it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a topic is kept. `None` is without bound; ages in microseconds."""

    max_records: int | None = None
    max_age: int | None = None
    keep_undelivered: bool = True


@dataclass(frozen=True, slots=True)
class Evicted:
    """What one step removed, and whether more is waiting."""

    records: int
    upto_seq: int
    more: bool


def evict(
    conn: sa.Connection, topic_id: int, limits: Limits, *, now: int, chunk: int = CHUNK, forget: bool = False
) -> Evicted:
    """Remove the next few records over the limits, oldest first, in the open transaction.

    `forget`: of a deleted topic, nothing is remembered: no reader asks for the loss, and its ids go with the records.
    """
    lock_head(conn)
    next_seq, evicted_seq = fetch(conn, "SELECT next_seq, evicted_seq FROM topics WHERE id = ?", (topic_id,))[0]
    # Everybody waits for the head: nothing beyond what this step may take is looked at, but for one record more, which
    # tells whether more is waiting.
    window = (evicted_seq, min(next_seq - 1, evicted_seq + chunk + 1))
    aged = _by_age(conn, topic_id, window, limits, now)
    target = min(window[1], max(_by_count(next_seq, limits), aged))
    if target <= evicted_seq:
        return Evicted(0, evicted_seq, more=False)
    going = _going(conn, topic_id, target, limits, now, chunk)
    if not going.blocks:
        return Evicted(0, evicted_seq, more=False)
    end = going.blocks[-1]
    last = end.seq + end.records - 1
    _remove(conn, topic_id, going.blocks, now=now, lost=going.lost, aged=None if forget else aged)
    return Evicted(last - evicted_seq, last, more=target > last and not going.held)


Window = tuple[int, int]
"""Seqs that one step looks at, half-open: `(after, upto]`."""


def _by_count(next_seq: int, limits: Limits) -> int:
    return 0 if limits.max_records is None else next_seq - 1 - limits.max_records


def _by_age(conn: sa.Connection, topic_id: int, window: Window, limits: Limits, now: int) -> int:
    """The last seq in the window of the prefix recorded before the age limit."""
    if limits.max_age is None:
        return 0
    kept = fetch(
        conn,
        "SELECT seq FROM blocks WHERE topic_id = ? AND seq > ? AND seq <= ? AND recorded_at >= ? ORDER BY seq LIMIT 1",
        (topic_id, *window, now - limits.max_age),
    )
    return int(kept[0][0]) - 1 if kept else window[1]


class _Going(NamedTuple):
    """What one step removes. `held`: up to a record that has to stay; `lost`: with one that a peer has yet to get."""

    blocks: Sequence[Block]
    held: bool
    lost: bool


def _going(conn: sa.Connection, topic_id: int, last: int, limits: Limits, now: int, chunk: int) -> _Going:
    """The oldest blocks up to a seq, the last one cut to it, as far as one step may go: whole, where one fits into it.

    What is cut has to be written anew, and read twice.
    """
    # Peers alone hold what they have yet to get: who reads the log here is told of what it missed.
    held = "SELECT min(position) FROM cursors WHERE topic_id = ? AND kind IN ('peer', 'repair')"
    passed = fetch(conn, held, (topic_id,))[0][0]
    going: list[Block] = []
    size, room, lost = 0, chunk, False
    for block in scan(conn, topic_id, 0, read_head(conn).last):
        records = min(last, last_of(block)) - block.seq + 1
        part = block.within(0, block.position + min(records, chunk) - 1)
        if part is None or (going and (size + part.bytes > CHUNK_BYTES or records > room)):
            break
        waiting = None if passed is None or lost else _first_undelivered(part, passed, now)
        if waiting is not None and limits.keep_undelivered:
            before = part.within(0, waiting - 1)
            return _Going([*going, before] if before else going, held=True, lost=False)
        lost = lost or waiting is not None
        going.append(part)
        size, room = size + part.bytes, room - part.records
    return _Going(going, held=False, lost=lost)


def _first_undelivered(block: Block, passed: int, now: int) -> int | None:
    """The position of the first live record beyond `passed`, if the block's entered here."""
    rest = block.within(passed, block.last) if block.own else None
    if rest is None:
        return None
    if is_alive(rest.expires_first, now):
        return rest.position
    return next((record.position for record in unpack(rest) if is_alive(record.expires_at, now)), None)


def _remove(
    conn: sa.Connection, topic_id: int, going: Sequence[Block], *, now: int, lost: bool, aged: int | None
) -> None:
    """Remove these blocks, and remember them; `aged` None: remember nothing."""
    end = going[-1]
    stored = read_block(conn, end.position)
    rest = stored.within(end.last, stored.last)
    execute(conn, "DELETE FROM blocks WHERE topic_id = ? AND position <= ?", (topic_id, end.last))
    if rest is not None:
        bulk_insert(conn, blocks, Block._fields, [rest])
    gone = _forget(conn, topic_id, going) if aged is None else _remember(conn, topic_id, going, now, aged)
    size, seq = sum(block.bytes for block in going), end.seq + end.records - 1
    execute(
        conn,
        "UPDATE topics SET bytes = bytes - ?, ids = ids - ?, evicted_seq = ?, evicted_position = ?,"
        " lost_position = CASE WHEN ? = 1 THEN ? ELSE lost_position END WHERE id = ?",
        (size, gone, seq, end.last, int(lost), end.last, topic_id),
    )


def _forget(conn: sa.Connection, topic_id: int, going: Sequence[Block]) -> int:
    """Remove the ids of these blocks; how many they were."""
    places = (
        (outline.id, at) for block in going for at, outline in enumerate(read_outlines(block.bodies()), block.position)
    )
    return execute_many(
        conn,
        "DELETE FROM event_ids WHERE topic_id = ? AND event_id = ? AND position = ?",
        [(topic_id, event_id, position) for event_id, position in places],
    )


def _remember(conn: sa.Connection, topic_id: int, going: Sequence[Block], now: int, aged: int) -> int:
    """Keep the ids of what goes, each with a digest of what it stood for, and which seqs were still of use.

    `aged`: those up to this seq go for their age. How many ids have no record any more.
    """
    ids: list[tuple[object, ...]] = []
    lost: list[Loss] = []
    for block in going:
        bodies = block.bodies()
        outlines = read_outlines(bodies)
        expiries = [*map(expiry_micros, outlines)]
        rows = zip(expiries, map(content_digest, bodies), outlines, count(block.position), strict=False)
        ids += [(now, expires_at, digest, topic_id, one.id, position) for expires_at, digest, one, position in rows]
        lost += _losses(block, expiries, now, aged)
    note_losses(conn, topic_id, lost)
    return execute_many(
        conn,
        "UPDATE event_ids SET gone_at = ?, expires_at = ?, digest = ?"
        " WHERE topic_id = ? AND event_id = ? AND position = ?",
        ids,
    )


def _losses(block: Block, expiries: Sequence[int | None], now: int, aged: int) -> Iterator[Loss]:
    """What of a block was still of use; `aged`: what goes up to this seq goes for its age."""
    if block.expires_first is None:
        last = last_of(block)
        if block.seq <= aged:
            yield Loss(block.seq, min(last, aged), TTL)
        if last > aged:
            yield Loss(max(block.seq, aged + 1), last, CAP)
        return
    for seq, expires_at in enumerate(expiries, block.seq):
        if is_alive(expires_at, now):
            yield Loss(seq, seq, TTL if seq <= aged else CAP)


@dataclass(frozen=True, slots=True)
class BookLimits:
    """How long the books beside the log are kept. Ages in microseconds."""

    ids: int
    batches: int
    dead_letters: int
    receipts: int


def forget(conn: sa.Connection, limits: BookLimits, *, now: int, steady: int | None = None, chunk: int = CHUNK) -> int:
    """Trim all that grows: ids whose record is gone, batches, dead letters, receipts, gaps, refusals, nonces, keys.

    Removes at most `chunk` lines of each book in the open transaction; how many went. Repeat until none do. `steady` is
    the time by which idempotency keys were kept, where it differs from `now`.
    """
    lock_head(conn)  # an append in another process may just have read one of the ids, and be about to bring it back
    ages = (
        (event_ids, event_ids.c.gone_at, limits.ids),
        (batches, batches.c.acked_at, limits.batches),
        (dead_letters, dead_letters.c.parked_at, limits.dead_letters),
        (inbound_batches, inbound_batches.c.recorded_at, limits.receipts),
        (inbound_gaps, inbound_gaps.c.recorded_at, limits.batches),
        (refusals, refusals.c.last_at, limits.batches),
        (id_conflicts, id_conflicts.c.last_at, limits.batches),
        (nonces, nonces.c.keep_until, 0),
        (write_keys, write_keys.c.keep_until, 0 if steady is None else now - steady),
    )
    return sum(_trim(conn, table, column < now - age, chunk) for table, column, age in ages)


def read_unused_selections(conn: sa.Connection, before: int) -> list[tuple[str, int]]:
    """The selections, as (cursor, version), that were replaced before that time and by which no batch was made.

    None will be made by them any more. Looks through batches: not for under a lock.
    """
    return fetch(
        conn,
        "SELECT cursor, version FROM selectors AS old WHERE EXISTS (SELECT 1 FROM selectors AS later"
        " WHERE later.cursor = old.cursor AND later.version > old.version AND later.declared_at < ?)"
        " AND NOT EXISTS (SELECT 1 FROM batches WHERE batches.cursor = old.cursor"
        " AND batches.selector_version = old.version)",
        (before,),
    )


def forget_selections(conn: sa.Connection, unused: Sequence[tuple[str, int]]) -> None:
    """Remove these selections."""
    execute_many(conn, "DELETE FROM selectors WHERE cursor = ? AND version = ?", unused)


def _trim(conn: sa.Connection, table: sa.Table, old: sa.ColumnElement[bool], chunk: int) -> int:
    key = list(table.primary_key)
    gone = table.delete().where(sa.tuple_(*key).in_(sa.select(*key).where(old).limit(chunk)))
    if table not in NUMBERED:
        return conn.execute(gone).rowcount
    numbers = conn.execute(gone.returning(*key)).scalars().all()
    note_forgotten(conn, table.name, max(numbers, default=0))
    return len(numbers)
