"""The limits of one topic of records: its caps and its time to live, each of which removes the oldest records.

The caps of a topic that refuses writes over them remove nothing. For the retention of groups' topics see
`eventd.log.retention.evict`. Records are only removed in an open transaction that holds the head, and are reported as
lost. Many records are removed in several steps: the topic is then due at once, and the background sweep removes the
rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from eventd.log.core.blocks import Block
from eventd.log.core.head import lock_head
from eventd.log.core.live_records import Range, empty_seqs, first_live, held_blocks, live_ranges, read_done
from eventd.log.core.losses import CAP, SOURCE_TRIM, TTL, Loss, note_losses
from eventd.log.core.records import content_size
from eventd.log.core.scan import read_block
from eventd.log.core.topic_row import TopicRow, read_topic_by_id, seq_at, update_topic
from eventd.log.core.values import NEVER
from eventd.log.cursors.holding import read_held_position
from eventd.log.retention.prefix import STEP_RECORDS, remove_records
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch

TOPICS_PER_STEP = 100
"""Maximum number of topics that one step of `sweep` or `clear_ephemeral` handles."""


@dataclass(frozen=True, slots=True)
class TopicSize:
    """The size of a topic at some time: the number of live records, and the bytes of their data and meta, or of events.

    `earliest_seq` is that of the oldest live record; in an empty topic, that of the next record.
    """

    count: int
    bytes: int
    earliest_seq: int


# --- time to live -------------------------------------------------------------------------------------------------


HELD_AGAIN = SECOND
"""Microseconds until records that are kept for callbacks are looked at again."""


def due_at(recorded_at: int, ttl_ms: int) -> int:
    """Return the first time at which a record has exceeded its time to live, in microseconds.

    A write stores this time of its records as the topic's `due_at`, unless that is set already.
    """
    return min((recorded_at // 1000 + ttl_ms + 1) * 1000, NEVER)


def expired_upto(conn: Connection, topic: TopicRow, now: int) -> int:
    """Return the seq up to which every record has exceeded its time to live; the floor if the oldest one has not.

    Records that are kept for callbacks count as not having exceeded it.
    """
    upto = _too_old_upto(conn, topic, now)
    held = read_held_position(conn, topic.id, now) if upto > topic.evicted_seq else None
    if held is None:
        return upto
    kept = seq_at(conn, topic, held)
    return max(topic.evicted_seq, min(upto, topic.evicted_seq if kept is None else kept))


def _too_old_upto(conn: Connection, topic: TopicRow, now: int) -> int:
    if topic.due_at is None or topic.due_at > now or not topic.config.ttl_ms:
        return topic.evicted_seq
    first_kept = max(0, now // 1000 - topic.config.ttl_ms) * 1000
    kept = fetch(
        conn,
        "SELECT seq FROM blocks WHERE topic_id = ? AND seq + records - 1 > ? AND recorded_at >= ? ORDER BY seq LIMIT 1",
        (topic.id, topic.evicted_seq, first_kept),
    )
    if kept:
        return max(topic.evicted_seq, int(kept[0][0]) - 1)
    return topic.head_seq if topic.live else topic.evicted_seq


class ExpiredPrefix(NamedTuple):
    """The oldest records, up to the seq `upto`, which have exceeded their time to live and are still stored.

    `ranges` are the seqs of the live ones (neither deleted nor finished jobs), `bytes` those of their data and meta.
    """

    upto: int
    ranges: list[Range]
    bytes: int


def read_expired(conn: Connection, topic: TopicRow, now: int) -> ExpiredPrefix:
    """Return the stored records that no reader may receive any more, because their time to live is over.

    If there are none, `upto` is the floor. Removes nothing.
    """
    upto = expired_upto(conn, topic, now)
    if upto == topic.evicted_seq:
        return ExpiredPrefix(upto, [], 0)
    ranges: list[Range] = []
    size = 0
    for block in held_blocks(conn, topic):
        if block.seq > upto:
            break
        done = read_done(conn, topic, block.seq, block.last_seq)
        ranges += live_ranges([block], done, topic.evicted_seq, upto)
        size += block.bytes - sum(done.values())
    return ExpiredPrefix(upto, ranges, size)


def read_size(conn: Connection, topic: TopicRow, now: int) -> TopicSize:
    """Return the size of the topic, without stored records that have exceeded their time to live."""
    if topic.due_at is None or topic.due_at > now:
        return TopicSize(topic.live, topic.bytes, topic.earliest_seq)
    expired = read_expired(conn, topic, now)
    count = topic.live - sum(last - first + 1 for first, last in expired.ranges)
    return TopicSize(count, topic.bytes - expired.bytes, first_live(conn, topic, expired.upto))


def apply_ttl(conn: Connection, topic: TopicRow, now: int) -> TopicRow:
    """Remove records that have exceeded their time to live, within one step; return the topic's new row.

    Called before anything is written or counted.
    """
    return _remove_expired(conn, topic, now) if topic.due_at is not None and topic.due_at <= now else topic


def apply_ttl_fully(conn: Connection, topic: TopicRow, now: int) -> TopicRow:
    """Remove all records that have exceeded their time to live, in as many steps as necessary.

    Called before the configuration changes: readers were notified of these losses, and the records must not reappear.
    """
    while topic.due_at is not None and topic.due_at <= now:
        topic = _remove_expired(conn, topic, now)
    return topic


def _remove_expired(conn: Connection, topic: TopicRow, now: int) -> TopicRow:
    """Remove records that have exceeded their time to live, within one step; return the topic's new row.

    Sets `due_at` to `now` if more are left, else to when the oldest remaining record exceeds its time to live.
    """
    upto = expired_upto(conn, topic, now)
    if upto > topic.evicted_seq:
        topic = remove_records(conn, topic, upto, now=now, reason=TTL)
    due = now if topic.evicted_seq < upto else _next_due(conn, topic, now)
    if due is not None and due == now + 1:  # what is left is kept for callbacks
        due = now + HELD_AGAIN
    return _set_due(conn, topic, due)


def _next_due(conn: Connection, topic: TopicRow, now: int) -> int | None:
    """Return when (µs) the oldest record will exceed its time to live, at the earliest `now + 1`; None if none will."""
    if not topic.config.ttl_ms or not topic.live:
        return None
    oldest = fetch(
        conn,
        "SELECT recorded_at FROM blocks WHERE topic_id = ? AND seq + records - 1 > ? ORDER BY seq LIMIT 1",
        (topic.id, topic.evicted_seq),
    )
    return max(now + 1, due_at(oldest[0][0], topic.config.ttl_ms)) if oldest else None


def _set_due(conn: Connection, topic: TopicRow, at: int | None) -> TopicRow:
    if topic.due_at == at:
        return topic
    execute(conn, "UPDATE topics SET due_at = ? WHERE id = ?", (at, topic.id))
    return topic._replace(due_at=at)


# --- caps ---------------------------------------------------------------------------------------------------------


def apply_caps(conn: Connection, topic_id: int, now: int) -> None:
    """Remove the oldest records over the caps, within one step. Called after a write.

    Records that have exceeded their time to live are removed first: those are not lost to a cap. A topic that refuses
    writes over its caps never loses a record to them.
    """
    _remove_surplus(conn, apply_ttl(conn, read_topic_by_id(conn, topic_id), now), now)


def _remove_surplus(conn: Connection, topic: TopicRow, now: int) -> TopicRow:
    surplus = _surplus(topic)
    if not surplus:
        return topic
    left = remove_records(conn, topic, _surplus_upto(conn, topic, *surplus), now=now, reason=CAP)
    return _set_due(conn, left, now) if _surplus(left) and left.evicted_seq > topic.evicted_seq else left


def _surplus(topic: TopicRow) -> tuple[int, int] | None:
    """Return by how many records and bytes the topic exceeds its caps; None if it does not, or refuses such writes."""
    config = topic.config
    if config.discard == "reject":
        return None
    records = topic.live - config.cap_records if config.cap_records else 0
    size = topic.bytes - config.cap_bytes if config.cap_bytes else 0
    return (max(0, records), max(0, size)) if records > 0 or size > 0 else None


def _surplus_upto(conn: Connection, topic: TopicRow, records: int, size: int) -> int:
    """Return the lowest seq up to which at least `records` live records and at least `size` bytes can be removed."""
    if not topic.deleted and not size:
        return topic.evicted_seq + records
    for block in held_blocks(conn, topic):
        done = read_done(conn, topic, block.seq, block.last_seq)
        live = sum(last - first + 1 for first, last in live_ranges([block], done, topic.evicted_seq, block.last_seq))
        weight = block.bytes - sum(done.values())
        if live >= records and weight >= size:
            return _upto_within(conn, block, {*empty_seqs(block), *done}, topic.evicted_seq, records, size)
        records, size = records - live, size - weight
    return topic.head_seq


def _upto_within(conn: Connection, block: Block, removed: set[int], floor: int, records: int, size: int) -> int:
    if not block.text:
        block = read_block(conn, block.position)
    for seq, body in enumerate(block.bodies(), block.seq):
        if records <= 0 and size <= 0:
            return seq - 1
        if seq > floor and seq not in removed:
            records, size = records - 1, size - content_size(body)
    return block.last_seq


# --- both ---------------------------------------------------------------------------------------------------------


def apply_limits(conn: Connection, topic: TopicRow, now: int) -> TopicRow:
    """Remove records over the time to live and the caps, within one step; return the topic's new row.

    Called after a change of the configuration, and by the sweep. If the step does not remove everything, the topic
    stays due at once.
    """
    return _remove_surplus(conn, _remove_expired(conn, topic._replace(due_at=now), now), now)


def sweep(conn: Connection, now: int) -> int:
    """Apply the limits of the next due topics, within one step; return how many topics were handled. Repeat until 0."""
    lock_head(conn)
    handled = removed = 0
    for (topic_id,) in fetch(
        conn, "SELECT id FROM topics WHERE due_at <= ? ORDER BY due_at LIMIT ?", (now, TOPICS_PER_STEP)
    ):
        topic = read_topic_by_id(conn, topic_id)
        removed += apply_limits(conn, topic, now).evicted_seq - topic.evicted_seq
        handled += 1
        if removed >= STEP_RECORDS:
            break
    return handled


def is_due(conn: Connection, now: int) -> bool:
    """Return whether any topic is due, so that `sweep` has work."""
    return bool(fetch(conn, "SELECT 1 FROM topics WHERE due_at <= ? LIMIT 1", (now,)))


def clear_ephemeral(conn: Connection, after: int, now: int) -> int | None:
    """Empty topics with ids above `after` whose durability is `ephemeral`: their records do not outlive the process.

    One step; call it again with the returned id until it returns None, when a node starts, before it serves. Readers
    are notified of the loss with the reason `ttl`.
    """
    lock_head(conn)
    sql = "SELECT id FROM topics WHERE id > ? AND durability = 'ephemeral' AND evicted_seq < next_seq - 1"
    held = fetch(conn, f"{sql} ORDER BY id LIMIT ?", (after, TOPICS_PER_STEP))
    removed = 0
    for (topic_id,) in held:
        topic = read_topic_by_id(conn, topic_id)
        left = remove_records(conn, topic, topic.head_seq, now=now, reason=TTL)
        removed += left.evicted_seq - topic.evicted_seq
        if left.evicted_seq < left.head_seq:
            return after
        after = topic_id
        if removed >= STEP_RECORDS:
            break
    return after if held else None


def skip_seqs(conn: Connection, topic_id: int, records: int) -> None:
    """Advance a topic by `records` seqs without a record, and store these as lost: a router's source lost them."""
    topic = read_topic_by_id(conn, topic_id)
    upto = topic.head_seq + records
    note_losses(conn, topic_id, [Loss(topic.next_seq, upto, SOURCE_TRIM)])
    left = topic._replace(next_seq=upto + 1, deleted=topic.deleted + records)
    update_topic(conn, topic, left if left.live else left._replace(deleted=0, evicted_seq=upto))
