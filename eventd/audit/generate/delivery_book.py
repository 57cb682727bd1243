"""The book of deliveries: a line for each event that was to go to a peer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from eventd.audit.generate import arrays
from eventd.audit.generate.batches import REASON, Batches, key_id, key_ids
from eventd.audit.generate.catalogue import Catalogue, Found
from eventd.audit.generate.courses import IN_PATH, Course
from eventd.audit.generate.cutting import Block, blocks, cut, numbers_of
from eventd.audit.generate.mixing import Ints
from eventd.audit.generate.numbering import places_of
from eventd.audit.generate.segments import Part, turns_of
from eventd.audit.generate.world import World
from eventd.lake.schema import Book

_OUTCOMES: Final = ["delivered", "expired", "in_path", "refused"]
_DELIVERED, _EXPIRED, _PASSED, _REFUSED = range(4)
_ERRORS: Final = ["", REASON]


class DeliveriesBook:
    """The deliveries of one node. `receipts`: what stands for the receipt of each batch, [n] texts."""

    def __init__(self, world: World, node: int, catalogue: Catalogue, batches: Batches, receipts: list[str]) -> None:
        self._world, self._node, self._catalogue, self._batches = world, node, catalogue, batches
        self._receipts = pa.array(receipts, pa.string())
        self._sheet = batches.sheet
        self._lines = batches.column(lambda c: np.diff(c.row_at))
        self._starts = batches.column(lambda c: c.row_at[:-1])
        self._source = batches.column(lambda c: c.source)
        self._columns = {
            "group": batches.column(lambda c: c.group),
            "peer": batches.column(lambda c: c.peer),
            "attempts": batches.column(lambda c: c.attempts),
            "sent": batches.column(lambda c: c.sent) + world.skews[node],
            "done": self._sheet.at + world.skews[node],
            "recorded": batches.column(lambda c: c.recorded + world.skews[c.peer]),
            "repair": batches.column(lambda c: c.repair, np.bool_),
            "moot": batches.column(lambda c: c.moot, np.bool_),
            "version": batches.column(lambda c: c.version),
            "key": key_id(world, node, batches.column(lambda c: c.sent)),
        }
        key = self._columns["key"]
        self._columns["key"] = np.where(self._columns["moot"], 2 * len(world.names), key)  # nothing was signed
        odd = [c.uid for c in world.courses if c.outcome == IN_PATH or len(c.refused) or c.feed is not None]
        self._plain = not odd and not any(len(history.soon) for history in world.histories)
        self._fed = batches.column(lambda c: c.feed is not None, np.bool_)

    def parts(self) -> Iterator[Part]:
        """The segments of the book."""
        done, turns = self._columns["done"], turns_of(self._world, self._node, self._sheet.at)
        after, turn = 0, 0
        for one in cut(self._lines, done, turns, self._world.segment_rows):
            if one.turn != turn:
                after, turn = one.begin, one.turn
            if self._lines[one.begin : one.end].any():  # numbers without a line go with those that follow
                tables = (self._table(one.turn, block) for block in blocks(self._lines, one))
                yield Part(Book.DELIVERIES, one.turn, after, one.end, int(done[one.begin]), tables)
                after = one.end

    def _table(self, turn: int, block: Block) -> Any:
        numbers = numbers_of(self._world, self._sheet, block, self._starts, held=False)
        found = self._catalogue.look_up(block, self._source[block.items], numbers)
        outcome = self._outcome(block, numbers)
        columns = self._event(block, found, numbers) | self._answer(turn, block, outcome)
        return arrays.table(Book.DELIVERIES, columns)

    def _event(self, block: Block, found: Found, numbers: Ints) -> dict[str, Any]:
        world, (facts, at) = self._world, found
        owners = np.array([history.node for history in world.histories])
        position, seq, recorded = facts.position[at], facts.seq[at], facts.recorded_at[at]
        for course, rows in self._relayed(block):
            position[rows], seq[rows], recorded[rows] = places_of(world, course, numbers[rows])
        return {
            "position": arrays.ints(position),
            "seq": arrays.ints(seq),
            "id": arrays.texts(facts.id[at]),
            "source": arrays.words(world.names, block.spread(owners[self._source])),
            "type": arrays.words(world.types, facts.type[at]),
            "bytes": arrays.small(facts.bytes[at]),
            "event_at": arrays.times(facts.event_at[at]),
            "recorded_at": arrays.times(recorded),
            "fingerprint": arrays.ints(facts.fingerprint[at]),
        }

    def _relayed(self, block: Block) -> Iterator[tuple[Course, Ints]]:
        """Rows of events that came from elsewhere, with their courses."""
        fed = np.flatnonzero(self._fed[block.items])
        ends = np.cumsum(block.counts)
        for at in fed.tolist():
            course = self._world.courses[int(self._sheet.course[block.items[at]])]
            yield course, np.arange(ends[at] - block.counts[at], ends[at])

    def _outcome(self, block: Block, numbers: Ints) -> NDArray[np.int8] | None:
        """What became of each row; None where all were delivered."""
        if self._plain:
            return None
        found = np.zeros(block.rows, np.int8)
        rows = block.spread(self._sheet.course)
        for uid in np.unique(self._sheet.course[block.items]).tolist():
            course = self._world.courses[uid]
            mine = rows == uid
            if course.outcome == IN_PATH:
                found[mine] = _PASSED
                continue
            for code, some in ((_EXPIRED, self._world.histories[course.source].soon), (_REFUSED, course.refused)):
                if len(some):
                    found[mine & np.isin(numbers, some)] = code
        return found if found.any() else None

    def _answer(self, turn: int, block: Block, outcome: NDArray[np.int8] | None) -> dict[str, Any]:
        world, columns, rows = self._world, self._columns, block.rows
        none = np.zeros(rows, np.int8)
        code = none if outcome is None else outcome
        unsent = (code == _EXPIRED) | (code == _PASSED)
        attempts, recorded = block.spread(columns["attempts"]), block.spread(columns["recorded"])
        item = np.repeat(np.arange(len(block.items)), block.counts)
        moot = columns["moot"][block.items]
        ids, named = arrays.distinct(arrays.texts(self._batches.ids[block.items]), moot)
        receipts, signed = arrays.distinct(self._receipts.take(pa.array(block.items)), moot)
        return {
            "number": arrays.ints(block.spread(np.arange(1, len(self._sheet) + 1))),
            "node": arrays.word(world.names[self._node], rows),
            "epoch": arrays.word(world.epoch(self._node, turn), rows),
            "group": arrays.words(world.groups, block.spread(columns["group"])),
            "peer": arrays.words(world.names, block.spread(columns["peer"])),
            "attempts": arrays.small(np.where(unsent, 0, attempts)),
            "outcome": arrays.words(_OUTCOMES, code),
            "status": arrays.tiny(np.where(unsent, 0, 200)),
            "error": arrays.words(_ERRORS, code == _REFUSED),
            "protocol": arrays.word("v2", rows),
            "key_id": arrays.words([*key_ids(world), ""], block.spread(columns["key"])),
            "batch_id": arrays.words(ids, named[item]),
            "repair": arrays.flags(block.spread(columns["repair"])),
            "attempt_at": arrays.times(block.spread(columns["sent"])),
            "done_at": arrays.times(block.spread(columns["done"])),
            "peer_recorded_at": arrays.times(recorded, code != _DELIVERED),
            "receipt_digest": arrays.words(receipts, np.where(unsent, len(receipts) - 1, signed[item])),
            "selector_version": arrays.small(block.spread(columns["version"])),
        }
