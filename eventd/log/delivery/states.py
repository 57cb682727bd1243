"""The delivery of each record to each peer, derived from the delivery ledger: delivered, pending, or how it ended.

There is no row per record and peer. A delivered batch covers a range of positions under one version of the peer's
selection, with exceptions; a repair's batch lists the positions it delivered. If the batch that would prove a delivery
has been deleted, the state is `unknown`, never `delivered`.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

from eventd.log.core.blocks import Block
from eventd.log.core.values import Record
from eventd.log.cursors.cursors import Cursor
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch, fetch_in
from federation.event import is_alive
from federation.loops import decode_path, may_send

_BATCH = "after, upto, selector_version, exceptions, picked, attempts, sent_at, acked_at, batch_id"


class DeliveryState(StrEnum):
    """The state of the delivery of one record to one peer."""

    DELIVERED = "delivered"  # the peer acknowledged it
    PENDING = "pending"  # not attempted yet
    FAILED = "failed"  # attempted, or on a link that refuses everything; it will be retried
    EXPIRED = "expired"  # it expired before the peer had it
    REFUSED = "refused"  # the peer refused it for good; it is a dead letter
    IN_PATH = "in_path"  # it came from the peer, or through it
    UNKNOWN = "unknown"  # the ledger row that would prove it was deleted


class Delivery(NamedTuple):
    """The state of one record at one peer. Times in microseconds.

    `delivered_at` is the acknowledgement by the latest repair, or without a repair by the batch that covers the record;
    `first_at` that by the batch, or without it by the first repair.
    """

    state: DeliveryState
    attempts: int = 0
    attempted_at: int | None = None
    error: str = ""
    delivered_at: int | None = None
    first_at: int | None = None
    batch_id: str = ""


class Matcher(Protocol):
    """Interface: `matches` returns whether a record is meant for a peer.

    `settles` returns True if all of a block's records are, False if none is, None if each must be checked.
    """

    def matches(self, record: Record) -> bool: ...

    def settles(self, block: Block) -> bool | None: ...


@dataclass(frozen=True, slots=True)
class Version:
    """A selection of a peer's cursor, which it used from `declared_at` (microseconds) until the next version."""

    declared_at: int
    selection: Matcher


@dataclass(frozen=True, slots=True)
class Repair:
    """A running repair: its cursor, and the selection of the records that it sends, up to the cursor's `until`."""

    cursor: Cursor
    selection: Matcher

    def covers(self, record: Record) -> bool:
        """Return whether the repair has yet to send this record."""
        until = self.cursor.until
        within = record.position > self.cursor.position and (until is None or record.position <= until)
        return within and self.selection.matches(record)


@dataclass(frozen=True, slots=True)
class LinkLedger:
    """The rows that decide the delivery of a record to one peer, except the batches themselves.

    `cursor` is None until the node has registered the peer. `picked` are the ranges of batches that repairs delivered,
    as (row id, after, upto).
    """

    node: str
    wanted: Matcher
    cursor: Cursor | None = None
    versions: Mapping[int, Version] = field(default_factory=dict)
    repairs: Sequence[Repair] = ()
    picked: Sequence[tuple[int, int, int]] = ()


def read_picked(conn: Connection, cursor: str) -> list[tuple[int, int, int]]:
    """Return the ranges of the batches that repairs delivered to a peer, as (row id, after, upto)."""
    rows = fetch(conn, "SELECT id, after, upto FROM batches WHERE cursor = ? AND picked <> ''", (cursor,))
    return [(row[0], row[1], row[2]) for row in rows]


def derive(conn: Connection, ledger: LinkLedger, records: Sequence[Record], *, now: int) -> list[Delivery | None]:
    """Return the delivery of each of `records`, which are in order of position; None for one not meant for the peer."""
    if not records:
        return []
    proofs = _Proofs.read(conn, ledger, records[0].position, records[-1].position)
    found = [_derive(ledger, record, proofs, now) for record in records]
    return _with_letters(conn, ledger, records, found)


class _LedgerRow(NamedTuple):
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
        """Return the delivery of a record that this batch covers."""
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
    """The batches that cover a range of positions, and those of repairs that delivered or left out some of it."""

    def __init__(self, ranges: Sequence[_LedgerRow], repaired: Mapping[int, Sequence[_LedgerRow]]) -> None:
        self._ranges = ranges
        self._ends = [batch.upto for batch in ranges]
        self._repaired = repaired

    @classmethod
    def read(cls, conn: Connection, ledger: LinkLedger, first: int, last: int) -> _Proofs:
        if ledger.cursor is None:
            return cls((), {})
        name = ledger.cursor.name
        # A page without a record to send begins where the next batch does; the one that ends first is more precise.
        rows = fetch(
            conn,
            f"SELECT {_BATCH} FROM batches WHERE cursor = ? AND picked = '' AND upto >= ? AND upto <= coalesce("
            "(SELECT upto FROM batches WHERE cursor = ? AND picked = '' AND upto >= ? ORDER BY upto LIMIT 1), ?)"
            " ORDER BY upto, id DESC",
            (name, first, name, last, last),
        )
        near = [at for at, after, upto in ledger.picked if upto >= first and after < last]
        repaired: dict[int, list[_LedgerRow]] = {}
        for row in sorted(fetch_in(conn, f"SELECT id, {_BATCH} FROM batches WHERE id {{in}}", (), near)):
            batch = _batch(row[1:])
            for position in sorted(batch.picked | batch.exceptions.keys()):
                repaired.setdefault(position, []).append(batch)
        return cls([_batch(row) for row in rows], repaired)

    def covering(self, position: int) -> _LedgerRow | None:
        """Return the batch, not of a repair, whose range contains the position; None if none does."""
        at = bisect_left(self._ends, position)
        found = self._ranges[at] if at < len(self._ranges) else None
        return found if found and found.after < position else None

    def repairs(self, position: int) -> Sequence[_LedgerRow]:
        """Return the batches of repairs that delivered, or left out, the record at this position; oldest first."""
        return self._repaired.get(position, ())

    def across(self, first: int, last: int) -> list[_LedgerRow] | None:
        """Return the batches that together cover all of these positions; an empty list if none covers any of them.

        None if only some of them are covered.
        """
        found: list[_LedgerRow] = []
        at = bisect_left(self._ends, first)
        while at < len(self._ranges) and self._ranges[at].after < last:
            begun = found[-1].upto + 1 if found else first
            if self._ranges[at].after >= begun:
                return None
            found.append(self._ranges[at])
            if found[-1].upto >= last:
                return found
            at = bisect_left(self._ends, found[-1].upto + 1)
        return None if found else []

    def touched_by_repairs(self, first: int, last: int) -> bool:
        """Return whether a repair delivered, or left out, any of these positions."""
        return any(first <= position <= last for position in self._repaired)


def _batch(row: Sequence[object]) -> _LedgerRow:
    after, upto, version, exceptions, picked, *rest = row
    left_out = {position: reason for position, reason in json.loads(str(exceptions) or "[]")}
    return _LedgerRow(after, upto, version, left_out, frozenset(json.loads(str(picked) or "[]")), *rest)  # type: ignore[arg-type]


class UniformDelivery(NamedTuple):
    """One state for all records of a block.

    `first_at`: the latest acknowledgement of the batches that delivered them (not repairs), in microseconds; else None.
    """

    state: DeliveryState
    first_at: int | None = None


class BlockLedger:
    """This node's ledger of deliveries to one peer, for sums over blocks without decoding millions of records."""

    def __init__(self, ledger: LinkLedger, proofs: _Proofs) -> None:
        self._ledger = ledger
        self._proofs = proofs

    @classmethod
    def read(cls, conn: Connection, ledger: LinkLedger, first: int, last: int) -> BlockLedger:
        """Return the ledger with its rows about the positions from `first` to `last`, inclusive."""
        return cls(ledger, _Proofs.read(conn, ledger, first, last))

    def uniform(self, block: Block) -> UniformDelivery | None:
        """Return the one delivery state of all of a block's records; None if they may differ, or must be decoded.

        The caller ensures that all of them are meant for the peer, may be sent to it, and never expire.
        """
        cursor = self._ledger.cursor
        if cursor is None or block.position > cursor.position:
            return _uniform_ahead(cursor, block)
        return self._passed(block) if block.last <= cursor.position else None

    def _passed(self, block: Block) -> UniformDelivery | None:
        batches = self._proofs.across(block.position, block.last)
        if batches is None:
            return None
        if batches:
            plain = all(self._brought_all(batch, block) for batch in batches)
            return UniformDelivery(DeliveryState.DELIVERED, max(batch.acked_at for batch in batches)) if plain else None
        single = len(self._ledger.versions) < 2 and not self._ledger.repairs
        repaired = self._proofs.touched_by_repairs(block.position, block.last)
        return UniformDelivery(DeliveryState.UNKNOWN) if single and not repaired else None

    def _brought_all(self, batch: _LedgerRow, block: Block) -> bool:
        """Return whether a batch delivered every record of a block that lies in the range of the batch."""
        version = self._ledger.versions.get(batch.version)
        meant = version is not None and version.selection.settles(block)
        return bool(meant) and not any(block.position <= at <= block.last for at in batch.exceptions)


def _uniform_ahead(cursor: Cursor | None, block: Block) -> UniformDelivery | None:
    if cursor is not None and cursor.is_refused:
        return UniformDelivery(DeliveryState.FAILED)
    if cursor is None or not cursor.attempts:
        return UniformDelivery(DeliveryState.PENDING)
    if cursor.position < block.position <= cursor.attempted_upto < block.last:
        return None
    if cursor.attempted_upto > cursor.position:
        tried = block.last <= cursor.attempted_upto
    else:
        tried = cursor.attempted_at is not None and block.recorded_at <= cursor.attempted_at
    return UniformDelivery(DeliveryState.FAILED if tried else DeliveryState.PENDING)


def _derive(ledger: LinkLedger, record: Record, proofs: _Proofs, now: int) -> Delivery | None:
    if not ledger.wanted.matches(record):
        return None
    if (record.path or record.node == ledger.node) and may_send(
        decode_path(record.path), record.node, ledger.node, relay=True
    ):
        return Delivery(DeliveryState.IN_PATH)
    if ledger.cursor is None or record.position > ledger.cursor.position:
        return _ahead(ledger.cursor, record, now)
    batch = proofs.covering(record.position)
    version = ledger.versions.get(batch.version) if batch else None
    meant = batch is not None and version is not None and version.selection.matches(record)
    outcomes = [batch.outcome(record.position)] if batch and meant else []
    outcomes += [repair.outcome(record.position) for repair in proofs.repairs(record.position)]
    if delivered := [outcome for outcome in outcomes if outcome.state is DeliveryState.DELIVERED]:
        return delivered[-1]._replace(first_at=delivered[0].delivered_at)
    for repair in ledger.repairs:
        if repair.covers(record):
            return _ahead(repair.cursor, record, now)
    if outcomes:
        return outcomes[-1]
    return _unproven(ledger, record, excluded=version is not None)


def _ahead(cursor: Cursor | None, record: Record, now: int) -> Delivery:
    """Return the delivery of a record that the cursor has not passed: expired, failed or pending."""
    if not is_alive(record.expires_at, now):
        return Delivery(DeliveryState.EXPIRED)
    if cursor is not None and _was_tried(cursor, record):
        return Delivery(DeliveryState.FAILED, cursor.attempts, cursor.attempted_at, cursor.last_error)
    if cursor is not None and cursor.is_refused:
        why = ": ".join(part for part in (f"link {cursor.state}", cursor.reason, cursor.last_error) if part)
        return Delivery(DeliveryState.FAILED, cursor.attempts, cursor.attempted_at, why)
    return Delivery(DeliveryState.PENDING)


def _was_tried(cursor: Cursor, record: Record) -> bool:
    """Return whether the cursor's failed attempts, if any, included this record.

    If the link cannot even be opened, the attempt was about its whole backlog.
    """
    if not cursor.attempts:
        return False
    if cursor.attempted_upto > cursor.position:
        return record.position <= cursor.attempted_upto
    return cursor.attempted_at is not None and record.recorded_at <= cursor.attempted_at


def _unproven(ledger: LinkLedger, record: Record, *, excluded: bool) -> Delivery:
    """Return the delivery of a record that the cursor has passed without a batch for it: expired or unknown.

    The record may not have been meant for the peer when the cursor passed it: `excluded` by the selection of the batch
    that covers it, or passed without a batch. When the selection became wider, a repair sent the records that were
    still live; the others were too late.
    """
    versions = [ledger.versions[number] for number in sorted(ledger.versions)]
    for version, successor in pairwise(versions):
        late = record.expires_at is not None and record.expires_at < successor.declared_at
        in_force = excluded or record.recorded_at < successor.declared_at
        if late and in_force and not version.selection.matches(record):
            return Delivery(DeliveryState.EXPIRED)
    return Delivery(DeliveryState.UNKNOWN)


def _with_letters(
    conn: Connection, ledger: LinkLedger, records: Sequence[Record], found: list[Delivery | None]
) -> list[Delivery | None]:
    """Return the deliveries, the refused ones with the reason and attempts of their dead letter, if it is stored."""
    refused = [r.position for r, d in zip(records, found, strict=True) if d and d.state is DeliveryState.REFUSED]
    if not refused or ledger.cursor is None:
        return found
    sql = "SELECT position, reason, detail, attempts FROM dead_letters WHERE cursor = ? AND position {in}"
    letters = {row[0]: row[1:] for row in fetch_in(conn, sql, (ledger.cursor.name,), refused)}
    return [_worded(d, letters.get(r.position)) for r, d in zip(records, found, strict=True)]


def _worded(delivery: Delivery | None, letter: tuple[str, str, int] | None) -> Delivery | None:
    if delivery is None or letter is None or delivery.state is not DeliveryState.REFUSED:
        return delivery
    reason, detail, attempts = letter
    return delivery._replace(error=f"{reason}: {detail}" if detail else reason, attempts=attempts)


def read_versions(conn: Connection, cursor: str) -> list[tuple[int, int, dict[str, Any]]]:
    """Return every stored version of a cursor's selection, unordered, as (version, declared at, selection)."""
    rows = fetch(conn, "SELECT version, declared_at, selection FROM selectors WHERE cursor = ?", (cursor,))
    return [(version, declared_at, json.loads(selection)) for version, declared_at, selection in rows]
