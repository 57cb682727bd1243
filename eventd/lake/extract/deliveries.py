"""The ledger `deliveries`: each row of a batch is expanded to rows of the events that the batch delivered, or should
have delivered.

A batch row proves the range (after, upto] under one version of the receiver's selection, minus its exceptions. The
range may begin before the page that was sent, because the cursor had passed records that it did not select. The number
of delivered events is stored, so the page is found by walking back from the end of the range until that many are
collected. If there are fewer, retention evicted the others, or the selection is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from eventd.lake.extract.batch_blocks import Part, PositionRange, count, find_at, read_payloads, walk_back
from eventd.lake.extract.batches import BatchRow, Selections
from eventd.lake.extract.block_columns import BlockColumns, Memory
from eventd.lake.extract.result import Columns, EvictedRows, no_rows
from eventd.lake.extract.scope import PeerCursor, Scope
from eventd.lake.schema import Ledger
from eventd.log.delivery.evidence import read_proof
from eventd.log.delivery.selection import Selection
from eventd.log.delivery.states import DeliveryState
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch_in
from federation.selector import Selector

_NOT_SENT = (DeliveryState.EXPIRED, DeliveryState.IN_PATH)


class DeliveryColumns(NamedTuple):
    """Deliveries as columns, and the ranges for which no rows can be made, because their events are evicted or not
    known."""

    columns: Columns
    lost: list[EvictedRows]


def spread(
    conn: Connection, batches: Sequence[BatchRow], places: Scope, selections: Selections, memory: Memory
) -> DeliveryColumns:
    """Return the rows of these batches, batch by batch: first the delivered events, then the events that were refused
    or not sent."""
    columns, lost = no_rows(Ledger.DELIVERIES), []
    for batch in batches:
        peer = places.peers[batch.cursor]
        parts = _delivered(conn, batch, peer, selections, memory)
        missing = batch.events - count(parts)
        evidence = _evidence_columns(batch, peer, places.epoch)
        _add(columns, parts, evidence)
        for outcome, error, left_out in _left_out(conn, batch, memory):
            missing += len(left_out.positions) - count(left_out.parts)
            _add(columns, left_out.parts, evidence | _undelivered_columns(outcome, error))
        if missing > 0:
            bounds = (batch.epoch, batch.after, batch.upto)
            lost.append(EvictedRows(peer.place.group, peer.peer, *bounds, missing, "deliveries_lost"))
    return DeliveryColumns(columns, lost)


def _delivered(
    conn: Connection, batch: BatchRow, peer: PeerCursor, selections: Selections, memory: Memory
) -> list[Part]:
    """Return the delivered records that are still stored, in order.

    Unless a repair sent the batch, there are none if its selection is unknown.
    """
    if batch.picked:
        return find_at(conn, memory, [place for place in batch.picked if place not in batch.exceptions])
    selection = selections.of(batch.cursor, batch.selector_version)
    if not batch.events or selection is None:
        return []
    found: list[Part] = []
    open_ = batch.events
    within = PositionRange(peer.topic_id, batch.after, batch.upto, own=not selection.relay)
    for apart in walk_back(conn, memory, within, lambda block: selection.settles(block) is False):
        indexes = _selected(conn, apart, batch, selection)[-open_:]
        if indexes:
            found.append((apart, indexes))
            open_ -= len(indexes)
        if not open_:
            break
    return found[::-1]


def _selected(conn: Connection, apart: BlockColumns, batch: BatchRow, selection: Selection) -> Sequence[int]:
    """Return the indexes of a block's records that are in the batch's range, selected, and not among its exceptions."""
    block = apart.block
    first, stop = max(0, batch.after + 1 - block.position), min(block.records, batch.upto + 1 - block.position)
    within: Sequence[int] = range(first, stop)
    if selection.settles(block) is None:
        within = _matching(conn, apart, within, selection.selector)
    if batch.exceptions and not batch.exceptions.keys().isdisjoint(range(block.position, block.last + 1)):
        within = [at for at in within if block.position + at not in batch.exceptions]
    return within


def _matching(conn: Connection, apart: BlockColumns, within: Sequence[int], selector: Selector) -> Sequence[int]:
    types, subjects, sources = apart.types, apart.subjects, apart.sources
    takes = msgspec.structs.replace(selector, payload=()).matches
    found = [at for at in within if takes(type=types[at], subject=subjects[at], source=sources[at])]
    if not (selector.payload and found):
        return found
    payloads = read_payloads(conn, apart.block, found)
    wanted = dict(selector.payload).items()
    return [at for at, payload in zip(found, payloads, strict=False) if wanted <= payload.items()]


class _LeftOut(NamedTuple):
    positions: Sequence[int]
    parts: Sequence[Part]


def _left_out(conn: Connection, batch: BatchRow, memory: Memory) -> Iterator[tuple[str, str, _LeftOut]]:
    """Yield each outcome and error class, with the records of the batch's range that were not delivered for that
    reason."""
    if not batch.exceptions:
        return
    refused = [place for place, reason in batch.exceptions.items() if reason not in _NOT_SENT]
    reasons = _read_reasons(conn, batch.cursor, refused)
    kinds: dict[tuple[str, str], list[int]] = {}
    for place, reason in sorted(batch.exceptions.items()):
        sent = reason not in _NOT_SENT
        kind = (DeliveryState.REFUSED.value, reasons.get(place, reason)) if sent else (reason, "")
        kinds.setdefault(kind, []).append(place)
    for (outcome, error), positions in kinds.items():
        yield outcome, error, _LeftOut(positions, find_at(conn, memory, positions))


def _read_reasons(conn: Connection, cursor: str, positions: Sequence[int]) -> Mapping[int, str]:
    """Return the reason of refusal by position, from the dead letters; positions without one are absent."""
    if not positions:
        return {}
    sql = "SELECT position, reason FROM dead_letters WHERE cursor = ? AND position {in}"
    return dict(fetch_in(conn, sql, (cursor,), positions))


def _evidence_columns(batch: BatchRow, peer: PeerCursor, epoch: str) -> dict[str, Any]:
    """Return the column values shared by all events that a batch delivered."""
    proof = read_proof(batch.receipt)
    return {
        "number": batch.id,
        "node": peer.place.node,
        "epoch": epoch,
        "group": peer.place.group,
        "peer": peer.peer,
        "attempts": batch.attempts,
        "outcome": DeliveryState.DELIVERED.value,
        "status": batch.status,
        "error": "",
        "protocol": batch.protocol,
        "key_id": batch.key_id,
        "batch_id": batch.batch_id,
        "repair": bool(batch.picked),
        "attempt_at": batch.sent_at,
        "done_at": batch.acked_at,
        "peer_recorded_at": None if proof is None else proof.recorded_at,
        "receipt_digest": "" if proof is None else proof.digest,
        "selector_version": batch.selector_version,
    }


def _undelivered_columns(outcome: str, error: str) -> dict[str, Any]:
    """Return the column values that an undelivered event has instead of those of `_evidence_columns`."""
    if outcome in _NOT_SENT:
        unsent = {"attempts": 0, "status": 0, "peer_recorded_at": None, "receipt_digest": ""}
        return {"outcome": outcome, **unsent}
    return {"outcome": outcome, "error": error, "peer_recorded_at": None}


def _add(columns: Columns, parts: Sequence[Part], shared: Mapping[str, Any]) -> None:
    """Append the rows of some records to the columns; `shared` has the column values that these rows share."""
    total = 0
    for apart, indexes in parts:
        block = apart.block
        places = [block.position + at for at in indexes]
        total += len(places)
        columns["position"] += places
        shift = block.seq - block.position
        columns["seq"] += [place + shift for place in places]
        columns["recorded_at"] += [block.recorded_at] * len(places)
        for name, values in _of_records(apart):
            columns[name] += taken(values, indexes)
    if total:
        for name, value in shared.items():
            columns[name] += [value] * total


def _of_records(apart: BlockColumns) -> tuple[tuple[str, Sequence[Any]], ...]:
    return (
        ("id", apart.ids),
        ("source", apart.sources),
        ("type", apart.types),
        ("bytes", apart.sizes),
        ("event_at", apart.event_at),
        ("fingerprint", apart.fingerprints),
    )


def taken(values: Sequence[Any], indexes: Sequence[int]) -> Sequence[Any]:
    """Return the values at these indexes; a range is taken as a slice."""
    if isinstance(indexes, range):
        return values[indexes.start : indexes.stop]
    return [values[at] for at in indexes]
