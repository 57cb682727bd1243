"""The `deliveries` ledger: a row for each event of each batch to a peer, delivered or not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from eventd.audit.generate import arrow_columns
from eventd.audit.generate.batches import REASON, Batches, key_id, key_ids
from eventd.audit.generate.catalogue import EventCatalogue, EventRows
from eventd.audit.generate.flows import IN_PATH, Flow
from eventd.audit.generate.log_positions import positions_of
from eventd.audit.generate.pseudo_random import Ints
from eventd.audit.generate.segments import Block, SegmentRows, blocks, divide, epochs_of, numbers_of
from eventd.audit.generate.world import World
from eventd.lake.schema import Ledger

_OUTCOMES: Final = ["delivered", "expired", "in_path", "refused"]
_DELIVERED, _EXPIRED, _PASSED, _REFUSED = range(4)
_ERRORS: Final = ["", REASON]


class DeliveriesLedger:
    """The deliveries ledger of one node. `receipts`: the digest of each batch's receipt, empty for a batch without."""

    def __init__(
        self, world: World, node: int, catalogue: EventCatalogue, batches: Batches, receipts: list[str]
    ) -> None:
        self._world, self._node, self._catalogue, self._batches = world, node, catalogue, batches
        self._receipts = pa.array(receipts, pa.string())
        self._journal = batches.journal
        self._lines = batches.column(lambda c: np.diff(c.row_at))
        self._starts = batches.column(lambda c: c.row_at[:-1])
        self._source = batches.column(lambda c: c.source)
        self._columns = {
            "group": batches.column(lambda c: c.group),
            "peer": batches.column(lambda c: c.peer),
            "attempts": batches.column(lambda c: c.attempts),
            "sent": batches.column(lambda c: c.sent) + world.skews[node],
            "done": self._journal.at + world.skews[node],
            "recorded": batches.column(lambda c: c.recorded + world.skews[c.peer]),
            "repair": batches.column(lambda c: c.repair, np.bool_),
            "empty": batches.column(lambda c: c.empty, np.bool_),
            "version": batches.column(lambda c: c.version),
            "key": key_id(world, node, batches.column(lambda c: c.sent)),
        }
        key, unsigned = self._columns["key"], self._columns["empty"]
        self._columns["key"] = np.where(unsigned, 2 * len(world.names), key)
        odd = [c.uid for c in world.flows if c.outcome == IN_PATH or len(c.refused) or c.feed is not None]
        self._plain = not odd and not any(len(emitter.expiring) for emitter in world.emitters)
        self._fed = batches.column(lambda c: c.feed is not None, np.bool_)

    def segments(self) -> Iterator[SegmentRows]:
        """Yield the segments of the ledger. The range of each includes the batches without rows before it."""
        done, epoch_indexes = self._columns["done"], epochs_of(self._world, self._node, self._journal.at)
        after, epoch_index = 0, 0
        for one in divide(self._lines, done, epoch_indexes, self._world.segment_rows):
            if one.epoch_index != epoch_index:
                after, epoch_index = one.begin, one.epoch_index
            if self._lines[one.begin : one.end].any():  # numbers without rows belong to the next segment
                tables = (self._table(one.epoch_index, block) for block in blocks(self._lines, one))
                yield SegmentRows(Ledger.DELIVERIES, one.epoch_index, after, one.end, int(done[one.begin]), tables)
                after = one.end

    def _table(self, epoch_index: int, block: Block) -> Any:
        numbers = numbers_of(self._world, self._journal, block, self._starts, held=False)
        found = self._catalogue.look_up(block, self._source[block.items], numbers)
        outcome = self._outcome(block, numbers)
        columns = self._event_columns(block, found, numbers) | self._outcome_columns(epoch_index, block, outcome)
        return arrow_columns.table(Ledger.DELIVERIES, columns)

    def _event_columns(self, block: Block, found: EventRows, numbers: Ints) -> dict[str, Any]:
        world, (columns, at) = self._world, found
        owners = np.array([emitter.node for emitter in world.emitters])
        position, seq, recorded = columns.position[at], columns.seq[at], columns.recorded_at[at]
        for flow, rows in self._relayed(block):
            position[rows], seq[rows], recorded[rows] = positions_of(world, flow, numbers[rows])
        return {
            "position": arrow_columns.int64(position),
            "seq": arrow_columns.int64(seq),
            "id": arrow_columns.strings(columns.id[at]),
            "source": arrow_columns.dictionary(world.names, block.spread(owners[self._source])),
            "type": arrow_columns.dictionary(world.types, columns.type[at]),
            "bytes": arrow_columns.int32(columns.bytes[at]),
            "event_at": arrow_columns.timestamps(columns.event_at[at]),
            "recorded_at": arrow_columns.timestamps(recorded),
            "fingerprint": arrow_columns.int64(columns.fingerprint[at]),
        }

    def _relayed(self, block: Block) -> Iterator[tuple[Flow, Ints]]:
        """Yield, for each batch of relayed events in the block, its flow and the indexes of its rows."""
        fed = np.flatnonzero(self._fed[block.items])
        ends = np.cumsum(block.counts)
        for at in fed.tolist():
            flow = self._world.flows[int(self._journal.flow[block.items[at]])]
            yield flow, np.arange(ends[at] - block.counts[at], ends[at])

    def _outcome(self, block: Block, numbers: Ints) -> NDArray[np.int8] | None:
        """Return the outcome of each row as an index of `_OUTCOMES`; None if all events were delivered."""
        if self._plain:
            return None
        found = np.zeros(block.rows, np.int8)
        rows = block.spread(self._journal.flow)
        for uid in np.unique(self._journal.flow[block.items]).tolist():
            flow = self._world.flows[uid]
            mine = rows == uid
            if flow.outcome == IN_PATH:
                found[mine] = _PASSED
                continue
            for code, some in ((_EXPIRED, self._world.emitters[flow.source].expiring), (_REFUSED, flow.refused)):
                if len(some):
                    found[mine & np.isin(numbers, some)] = code
        return found if found.any() else None

    def _outcome_columns(self, epoch_index: int, block: Block, outcome: NDArray[np.int8] | None) -> dict[str, Any]:
        world, columns, rows = self._world, self._columns, block.rows
        none = np.zeros(rows, np.int8)
        code = none if outcome is None else outcome
        unsent = (code == _EXPIRED) | (code == _PASSED)
        attempts, recorded = block.spread(columns["attempts"]), block.spread(columns["recorded"])
        item = np.repeat(np.arange(len(block.items)), block.counts)
        empty = columns["empty"][block.items]
        ids, named = arrow_columns.distinct(arrow_columns.strings(self._batches.ids[block.items]), empty)
        receipts, signed = arrow_columns.distinct(self._receipts.take(pa.array(block.items)), empty)
        return {
            "number": arrow_columns.int64(block.spread(np.arange(1, len(self._journal) + 1))),
            "node": arrow_columns.constant(world.names[self._node], rows),
            "epoch": arrow_columns.constant(world.epoch(self._node, epoch_index), rows),
            "group": arrow_columns.dictionary(world.groups, block.spread(columns["group"])),
            "peer": arrow_columns.dictionary(world.names, block.spread(columns["peer"])),
            "attempts": arrow_columns.int32(np.where(unsent, 0, attempts)),
            "outcome": arrow_columns.dictionary(_OUTCOMES, code),
            "status": arrow_columns.int16(np.where(unsent, 0, 200)),
            "error": arrow_columns.dictionary(_ERRORS, code == _REFUSED),
            "protocol": arrow_columns.constant("v2", rows),
            "key_id": arrow_columns.dictionary([*key_ids(world), ""], block.spread(columns["key"])),
            "batch_id": arrow_columns.dictionary(ids, named[item]),
            "repair": arrow_columns.booleans(block.spread(columns["repair"])),
            "attempt_at": arrow_columns.timestamps(block.spread(columns["sent"])),
            "done_at": arrow_columns.timestamps(block.spread(columns["done"])),
            "peer_recorded_at": arrow_columns.timestamps(recorded, code != _DELIVERED),
            "receipt_digest": arrow_columns.dictionary(receipts, np.where(unsent, len(receipts) - 1, signed[item])),
            "selector_version": arrow_columns.int32(block.spread(columns["version"])),
        }
