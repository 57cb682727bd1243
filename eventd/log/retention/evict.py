"""Evicts the oldest events of a group's topic, and deletes old rows of other tables.

Only a prefix of a topic is evicted, in small transactions. Unexpired events that entered the log here are kept until
the cursors of all peers have passed them, unless the group is configured otherwise; and in any case until they are in a
signed checkpoint, where the group has a history. Readers behind an evicted prefix are notified of the gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from eventd.log.core.blocks import BLOCK_RECORDS, Block, unpack
from eventd.log.core.head import lock_head
from eventd.log.core.losses import CAP, TTL, Loss
from eventd.log.core.scan import scan_seqs
from eventd.log.core.topic_row import TopicRow, read_topic_by_id
from eventd.log.cursors.dead_letters import delete_some_dead_letters
from eventd.log.cursors.holding import read_held_position
from eventd.log.cursors.trimmed import NUMBERED, note_forgotten
from eventd.log.history.hints import delete_hints
from eventd.log.history.refuted import delete_refuted
from eventd.log.history.trees import Tree, find_open_tree
from eventd.log.retention.gone_ids import Expiries, adjoining, delete_gone, mark_gone, read_gone, unbroken
from eventd.log.retention.prefix import PrefixNotes, remove_prefix
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, execute_many, fetch
from eventd.store.ids.merging import delete_forgotten
from eventd.store.ids.ranges import Span, end_span, note_gone, spans_within
from federation.event import expiry_micros, is_alive, read_outlines

CHUNK = 2 * BLOCK_RECORDS
"""Records of a step, or rows of each table, unless the pace of the work allows more or fewer."""
CHUNK_BYTES = 4 << 20
"""Bytes of bodies for each `CHUNK` records of a step: evicted events are read once more, for their digests, and an
append waits for it."""


@dataclass(frozen=True, slots=True)
class EvictionLimits:
    """How much of a group's topic is kept. `None`: unlimited; `max_age` in microseconds.

    `keep_undelivered`: unexpired events that entered the log at this node are kept, whatever the limits say, until the
    cursors of all peers and repairs have passed them. What callbacks hold is kept in any case.
    """

    max_records: int | None = None
    max_age: int | None = None
    keep_undelivered: bool = True


@dataclass(frozen=True, slots=True)
class Eviction:
    """How many events one step evicted, up to which seq, and whether the next step can evict `more`.

    `work`: the number of events, or as many as would have taken as long if these are large: `CHUNK` for `CHUNK_BYTES`.
    """

    records: int
    upto_seq: int
    more: bool
    work: int = field(default=0, compare=False)


def evict(
    conn: Connection,
    topic_id: int,
    limits: EvictionLimits,
    *,
    now: int,
    chunk: int = CHUNK,
    topic_deleted: bool = False,
) -> Eviction:
    """Evict the next few events of a group's topic over the limits, oldest first, in the open transaction.

    The ids of evicted events stay known, each with a digest. `topic_deleted`: the ids are deleted, too, and no losses
    are recorded. Locks the head.
    """
    lock_head(conn)
    topic = read_topic_by_id(conn, topic_id)
    # Every writer waits for the head: a step reads no more than it may remove, and one record, which shows whether more
    # is due.
    window = (topic.evicted_seq, min(topic.head_seq, topic.evicted_seq + chunk + 1))
    expired = _by_age(conn, topic_id, window, limits, now)
    target = min(window[1], max(last_by_count(topic, limits), expired))
    if target <= topic.evicted_seq:
        return Eviction(0, topic.evicted_seq, more=False)
    tree = None if topic_deleted else find_open_tree(conn, topic_id)
    going = _next_prefix(conn, topic, target, limits, now, chunk, tree)
    if going is None:
        return Eviction(0, topic.evicted_seq, more=False)
    upto = going.blocks[-1].last_seq
    noted = _delete_ids(conn, topic, going) if topic_deleted else _note_losses(conn, topic, going, now, expired)
    removed = remove_prefix(conn, topic, [*going.blocks[:-1], going.whole], upto, noted)
    delete_hints(conn, topic_id, removed.evicted_position)
    delete_refuted(conn, topic_id, removed.evicted_position)
    records = upto - topic.evicted_seq
    work = max(records, sum(block.bytes for block in going.blocks) * CHUNK // CHUNK_BYTES)
    return Eviction(records, upto, more=target > upto and not going.held, work=work)


def read_passed(conn: Connection, topic_id: int) -> int | None:
    """Return the lowest position of the cursors of peers and repairs; None if there are none."""
    oldest_cursor_sql = "SELECT min(position) FROM cursors WHERE topic_id = ? AND kind IN ('peer', 'repair')"
    found = fetch(conn, oldest_cursor_sql, (topic_id,))[0][0]
    return None if found is None else int(found)


Window = tuple[int, int]
"""The seqs that one step may read: `(after, upto]`."""


def last_by_count(topic: TopicRow, limits: EvictionLimits) -> int:
    """Return the last seq of a topic that is over the limit of records; 0 or less if none is."""
    return 0 if limits.max_records is None else topic.head_seq - limits.max_records


def _by_age(conn: Connection, topic_id: int, window: Window, limits: EvictionLimits, now: int) -> int:
    """Return the last seq of the window's oldest records that exceed the age limit; the floor or less if none do."""
    if limits.max_age is None:
        return 0
    kept = fetch(
        conn,
        "SELECT seq FROM blocks WHERE topic_id = ? AND seq > ? AND seq <= ? AND recorded_at >= ? ORDER BY seq LIMIT 1",
        (topic_id, *window, now - limits.max_age),
    )
    return int(kept[0][0]) - 1 if kept else window[1]


class _Prefix(NamedTuple):
    """The oldest blocks, which one step removes. `whole` is the last one as it is stored, possibly with more records.

    `held`: they end before a record that must be kept. `lost_position`: that of the last unexpired one of their records
    that the cursor of a peer or repair has not passed; 0: there is none.
    """

    blocks: Sequence[Block]
    whole: Block
    held: bool
    lost_position: int


def _next_prefix(
    conn: Connection, topic: TopicRow, last: int, limits: EvictionLimits, now: int, chunk: int, tree: Tree | None
) -> _Prefix | None:
    """Return the oldest blocks for one step to remove, up to the seq `last` or a record that must be kept; None: none.

    A block that does not fit into the step is left to the next one, unless it is the first, which is cut. What has a
    leaf in `tree`, but no checkpoint, is kept.
    """
    # Only the cursors of peers and callbacks hold back eviction; every other reader is notified of its gap.
    passed = read_passed(conn, topic.id)
    held_from = passed if limits.keep_undelivered else None
    held = read_held_position(conn, topic.id, now)
    going: list[Block] = []
    stored: list[Block] = []
    most_bytes = CHUNK_BYTES * max(chunk, CHUNK) // CHUNK
    size, room, is_held = 0, chunk, False
    for block in scan_seqs(conn, topic.id, topic.evicted_seq, min(last, topic.evicted_seq + chunk)):
        records = min(last, block.last_seq) - block.seq + 1
        if going and (size + block.bytes > most_bytes or records > room):
            break
        part = block.within(0, block.position + min(records, chunk) - 1)
        if part is None:
            break
        waiting = None if held_from is None else _first_undelivered(part, held_from, now)
        kept = None if held is None else _first_alive(part.within(held, part.last), now)
        if waiting is not None:
            kept = min(waiting, waiting if kept is None else kept)
        unsealed = _first_unsealed(part, tree)
        if unsealed is not None:
            kept = min(unsealed, unsealed if kept is None else kept)
        is_held = kept is not None
        if kept is not None:
            part = part.within(0, kept - 1)
        if part is not None:
            going.append(part)
            stored.append(block)
            size, room = size + part.bytes, room - part.records
        if is_held:
            break
    lost_position = 0 if passed is None or limits.keep_undelivered else _last_undelivered(going, passed, now)
    return _Prefix(going, stored[-1], is_held, lost_position) if going else None


def _first_unsealed(block: Block, tree: Tree | None) -> int | None:
    """Return the position of a block's first record that has a leaf in the open tree, but no checkpoint yet."""
    if tree is None or block.tree != tree.id:
        return None
    rest = block.within(tree.position, block.last)
    return None if rest is None else rest.position


def _first_undelivered(block: Block, passed: int, now: int) -> int | None:
    """Return the position of a block's first unexpired record after `passed`, the lowest cursor of a peer or repair.

    None if there is none, or the block's records came from other nodes.
    """
    return _first_alive(block.within(passed, block.last), now) if block.own else None


def _last_undelivered(blocks: Sequence[Block], passed: int, now: int) -> int:
    """Return the position of the last unexpired record of this node after `passed`, as above; 0 if there is none.

    A later position would report a loss to peers that lack nothing.
    """
    for block in reversed(blocks):
        rest = block.within(passed, block.last) if block.own else None
        if rest is None:
            continue
        if is_alive(rest.expires_first, now):
            return rest.last
        alive = [record.position for record in unpack(rest) if is_alive(record.expires_at, now)]
        if alive:
            return alive[-1]
    return 0


def _first_alive(rest: Block | None, now: int) -> int | None:
    """Return the position of a block's first unexpired record; None without a block, or if all have expired."""
    if rest is None:
        return None
    if is_alive(rest.expires_first, now):
        return rest.position
    return next((record.position for record in unpack(rest) if is_alive(record.expires_at, now)), None)


def _delete_ids(conn: Connection, topic: TopicRow, going: _Prefix) -> PrefixNotes:
    """Delete the event ids of these blocks' records, for a deleted topic; return the notes, without losses."""
    removed = 0
    for blocks in adjoining(going.blocks):
        in_runs = sum(end_span(conn, topic.id, first, last) for first, last in _spans_in_runs(conn, topic.id, blocks))
        removed += in_runs
        if in_runs < sum(block.records for block in blocks):
            removed += delete_gone(conn, topic.id, blocks)
    return PrefixNotes(_records(going), ids=removed, lost_position=going.lost_position)


def _spans_in_runs(conn: Connection, topic_id: int, blocks: Sequence[Block]) -> Iterator[Span]:
    """Yield the spans of adjoining blocks; none if no id between the first and the last position is in a run.

    One query shows the latter: blocks of events that came singly may be as many spans.
    """
    if spans_within(conn, topic_id, blocks[0].position, blocks[-1].last):
        yield from unbroken(blocks)


def _records(going: _Prefix) -> int:
    return sum(block.records for block in going.blocks)


def _note_losses(conn: Connection, topic: TopicRow, going: _Prefix, now: int, expired: int) -> PrefixNotes:
    """Store a digest of each event with its id, which stays known; return the notes, with unexpired events as losses.

    `expired`: records up to this seq are removed because of their age.
    """
    lost: list[Loss] = []
    removed = 0
    for blocks in adjoining(going.blocks):
        expiries = [*map(_expiries_of, blocks)]
        gone = read_gone(blocks, expiries)
        in_runs = sum(
            note_gone(conn, topic.id, *part, now) for part in gone.parts(_spans_in_runs(conn, topic.id, blocks))
        )
        removed += in_runs
        if in_runs < sum(block.records for block in blocks):
            removed += mark_gone(conn, topic.id, gone, now)
        for block, times in zip(blocks, expiries, strict=True):
            lost += _losses(block, times, now, expired)
    return PrefixNotes(_records(going), lost, removed, lost_position=going.lost_position)


def _expiries_of(block: Block) -> Expiries:
    return None if block.expires_first is None else [*map(expiry_micros, read_outlines(block.bodies()))]


def _losses(block: Block, expiries: Expiries, now: int, expired: int) -> Iterator[Loss]:
    """Yield the unexpired records of a block as losses; the reason is `ttl` up to the seq `expired`, then `cap`.

    `expiries`: those of its records; None: none expires.
    """
    if expiries is None:
        last = block.last_seq
        if block.seq <= expired:
            yield Loss(block.seq, min(last, expired), TTL)
        if last > expired:
            yield Loss(max(block.seq, expired + 1), last, CAP)
        return
    for seq, expires_at in enumerate(expiries, block.seq):
        if is_alive(expires_at, now):
            yield Loss(seq, seq, TTL if seq <= expired else CAP)


@dataclass(frozen=True, slots=True)
class RowRetention:
    """For how long old rows are kept, in microseconds; `ids` only applies to ids of removed records.

    `batches` also applies to gaps, refusals and id conflicts, `receipts` to the ledger rows of received batches.
    """

    ids: int
    batches: int
    dead_letters: int
    receipts: int


def delete_old_rows(
    conn: Connection, limits: RowRetention, *, now: int, steady: int | None = None, chunk: int = CHUNK
) -> int:
    """Delete rows older than the limits, and nonces and idempotency keys that have expired.

    Deletes at most `chunk` rows of each table in the open transaction, and returns the largest number deleted from
    one table: repeat until 0. `steady` is the present time of the steady clock, by which idempotency keys
    (`write_keys`) expire; None: equal to `now`. Locks the head.
    """
    lock_head(conn)  # an append in another process may just have read one of the ids, and be about to use it again
    ages = (
        ("event_ids", "topic_id, event_id", "gone_at", limits.ids),
        ("batches", "id", "acked_at", limits.batches),
        ("inbound_batches", "id", "recorded_at", limits.receipts),
        ("inbound_gaps", "id", "recorded_at", limits.batches),
        ("refusals", "id", "last_at", limits.batches),
        ("id_conflicts", "topic_id, owner, owner_key, source, key_id", "last_at", limits.batches),
        ("nonces", "group_name, key_id, nonce", "keep_until", 0),
        ("write_keys", "topic_id, key", "keep_until", 0 if steady is None else now - steady),
    )
    # a row of these has the ids of a block
    spans = _trim(conn, "gone_ids", "topic_id, first", "gone_at", now - limits.ids, max(1, chunk // 100))
    return max(
        spans,
        delete_forgotten(conn),
        *(_trim(conn, table, key, column, now - age, chunk) for table, key, column, age in ages),
        delete_some_dead_letters(conn, "parked_at < ?", (now - limits.dead_letters,), chunk),
    )


def read_unused_selections(conn: Connection, before: int) -> list[tuple[str, int]]:
    """Return the selections, as (cursor, version), that were replaced before `before` (microseconds) and have no batch.

    No batch will use them any more. Reads batches: not for use under a lock.
    """
    return fetch(
        conn,
        "SELECT cursor, version FROM selectors AS old WHERE EXISTS (SELECT 1 FROM selectors AS later"
        " WHERE later.cursor = old.cursor AND later.version > old.version AND later.declared_at < ?)"
        " AND NOT EXISTS (SELECT 1 FROM batches WHERE batches.cursor = old.cursor"
        " AND batches.selector_version = old.version)",
        (before,),
    )


def delete_selections(conn: Connection, unused: Sequence[tuple[str, int]]) -> None:
    """Delete selections, given as (cursor, version)."""
    execute_many(conn, "DELETE FROM selectors WHERE cursor = ? AND version = ?", unused)


def _trim(conn: Connection, table: str, key: str, column: str, before: int, chunk: int) -> int:
    """Delete at most `chunk` rows of a table whose time `column` is earlier. Returns their number."""
    old = f"DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE {column} < ? LIMIT ?)"
    if table not in NUMBERED:
        return execute(conn, old, (before, chunk))
    numbers = [number for (number,) in fetch(conn, f"{old} RETURNING {key}", (before, chunk))]
    note_forgotten(conn, table, max(numbers, default=0))
    return len(numbers)
