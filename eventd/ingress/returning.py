"""Returns the events of a node that lost them, with the receipts of the batches that brought them here.

A receipt is stored in the transaction that stored the events of its batch, and so has the same time. Within one
transaction, the events of a sender are in the order of its batches, so the numbers of events in the receipts show
which events belong to which receipt.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from eventd.log.core.blocks import unpack_readable
from eventd.log.core.scan import blocks_at, outlines, pick_readable
from eventd.log.core.values import Record
from eventd.log.delivery.evidence import read_answer
from eventd.log.delivery.repairs import read_placed
from eventd.store.engine.database import Connection
from eventd.store.rows.links import read_receipts_at
from federation.lines import size_of
from federation.loops import decode_path
from federation.returned import RETURNED_BYTES, BatchReceipt, EventsQuery, ReturnedEvent, ReturnedEvents

STEP_EVENTS = 50
"""Number of events that are looked up in one step: a few milliseconds if their batches are small."""
MOST_TOGETHER = 20_000
"""Maximum number of events of one transaction for which receipts are looked up; with more, they are returned
without."""


class _Receipts(NamedTuple):
    """The receipts of a sender's batches in one transaction, and by id of an event the index of its receipt."""

    receipts: Sequence[BatchReceipt]
    owner: dict[str, int]


_NONE = _Receipts((), {})


class ReturnedPage:
    """Builds the answer to one question of `node`, in steps."""

    def __init__(self, topic_id: int, node: str, question: EventsQuery) -> None:
        self._topic_id = topic_id
        self._node = node
        self._ids = question.ids
        self._at = self._size = self._receipt_size = 0
        self._events: list[ReturnedEvent] = []
        self._large: list[int] = []
        self._receipts: list[BatchReceipt] = []
        self._known: dict[int, _Receipts] = {}
        self._index: dict[tuple[int, int], int] = {}
        self._full = False

    @property
    def is_done(self) -> bool:
        return self._full or self._at >= len(self._ids)

    def answer(self) -> ReturnedEvents:
        """Return the answer as far as the question was processed."""
        return ReturnedEvents(
            events=tuple(self._events),
            receipts=tuple(self._receipts),
            large=tuple(self._large),
            next=self._at if self._at < len(self._ids) else None,
        )

    def step(self, conn: Connection) -> None:
        """Look up the next events."""
        ids = self._ids[self._at : self._at + STEP_EVENTS]
        places = read_placed(conn, self._topic_id, ids)
        blocks = blocks_at(conn, [place for place in places.values() if place is not None])
        held = {record.position: record for block, at in blocks for record in pick_readable(block, at)}
        for event_id in ids:
            record = held.get(places.get(event_id) or 0)
            if record is not None and self._is_theirs(record) and not self._add(conn, record):
                self._full = True
                return
            self._at += 1

    def _is_theirs(self, record: Record) -> bool:
        return record.node == self._node and decode_path(record.path)[:1] == (self._node,)

    def _add(self, conn: Connection, record: Record) -> bool:
        """Add an event to the answer; return False if it does not fit any more."""
        size = size_of(record.body)
        if size > RETURNED_BYTES:
            self._large.append(self._at)
            return True
        if self._events and self._size + size > RETURNED_BYTES:
            return False
        self._size += size
        self._events.append(ReturnedEvent(self._at, record.body, self._receipt_of(conn, record)))
        return True

    def _receipt_of(self, conn: Connection, record: Record) -> int | None:
        """Return the index of the event's receipt in the answer, which is added if there is room; None without one."""
        if len(decode_path(record.path)) != 1:  # another node brought it
            return None
        time = record.recorded_at
        if time not in self._known:
            self._known[time] = _read_receipts(conn, self._topic_id, self._node, record)
        found = self._known[time]
        owner = found.owner.get(record.event_id)
        if owner is None:
            return None
        if (time, owner) not in self._index:
            stated = found.receipts[owner]
            size = sum(map(size_of, stated.ids)) + len(stated.receipt)
            if self._receipt_size + size > RETURNED_BYTES:
                return None
            self._receipt_size += size
            self._index[time, owner] = len(self._receipts)
            self._receipts.append(stated)
        return self._index[time, owner]


def _read_receipts(conn: Connection, topic_id: int, node: str, record: Record) -> _Receipts:
    """Return the receipts of the transaction that stored `record`.

    None if it is unclear which events belong to which receipt.
    """
    rows = read_receipts_at(conn, topic_id, record.recorded_at)
    stored = [(row, read_answer(row.receipt).accepted) for row in rows]
    reach = sum(accepted for _, accepted in stored)
    ours = [(row, accepted) for row, accepted in stored if row.node == node]
    if not ours or reach > MOST_TOGETHER:
        return _NONE
    first, last = record.position - reach, record.position + reach
    near = [
        block.position for block in outlines(conn, topic_id, first, last) if block.recorded_at == record.recorded_at
    ]
    ids = [
        each.event_id
        for block, _ in blocks_at(conn, near)
        for each in unpack_readable(block)
        if decode_path(each.path)[-1:] == (node,)
    ]
    ends = [0]
    for _, accepted in ours:
        ends.append(ends[-1] + accepted)
    if ends[-1] != len(ids):
        return _NONE
    parts = [tuple(ids[start:end]) for start, end in pairwise(ends)]
    receipts = [
        BatchReceipt(row.receipt, row.range, part, row.positions) for (row, _), part in zip(ours, parts, strict=True)
    ]
    return _Receipts(receipts, {each: at for at, part in enumerate(parts) for each in part})
