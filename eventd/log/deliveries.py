"""What the books prove about each record and each peer: delivered, still to come, or how it ended.

Nothing is kept per record and peer. A delivered batch covers a range of positions under one version of the peer's
selection, with exceptions; a repair's batch names the positions it carried. Where the batch that would prove a delivery
has been forgotten, the answer is `unknown`, never `delivered`.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import sqlalchemy as sa

from eventd.log.blocks import Block, unpack
from eventd.log.cursors import Cursor
from eventd.log.head import read_head
from eventd.log.lines import Wanted
from eventd.log.reading import cost_of
from eventd.log.scan import blocks_at, outlines, pick
from eventd.log.values import Record
from eventd.store.database import fetch, fetch_in
from federation.event import is_alive
from federation.loops import decode_path, may_send

COUNTED = 20_000
"""Blocks that are looked at to count what waits for a peer, or records where blocks have to be taken apart."""
MOST_KINDS = 1000
"""Combinations of types by which the rest is counted, the commonest first."""
_BATCH = "after, upto, selector_version, exceptions, picked, attempts, sent_at, acked_at, batch_id"


class DeliveryState(StrEnum):
    """How far one record is on its way to one peer."""

    DELIVERED = "delivered"  # the peer acknowledged it
    PENDING = "pending"  # not tried yet
    FAILED = "failed"  # tried; it will be tried again
    EXPIRED = "expired"  # its time was over before the peer had it
    REFUSED = "refused"  # the peer will not take it; it is a dead letter
    IN_PATH = "in_path"  # it came from the peer, or through it
    UNKNOWN = "unknown"  # the proof has been forgotten


class Delivery(NamedTuple):
    """The state of one record at one peer. Times in microseconds.

    `delivered_at` is the latest acknowledgement, `first_at` the first one.
    """

    state: DeliveryState
    attempts: int = 0
    attempted_at: int | None = None
    error: str = ""
    delivered_at: int | None = None
    first_at: int | None = None
    batch_id: str = ""


class Matcher(Protocol):
    """Says whether a record is meant for a peer."""

    def matches(self, record: Record) -> bool: ...


@dataclass(frozen=True, slots=True)
class Version:
    """What a peer's cursor selected from `declared_at` (microseconds) until the next version."""

    declared_at: int
    selection: Matcher


@dataclass(frozen=True, slots=True)
class Repair:
    """A repair that is under way: everything it picks up to its cursor's `until` is sent once more."""

    cursor: Cursor
    selection: Matcher

    def covers(self, record: Record) -> bool:
        """Whether it has yet to send this record."""
        until = self.cursor.until
        within = record.position > self.cursor.position and (until is None or record.position <= until)
        return within and self.selection.matches(record)


@dataclass(frozen=True, slots=True)
class Books:
    """All that is needed to say what became of a record at one peer, except the batches themselves.

    `cursor` is None as long as the node has not taken notice of the peer. `picked` are the ranges of batches that
    repairs delivered, as (row id, after, upto).
    """

    node: str
    wanted: Matcher
    cursor: Cursor | None = None
    versions: Mapping[int, Version] = field(default_factory=dict)
    repairs: Sequence[Repair] = ()
    picked: Sequence[tuple[int, int, int]] = ()


def read_picked(conn: sa.Connection, cursor: str) -> list[tuple[int, int, int]]:
    """The ranges of the batches that repairs delivered for a peer, as (row id, after, upto)."""
    rows = fetch(conn, "SELECT id, after, upto FROM batches WHERE cursor = ? AND picked <> ''", (cursor,))
    return [(row[0], row[1], row[2]) for row in rows]


def derive(conn: sa.Connection, books: Books, records: Sequence[Record], *, now: int) -> list[Delivery | None]:
    """What became of each of `records` (in order of position) at the peer; None where it is not meant for the peer."""
    if not records:
        return []
    proofs = _Proofs.read(conn, books, records[0].position, records[-1].position)
    found = [_derive(books, record, proofs, now) for record in records]
    return _with_letters(conn, books, records, found)


class _Batch(NamedTuple):
    after: int
    upto: int
    version: int
    exceptions: Mapping[int, str]
    picked: frozenset[int]
    attempts: int
    sent_at: int
    acked_at: int
    batch_id: str

    def outcome(self, position: int) -> Delivery:
        """What this batch says of a record it was to carry."""
        reason = self.exceptions.get(position)
        if reason is None:
            acked = self.acked_at
            return Delivery(
                DeliveryState.DELIVERED, self.attempts, self.sent_at, "", acked, acked, batch_id=self.batch_id
            )
        if reason in (DeliveryState.EXPIRED, DeliveryState.IN_PATH):
            return Delivery(DeliveryState(reason))
        return Delivery(DeliveryState.REFUSED, self.attempts, self.sent_at, reason, batch_id=self.batch_id)


class _Proofs:
    """The batches that can prove something about a run of positions."""

    def __init__(self, ranges: Sequence[_Batch], repaired: Mapping[int, Sequence[_Batch]]) -> None:
        self._ranges = ranges
        self._ends = [batch.upto for batch in ranges]
        self._repaired = repaired

    @classmethod
    def read(cls, conn: sa.Connection, books: Books, first: int, last: int) -> _Proofs:
        if books.cursor is None:
            return cls((), {})
        name = books.cursor.name
        # A page without a record to send shares its beginning with the next batch; the one that ends first knows more.
        rows = fetch(
            conn,
            f"SELECT {_BATCH} FROM batches WHERE cursor = ? AND picked = '' AND upto >= ? AND upto <= coalesce("
            "(SELECT upto FROM batches WHERE cursor = ? AND picked = '' AND upto >= ? ORDER BY upto LIMIT 1), ?)"
            " ORDER BY upto, id DESC",
            (name, first, name, last, last),
        )
        near = [at for at, after, upto in books.picked if upto >= first and after < last]
        repaired: dict[int, list[_Batch]] = {}
        for row in sorted(fetch_in(conn, f"SELECT id, {_BATCH} FROM batches WHERE id {{in}}", (), near)):
            batch = _batch(row[1:])
            for position in batch.picked | batch.exceptions.keys():
                repaired.setdefault(position, []).append(batch)
        return cls([_batch(row) for row in rows], repaired)

    def covering(self, position: int) -> _Batch | None:
        """The batch whose range holds the position."""
        at = bisect_left(self._ends, position)
        found = self._ranges[at] if at < len(self._ranges) else None
        return found if found and found.after < position else None

    def repairs(self, position: int) -> Sequence[_Batch]:
        """The repairs that carried, or left out, the record at this position; oldest first."""
        return self._repaired.get(position, ())


def _batch(row: Sequence[object]) -> _Batch:
    after, upto, version, exceptions, picked, *rest = row
    left_out = {position: reason for position, reason in json.loads(str(exceptions) or "[]")}
    return _Batch(after, upto, version, left_out, frozenset(json.loads(str(picked) or "[]")), *rest)  # type: ignore[arg-type]


def _derive(books: Books, record: Record, proofs: _Proofs, now: int) -> Delivery | None:
    if not books.wanted.matches(record):
        return None
    if (record.path or record.node == books.node) and may_send(
        decode_path(record.path), record.node, books.node, relay=True
    ):
        return Delivery(DeliveryState.IN_PATH)
    if books.cursor is None or record.position > books.cursor.position:
        return _ahead(books.cursor, record, now)
    batch = proofs.covering(record.position)
    version = books.versions.get(batch.version) if batch else None
    meant = batch is not None and version is not None and version.selection.matches(record)
    outcomes = [batch.outcome(record.position)] if batch and meant else []
    outcomes += [repair.outcome(record.position) for repair in proofs.repairs(record.position)]
    if delivered := [outcome for outcome in outcomes if outcome.state is DeliveryState.DELIVERED]:
        return delivered[-1]._replace(first_at=delivered[0].delivered_at)
    for repair in books.repairs:
        if repair.covers(record):
            return _ahead(repair.cursor, record, now)
    if outcomes:
        return outcomes[-1]
    return _unproven(books, record, excluded=version is not None)


def _ahead(cursor: Cursor | None, record: Record, now: int) -> Delivery:
    """The state of a record that the cursor has not passed."""
    if not is_alive(record.expires_at, now):
        return Delivery(DeliveryState.EXPIRED)
    if cursor is not None and _was_tried(cursor, record):
        return Delivery(DeliveryState.FAILED, cursor.attempts, cursor.attempted_at, cursor.last_error)
    return Delivery(DeliveryState.PENDING)


def _was_tried(cursor: Cursor, record: Record) -> bool:
    """Whether the tries that failed were about this record.

    A link that cannot even be opened carries nothing: then the try was about everything that waited.
    """
    if not cursor.attempts:
        return False
    if cursor.attempted_upto > cursor.position:
        return record.position <= cursor.attempted_upto
    return cursor.attempted_at is not None and record.recorded_at <= cursor.attempted_at


def _unproven(books: Books, record: Record, *, excluded: bool) -> Delivery:
    """The state of a record that the cursor has passed and no batch speaks of.

    It may have been nobody's business then: `excluded` by the batch's version of the selection, or passed without a
    batch under one. When the selection became wider, what was still alive was sent by a repair; the rest was too late.
    """
    versions = [books.versions[number] for number in sorted(books.versions)]
    for version, successor in pairwise(versions):
        late = record.expires_at is not None and record.expires_at < successor.declared_at
        in_force = excluded or record.recorded_at < successor.declared_at
        if late and in_force and not version.selection.matches(record):
            return Delivery(DeliveryState.EXPIRED)
    return Delivery(DeliveryState.UNKNOWN)


def _with_letters(
    conn: sa.Connection, books: Books, records: Sequence[Record], found: list[Delivery | None]
) -> list[Delivery | None]:
    """The refused ones with the words the dead letter has for it."""
    refused = [r.position for r, d in zip(records, found, strict=True) if d and d.state is DeliveryState.REFUSED]
    if not refused or books.cursor is None:
        return found
    sql = "SELECT position, reason, detail, attempts FROM dead_letters WHERE cursor = ? AND position {in}"
    letters = {row[0]: row[1:] for row in fetch_in(conn, sql, (books.cursor.name,), refused)}
    return [_worded(d, letters.get(r.position)) for r, d in zip(records, found, strict=True)]


def _worded(delivery: Delivery | None, letter: tuple[str, str, int] | None) -> Delivery | None:
    if delivery is None or letter is None or delivery.state is not DeliveryState.REFUSED:
        return delivery
    reason, detail, attempts = letter
    return delivery._replace(error=f"{reason}: {detail}" if detail else reason, attempts=attempts)


class Lag(NamedTuple):
    """What waits for a peer: records that are alive and meant for it. `oldest` is when the first was recorded."""

    events: int
    oldest: int | None


def read_lag(conn: sa.Connection, topic_id: int, wanted: Wanted, *, after: int, now: int) -> Lag:
    """What waits for a peer whose cursor is at `after`. Times in microseconds.

    Beyond COUNTED only the types are looked at: all that could be meant is counted there.
    """
    events, looked, last = 0, 0, read_head(conn).last
    times: list[int] = []
    undecided: list[int] = []
    for block in outlines(conn, topic_id, after, last, own=wanted.own):
        if looked >= COUNTED:
            further, recorded_at = _lag_by_types(conn, wanted, block, last)
            events += further
            times += [recorded_at] if recorded_at is not None else []
            break
        meant = wanted.settles(block, now)
        if meant is None:
            undecided.append(block.position)
            looked += cost_of(block)
        else:
            looked += 1
        if meant:
            events += block.last - max(after, block.position - 1)
            times.append(block.recorded_at)
    for block, _ in blocks_at(conn, undecided):
        part = block.within(after, block.last)
        count = sum(wanted.waits(record, now) for record in unpack(part)) if part else 0
        events += count
        times += [block.recorded_at] if count else []
    return Lag(events, min(times, default=None))


def _lag_by_types(conn: sa.Connection, wanted: Wanted, first: Block, last: int) -> Lag:
    """What could be meant for a peer from a block on: the database adds up, which holds up nobody else."""
    own = "AND own = 1" if wanted.own else ""
    rows = fetch(
        conn,
        f"SELECT own, types, sum(records), min(recorded_at) FROM blocks WHERE topic_id = ? AND position >= ? {own}"
        " GROUP BY own, types ORDER BY 3 DESC LIMIT ?",
        (first.topic_id, first.position, MOST_KINDS),
    )
    whole = first._replace(records=last + 1 - first.position)
    kinds = [(whole._replace(own=entered, types=types), int(records), at) for entered, types, records, at in rows]
    meant = [(records, at) for kind, records, at in kinds if wanted.selection.settles(kind) is not False]
    return Lag(sum(records for records, _ in meant), min((at for _, at in meant), default=None))


def count_stale(conn: sa.Connection, topic_id: int, wanted: Wanted, *, after: int, now: int) -> int:
    """Events that were passed on to a peer with a shorter life: their refresh lies beyond its cursor, at `after`."""
    sql = "SELECT position FROM event_ids WHERE topic_id = ? AND first_position <= ? AND position > ?"
    refreshed = [position for (position,) in fetch(conn, sql, (topic_id, after, after))]
    found = (record for block, places in blocks_at(conn, refreshed) for record in pick(block, places))
    return sum(wanted.waits(record, now) for record in found)


def read_versions(conn: sa.Connection, cursor: str) -> list[tuple[int, int, dict[str, Any]]]:
    """Every version of what a cursor selected, as (version, declared at, selection)."""
    rows = fetch(conn, "SELECT version, declared_at, selection FROM selectors WHERE cursor = ?", (cursor,))
    return [(version, declared_at, json.loads(selection)) for version, declared_at, selection in rows]
