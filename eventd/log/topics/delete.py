"""Deletes records by request: silently and permanently; they are not recorded as losses.

The line of a deleted record stays, empty, if its block has other records; the floor of a topic moves over deleted
records right after it. Many records are deleted in several steps, between which others write; records written after
the first step are not deleted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from eventd.log.core.blocks import Block, names
from eventd.log.core.commit import ChangeUnit, Transaction
from eventd.log.core.live_records import read_done
from eventd.log.core.pages import LOOKED_AT, PASSED_OVER
from eventd.log.core.records import encoded, tag_text
from eventd.log.core.scan import read_block
from eventd.log.core.topic_row import TopicRow, find_topic, update_topic
from eventd.log.retention.prefix import advance_floor, remove_records
from eventd.log.retention.rewrite import rewrite_blocks
from eventd.log.topics.errors import TopicNotFound
from eventd.log.topics.limits import apply_ttl
from eventd.log.topics.predicate import Predicate
from eventd.log.topics.topics import refuse_reserved
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch
from eventd.store.rows.leases import forget_jobs


@dataclass(frozen=True, slots=True)
class Deletion:
    """The number of deleted records, and the state of the topic afterwards.

    `earliest_seq` is the first seq after the floor, `head_seq` the last that was assigned; `count` and `bytes` are
    those of the remaining records.
    """

    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class DeleteRequest:
    """The records to delete: those up to the seq `upto` (None: all that exist now) whose tag matches (None: any).

    Records up to the seq `after` were handled by earlier steps. `topic_id` is that of the topic that the first step
    found; None before that step.
    """

    name: str
    upto: int | None = None
    predicate: Predicate | None = None
    after: int = 0
    topic_id: int | None = None


@dataclass(frozen=True, slots=True)
class DeleteStep:
    """The deletions of one step, and the request for the rest; None if nothing is left."""

    done: Deletion
    rest: DeleteRequest | None


class Delete(ChangeUnit[DeleteStep]):
    """Execute one step of a request. Result: `DeleteStep`.

    Raises `TopicNotFound`, and `Incompatible` for the topic of a group.
    """

    durable = False  # a topic may require it

    def __init__(self, request: DeleteRequest) -> None:
        self._request = request

    def make(self, tx: Transaction) -> DeleteStep:
        request = self._request
        refuse_reserved(request.name, "emptied")
        topic = find_topic(tx.conn, request.name)
        if topic is None or request.topic_id not in (None, topic.id):
            raise TopicNotFound(request.name)
        if topic.durability == "fsync":
            tx.must_flush = True
        return _carry_out(tx.conn, topic, request, tx.now)


def _carry_out(conn: Connection, topic: TopicRow, request: DeleteRequest, now: int) -> DeleteStep:
    before = apply_ttl(conn, topic, now)  # records that are too old are lost, and not deleted
    upto = before.head_seq if request.upto is None else min(request.upto, before.head_seq)
    if request.predicate is None:
        left = remove_records(conn, before, upto, now=now)
        after = left.evicted_seq
    else:
        left, after = _delete_matching(
            conn, before, request.predicate, max(request.after, before.evicted_seq), upto, now
        )
    done = Deletion(before.live - left.live, left.earliest_seq, left.head_seq, left.live, left.bytes)
    rest = replace(request, upto=upto, after=after, topic_id=topic.id) if after < upto else None
    return DeleteStep(done, rest)


def _delete_matching(
    conn: Connection, topic: TopicRow, predicate: Predicate, after: int, upto: int, now: int
) -> tuple[TopicRow, int]:
    """Delete the matching records in `(after, upto]`, within one step; return the topic's row and the last seq read."""
    looked, test = 0, _test(predicate)
    for outline in _outlines(conn, topic.id, after, upto):
        looked += PASSED_OVER
        types = names(outline.types)
        if types is None or any(map(predicate.matches, types)):
            looked += outline.records
            topic = _delete_in(conn, topic, outline.position, test, range(after + 1, upto + 1), now)
        if looked >= LOOKED_AT:
            return advance_floor(conn, topic, now), min(upto, outline.seq + outline.records - 1)
    return advance_floor(conn, topic, now), upto


class _Outline(NamedTuple):
    """A block without its lines."""

    position: int
    seq: int
    records: int
    types: str


def _outlines(conn: Connection, topic_id: int, after: int, upto: int) -> list[_Outline]:
    """Return the first blocks that may contain seqs in `(after, upto]`, in order, as many as one step may need."""
    rows = fetch(
        conn,
        "SELECT position, seq, records, types FROM blocks WHERE topic_id = ? AND seq <= ? AND seq >="
        " coalesce((SELECT max(seq) FROM blocks WHERE topic_id = ? AND seq <= ?), 0) ORDER BY seq LIMIT ?",
        (topic_id, upto, topic_id, after + 1, LOOKED_AT // PASSED_OVER + 1),
    )
    return [_Outline(*row) for row in rows]


def _test(predicate: Predicate) -> Callable[[str], bool]:
    """Return a function that tests whether a stored body, which is not decoded, has a matching tag."""
    tag = encoded(predicate.text)
    if predicate.prefix:
        begin = tag[:-1]
        return lambda body: tag_text(body).startswith(begin)
    return lambda body: tag_text(body) == tag


def _delete_in(
    conn: Connection, topic: TopicRow, position: int, test: Callable[[str], bool], seqs: range, now: int
) -> TopicRow:
    """Delete the live records of a block that have one of these seqs and pass the test; return the topic's new row."""
    block = read_block(conn, position)
    done = read_done(conn, topic, block.seq, block.last_seq)
    going = [seq for seq, body in enumerate(block.bodies(), block.seq) if body and test(body) and seq in seqs]
    going = [seq for seq in going if seq not in done]
    if not going:
        return topic
    if topic.is_queue:
        forget_jobs(conn, topic.id, going)
    return delete_in_block(conn, topic, block, going, now)


def delete_in_block(conn: Connection, topic: TopicRow, block: Block, going: Sequence[int], now: int) -> TopicRow:
    """Delete the live records of these seqs from a block; return the topic's new row. The floor is not moved."""
    rewritten = rewrite_blocks(conn, topic, [(block, going)], now=now, split=True)
    changed = topic._replace(
        bytes=topic.bytes - rewritten.bytes, ids=topic.ids - rewritten.copies, deleted=topic.deleted + len(going)
    )
    return update_topic(conn, topic, changed)


async def delete_records(
    submit: Callable[[Delete], Awaitable[DeleteStep]],
    name: str,
    *,
    before_seq: int | None = None,
    predicate: Predicate | None = None,
) -> Deletion:
    """Delete the records that exist now, have seqs below `before_seq` (None: any) and match the predicate (None: any).

    Returns their total number, and the state of the topic after the last step. Raises the errors of `Delete`; records
    that earlier steps deleted stay deleted.
    """
    rest: DeleteRequest | None = DeleteRequest(name, None if before_seq is None else max(0, before_seq - 1), predicate)
    deleted = 0
    while rest is not None:
        step = await submit(Delete(rest))
        deleted, rest = deleted + step.done.deleted, step.rest
    return replace(step.done, deleted=deleted)
