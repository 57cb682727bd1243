"""Deleting records by request: silent, permanent, and no loss.

A record's line stays, empty, where others of its block live; the floor of a topic moves over what was deleted at its
beginning. A lot is deleted in several steps, between which others write; what they write is not touched.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import sqlalchemy as sa

from eventd.log.core.blocks import names
from eventd.log.core.commit import Transaction, Turn
from eventd.log.core.pages import LOOKED_AT, PASSED_OVER
from eventd.log.core.records import encoded, tag_text
from eventd.log.core.scan import read_block
from eventd.log.core.topic_row import Stock, empty_lines, last_of, read_done, read_stock, remove_prefix, settle_floor
from eventd.log.core.values import NOTHING, Appended, Drafts
from eventd.log.topics.errors import TopicNotFound
from eventd.log.topics.limits import apply_ttl
from eventd.log.topics.predicate import Predicate
from eventd.log.topics.topic_line import TopicLine, read_line
from eventd.log.topics.topics import refuse_group
from eventd.store.engine.database import fetch
from eventd.store.rows.leases import forget_jobs


@dataclass(frozen=True, slots=True)
class Deleted:
    """How many records went, and how the topic stands then. `head_seq`: of the last record ever written to it."""

    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be deleted: all up to the seq `upto` whose tag matches; `upto` None: all there is now.

    `after`: it has been done up to there. `topic_id`: of the topic that was meant, None as long as that is not known.
    """

    name: str
    upto: int | None = None
    predicate: Predicate | None = None
    after: int = 0
    topic_id: int | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """What one step deleted, and what there is to be done after it; None for nothing."""

    done: Deleted
    rest: Order | None


class Delete:
    """Carry out an order as far as one step goes. Result: `Part`.

    Raises `TopicNotFound`, and `Incompatible` for the topic of a group.
    """

    topic_id = None
    cursor = None
    weight = 1
    durable = False  # a topic may ask for it
    turn = Turn.FRONT

    def __init__(self, order: Order) -> None:
        self._order = order
        self._part: Part | None = None

    def admit(self, tx: Transaction) -> Drafts:
        order = self._order
        refuse_group(order.name, "emptied")
        line = read_line(tx.conn, order.name)
        if line is None or order.topic_id not in (None, line.id):
            raise TopicNotFound(order.name)
        self._part = _carry_out(tx.conn, line, order, tx.now)
        if line.durability == "fsync":
            tx.must_flush = True
        return NOTHING

    def finish(self, tx: Transaction, appended: Appended) -> Part:
        assert self._part is not None
        return self._part


def _carry_out(conn: sa.Connection, line: TopicLine, order: Order, now: int) -> Part:
    apply_ttl(conn, line.id, now)  # what is too old is lost, and not deleted
    before = read_stock(conn, line.id)
    upto = before.head_seq if order.upto is None else min(order.upto, before.head_seq)
    if order.predicate is None:
        left = remove_prefix(conn, before, upto, now=now)
        after = left.evicted_seq
    else:
        left, after = _delete_matching(conn, before, order.predicate, max(order.after, before.evicted_seq), upto, now)
    done = Deleted(before.count - left.count, left.evicted_seq + 1, left.head_seq, left.count, left.bytes)
    rest = replace(order, upto=upto, after=after, topic_id=line.id) if after < upto else None
    return Part(done, rest)


def _delete_matching(
    conn: sa.Connection, stock: Stock, predicate: Predicate, after: int, upto: int, now: int
) -> tuple[Stock, int]:
    """Delete what matches beyond `after`, as far as one step looks; the stock that is left, and how far was looked."""
    looked, test = 0, _test(predicate)
    places = _places(conn, stock.id, after, upto)
    for place in places:
        looked += PASSED_OVER
        told = names(place.types)
        if told is None or any(map(predicate.matches, told)):
            looked += place.records
            stock = _delete_in(conn, stock, place.position, test, range(after + 1, upto + 1), now)
        if looked >= LOOKED_AT:
            return settle_floor(conn, stock, now), min(upto, place.seq + place.records - 1)
    return settle_floor(conn, stock, now), upto


class _Place(NamedTuple):
    """A block, as far as one sees without its lines."""

    position: int
    seq: int
    records: int
    types: str


def _places(conn: sa.Connection, topic_id: int, after: int, upto: int) -> list[_Place]:
    """The blocks of the seqs in `(after, upto]`: as many as one step looks at."""
    rows = fetch(
        conn,
        "SELECT position, seq, records, types FROM blocks WHERE topic_id = ? AND seq <= ? AND seq >="
        " coalesce((SELECT max(seq) FROM blocks WHERE topic_id = ? AND seq <= ?), 0) ORDER BY seq LIMIT ?",
        (topic_id, upto, topic_id, after + 1, LOOKED_AT // PASSED_OVER + 1),
    )
    return [_Place(*row) for row in rows]


def _test(predicate: Predicate) -> Callable[[str], bool]:
    """Whether the body of a record has a tag that matches, as its text tells."""
    tag = encoded(predicate.text)
    if predicate.prefix:
        begin = tag[:-1]
        return lambda body: tag_text(body).startswith(begin)
    return lambda body: tag_text(body) == tag


def _delete_in(
    conn: sa.Connection, stock: Stock, position: int, test: Callable[[str], bool], seqs: range, now: int
) -> Stock:
    """Delete what passes the test of those seqs of a block that live; the stock that is left."""
    block = read_block(conn, position)
    done = read_done(conn, stock, block.seq, last_of(block))
    going = [seq for seq, body in enumerate(block.bodies(), block.seq) if body and test(body) and seq in seqs]
    going = [seq for seq in going if seq not in done]
    if not going:
        return stock
    if stock.is_queue:
        forget_jobs(conn, stock.id, going)
    return empty_lines(conn, stock, block, going, now)


async def delete_records(
    submit: Callable[[Delete], Awaitable[Part]],
    name: str,
    *,
    before_seq: int | None = None,
    predicate: Predicate | None = None,
) -> Deleted:
    """Delete what is there now below `before_seq`, if that is given, and matches, if there is something to match.

    Raises what `Delete` does. What was deleted until then stays so.
    """
    rest: Order | None = Order(name, None if before_seq is None else max(0, before_seq - 1), predicate)
    deleted = 0
    while rest is not None:
        part = await submit(Delete(rest))
        deleted, rest = deleted + part.done.deleted, part.rest
    return replace(part.done, deleted=deleted)
