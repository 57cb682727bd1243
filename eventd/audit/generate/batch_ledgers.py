"""The ledgers of batches: receipts, kept by the sender of each batch, and inbound batches, kept by the receiver."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from eventd.audit.generate import arrow_columns
from eventd.audit.generate.batches import ALGORITHM, Batches, Receipt, evidence, key_id, key_ids, refused_in
from eventd.audit.generate.flows import IN_PATH, Flow
from eventd.audit.generate.log_positions import positions_of
from eventd.audit.generate.pseudo_random import Ints
from eventd.audit.generate.segments import SegmentRows, divide, epochs_of
from eventd.audit.generate.world import World
from eventd.lake.schema import Ledger

_TABLE_ROWS: Final = 65_536
"""Batches per Arrow table. Their receipts are long, so more would need much memory."""


class ReceiptsLedger:
    """The receipts ledger of one node.

    While the tables of its segments are read, `digests` gets the digest of each batch's receipt, or an empty string
    for a batch with no event left to send.
    """

    def __init__(self, world: World, node: int, batches: Batches) -> None:
        self._world, self._node, self._batches = world, node, batches
        self.digests: list[str] = []

    def segments(self) -> Iterator[SegmentRows]:
        """Yield the segments of the receipts ledger, in order; reading their tables fills `digests`."""
        world, journal = self._world, self._batches.journal
        times, epoch_indexes = journal.at + world.skews[self._node], epochs_of(world, self._node, journal.at)
        for one in divide(np.ones(len(journal), np.int64), times, epoch_indexes, _segment_rows(world)):
            tables = (self._table(one.epoch_index, *bounds) for bounds in _table_bounds(one.begin, one.end))
            yield SegmentRows(Ledger.RECEIPTS, one.epoch_index, one.begin, one.end, int(times[one.begin]), tables)

    def _table(self, epoch_index: int, begin: int, end: int) -> Any:
        world, node, batches = self._world, self._node, self._batches
        rows, some = end - begin, slice(begin, end)
        empty = batches.column(lambda c: c.empty, np.bool_)[some]
        found = batches.receipts(begin, end, kept=True)
        digests = [receipt.digest if receipt else "" for receipt in found]
        self.digests += digests

        def column(of: Any) -> Ints:
            values: Ints = batches.column(of)[some]
            return values

        sent, recorded = batches.column(lambda c: c.sent)[some], column(lambda c: c.recorded)
        peer, accepted, refused = column(lambda c: c.peer), column(lambda c: c.accepted), column(lambda c: c.refusals)
        keys = np.where(empty, 2 * len(world.names), key_id(world, node, sent))
        signers = key_id(world, 0, recorded) + 2 * peer
        selections, chosen = self._selections(begin, end)
        return arrow_columns.table(
            Ledger.RECEIPTS,
            _ledger_columns(world, node, epoch_index, begin, rows)
            | _range_columns(batches, some)
            | {
                "peer": arrow_columns.dictionary(world.names, peer),
                "batch_id": arrow_columns.dictionary(
                    *arrow_columns.distinct(arrow_columns.strings(batches.ids[some]), empty)
                ).cast(pa.string()),
                "link_epoch": _epochs(batches, some),
                "sent": arrow_columns.int32(accepted + refused + column(lambda c: c.known)),
                "accepted": arrow_columns.int32(accepted, empty),
                "duplicates": arrow_columns.int32(column(lambda c: c.known), empty),
                "refused": arrow_columns.int32(refused, empty),
                "peer_upto": arrow_columns.int64(column(lambda c: c.mark), empty),
                "selector_version": arrow_columns.int32(column(lambda c: c.version)),
                "selection": arrow_columns.dictionary(selections, chosen),
                "attempts": arrow_columns.int32(column(lambda c: c.attempts)),
                "sent_at": arrow_columns.timestamps(sent + world.skews[node]),
                "acked_at": arrow_columns.timestamps(batches.journal.at[some] + world.skews[node]),
                "peer_recorded_at": arrow_columns.timestamps(recorded + world.skews[peer], empty),
                "status": arrow_columns.int16(np.where(empty, 0, 200)),
                "protocol": arrow_columns.constant("v2", rows),
                "key_id": arrow_columns.dictionary([*key_ids(world), ""], keys),
                "receipt_key_id": arrow_columns.dictionary(key_ids(world), signers, empty),
                "receipt_alg": arrow_columns.dictionary([ALGORITHM], np.zeros(rows, np.int32), empty),
                "receipt_digest": arrow_columns.dictionary(*arrow_columns.distinct(digests, empty)),
                "receipt": pa.array(self._evidence(found, signers, recorded + world.skews[peer]), pa.string()),
                "exceptions": pa.array(self._exceptions(begin, end), pa.string()),
            },
        )

    def _evidence(self, found: list[Receipt | None], signers: Ints, at: Ints) -> list[str]:
        names = key_ids(self._world)
        signed = zip(found, signers.tolist(), at.tolist(), strict=True)
        return [evidence(receipt, names[key], time) if receipt else "" for receipt, key, time in signed]

    def _selections(self, begin: int, end: int) -> tuple[list[str], Ints]:
        """Return the node's distinct selections as JSON, and the index of that of each batch, `begin` to `end` - 1."""
        world = self._world
        known: list[str] = []
        codes: dict[tuple[int, int, int], int] = {}
        for link in world.links:
            for version, terms in enumerate(link.terms if link.sender == self._node else (), 1):
                text = json.dumps(terms.selection, separators=(",", ":"))
                known += [] if text in known else [text]
                codes[link.group, link.peer, version] = known.index(text)
        group, peer = self._batches.column(lambda c: c.group), self._batches.column(lambda c: c.peer)
        version = self._batches.column(lambda c: c.version)
        picked = zip(group[begin:end].tolist(), peer[begin:end].tolist(), version[begin:end].tolist(), strict=True)
        return known, np.array([codes[one] for one in picked], np.int64)

    def _exceptions(self, begin: int, end: int) -> list[str]:
        """Return, for each of these batches, a JSON list of [position, reason] for events that were not delivered."""
        batches, journal = self._batches, self._batches.journal
        lines = batches.column(lambda c: np.diff(c.row_at))
        delivered = batches.column(lambda c: c.accepted + c.known)
        found = ["[]"] * (end - begin)
        for at in (begin + np.flatnonzero((lines != delivered)[begin:end])).tolist():
            flow = self._world.flows[int(journal.flow[at])]
            found[at - begin] = _exceptions_of(self._world, flow, int(journal.batch[at]))
        return found


class InboundLedger:
    """The inbound ledger of one node: a row for each batch that it received."""

    def __init__(self, world: World, node: int, batches: Batches) -> None:
        self._world, self._node, self._batches = world, node, batches

    def segments(self) -> Iterator[SegmentRows]:
        """Yield the segments of the inbound ledger, in order; their tables are built when they are read."""
        world, journal = self._world, self._batches.journal
        times, epoch_indexes = journal.at + world.skews[self._node], epochs_of(world, self._node, journal.at)
        for one in divide(np.ones(len(journal), np.int64), times, epoch_indexes, _segment_rows(world)):
            tables = (self._table(one.epoch_index, *bounds) for bounds in _table_bounds(one.begin, one.end))
            yield SegmentRows(Ledger.INBOUND, one.epoch_index, one.begin, one.end, int(times[one.begin]), tables)

    def _table(self, epoch_index: int, begin: int, end: int) -> Any:
        world, node, batches = self._world, self._node, self._batches
        rows, some = end - begin, slice(begin, end)
        found = [receipt for receipt in batches.receipts(begin, end, kept=False) if receipt]
        sender, sent = batches.column(lambda c: c.sender)[some], batches.column(lambda c: c.sent)[some]
        repair = batches.column(lambda c: c.repair, np.bool_)[some]
        counts = {
            "accepted": batches.column(lambda c: c.accepted),
            "duplicates": batches.column(lambda c: c.known),
            "refused": batches.column(lambda c: c.refusals),
        }
        ranges = {
            "after": batches.column(lambda c: c.after)[some],
            "upto": batches.column(lambda c: c.upto)[some],
        }
        return arrow_columns.table(
            Ledger.INBOUND,
            _ledger_columns(world, node, epoch_index, begin, rows)
            | _range_columns(batches, some)
            | {name: arrow_columns.int32(values[some]) for name, values in counts.items()}
            | {
                name: arrow_columns.int64(np.where(repair, 0, values)) for name, values in ranges.items()
            }  # a receiver stores no range for a repair
            | {
                "peer": arrow_columns.dictionary(world.names, sender),
                "batch_id": arrow_columns.strings(batches.ids[some]),
                "link_epoch": _epochs(batches, some),
                "key_id": arrow_columns.dictionary(key_ids(world), key_id(world, 0, sent) + 2 * sender),
                "body_digest": arrow_columns.dictionary(
                    [f"sha-256=:{one.batch_digest}:" for one in found], np.arange(rows)
                ),
                "recorded_at": arrow_columns.timestamps(batches.journal.at[some] + world.skews[node]),
                "receipt": pa.array([one.body for one in found], pa.string()),
                "receipt_digest": arrow_columns.dictionary([one.digest for one in found], np.arange(rows)),
            },
        )


def _ledger_columns(world: World, node: int, epoch_index: int, begin: int, rows: int) -> dict[str, Any]:
    return {
        "number": arrow_columns.int64(np.arange(begin + 1, begin + rows + 1)),
        "node": arrow_columns.constant(world.names[node], rows),
        "epoch": arrow_columns.constant(world.epoch(node, epoch_index), rows),
    }


def _range_columns(batches: Batches, some: slice) -> dict[str, Any]:
    groups = batches.column(lambda c: c.group)[some]
    return {
        "group": arrow_columns.dictionary(batches.world.groups, groups),
        "incarnation": arrow_columns.int64(np.zeros(len(groups), np.int64)),
        "after": arrow_columns.int64(batches.column(lambda c: c.after)[some]),
        "upto": arrow_columns.int64(batches.column(lambda c: c.upto)[some]),
        "repair": arrow_columns.booleans(batches.column(lambda c: c.repair, np.bool_)[some]),
    }


def _epochs(batches: Batches, some: slice) -> Any:
    """Return a column with, for each batch of `some`, the name of the epoch in which its sender sent it."""
    world = batches.world
    names = [world.epoch(node, epoch_index) for node in range(len(world.names)) for epoch_index in (0, 1)]
    return arrow_columns.dictionary(
        names, batches.column(lambda c: 2 * c.sender + epochs_of(world, c.sender, c.sent))[some]
    )


def _exceptions_of(world: World, flow: Flow, batch: int) -> str:
    low, high = flow.row_at[batch : batch + 2]
    numbers = flow.rows[low:high]
    expired = numbers[np.isin(numbers, world.emitters[flow.source].expiring)]
    passed = numbers if flow.outcome == IN_PATH else numbers[:0]
    found = [(position, "refused") for position, _ in refused_in(world, flow, batch)]
    for some, reason in ((expired, "expired"), (passed, IN_PATH)):
        found += [(position, reason) for position in positions_of(world, flow, some).position.tolist()]
    return json.dumps(sorted(found), separators=(",", ":"))


def _segment_rows(world: World) -> int:
    return max(20, world.segment_rows // 20)


def _table_bounds(begin: int, end: int) -> Iterator[tuple[int, int]]:
    for at in range(begin, end, _TABLE_ROWS):
        yield at, min(end, at + _TABLE_ROWS)
