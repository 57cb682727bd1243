"""Divides a ledger into segments, and a segment into tables of one row group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from eventd.audit.generate.log_positions import OWN, Journal
from eventd.audit.generate.pseudo_random import Ints
from eventd.audit.generate.world import World
from eventd.lake.schema import Ledger
from eventd.lake.writer import ROW_GROUP
from eventd.runtime.clock import SECOND

_DAY = 24 * 3600 * SECOND


class SegmentRows(NamedTuple):
    """Rows with numbers in (after, upto] of a ledger in one epoch. `at`: time of the first row, by the node's clock."""

    book: Ledger
    epoch_index: int
    after: int
    upto: int
    at: int
    tables: Iterable[Any]


def epochs_of(world: World, node: int, at: Ints) -> Ints:
    """Return the node's epoch at each true time: 0 or 1."""
    restarted_at = world.restarts.get(node)
    return np.zeros_like(at) if restarted_at is None else (at >= restarted_at).astype(np.int64)


class SegmentRange(NamedTuple):
    """The items of a journal that form one segment, from `begin` up to but not including `end`, in one epoch."""

    begin: int
    end: int
    epoch_index: int


def divide(rows: Ints, times: Ints, epoch_indexes: Ints, most: int) -> Iterator[SegmentRange]:
    """Yield segments of whole items, of up to `most` rows within one day and epoch; a larger item is one segment."""
    total = np.append(0, np.cumsum(rows))
    bounds = np.flatnonzero((np.diff(times // _DAY) != 0) | (np.diff(epoch_indexes) != 0)) + 1
    for begin, end in zip(np.append(0, bounds), np.append(bounds, len(rows)), strict=True):
        at = int(begin)
        while at < end:
            beyond = int(np.searchsorted(total, total[at] + most, "right")) - 1
            beyond = min(max(beyond, at + 1), int(end))
            yield SegmentRange(at, beyond, int(epoch_indexes[at]))
            at = beyond


@dataclass(frozen=True)
class Block:
    """A block of rows: of item `items[k]` of a journal, `counts[k]` rows from the item's row `low[k]` on."""

    items: Ints
    low: Ints
    counts: Ints

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return int(self.counts.sum())

    def spread(self, values: Any) -> Any:
        """Return the value of each row's item; `values` has one for each item of the whole journal."""
        return np.repeat(values[self.items], self.counts)

    def within(self) -> Ints:
        """Return the index of each row within its item."""
        ends = np.cumsum(self.counts)
        shift: Ints = np.repeat(self.low - (ends - self.counts), self.counts)
        return np.arange(ends[-1]) + shift


def blocks(rows: Ints, one: SegmentRange) -> Iterator[Block]:
    """Yield the rows of a segment, one row group at a time."""
    items = np.arange(one.begin, one.end)
    ends = np.cumsum(rows[one.begin : one.end])
    starts = ends - rows[one.begin : one.end]
    for first in range(0, int(ends[-1]), ROW_GROUP):
        low, high = np.clip(first - starts, 0, ends - starts), np.clip(first + ROW_GROUP - starts, 0, ends - starts)
        some = np.flatnonzero(high > low)
        yield Block(items[some], low[some], (high - low)[some])


def numbers_of(world: World, journal: Journal, block: Block, starts: Ints, *, held: bool) -> Ints:
    """Return the event number of each row.

    `starts` has for each item the index of its first event in the flow; for own events, the number of that event.
    `held`: the rows are the events that the peer recorded, otherwise those with a row in the sender's ledger.
    """
    begin = starts[block.items] + block.low
    pieces = []
    for uid, at, count in zip(journal.flow[block.items].tolist(), begin.tolist(), block.counts.tolist(), strict=True):
        if uid == OWN:
            pieces.append(np.arange(at, at + count))
        else:
            flow = world.flows[uid]
            pieces.append((flow.held if held else flow.rows)[at : at + count])
    return np.concatenate(pieces)
