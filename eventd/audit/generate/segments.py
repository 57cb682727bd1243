"""Division of a ledger into segments, and of a segment into tables of one row group."""

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
    """Rows with numbers in (after, upto] of a ledger in one epoch. `at`: time of the first, by the node's clock."""

    book: Ledger
    epoch_index: int
    after: int
    upto: int
    at: int
    tables: Iterable[Any]


def epochs_of(world: World, node: int, at: Ints) -> Ints:
    """Which of the node's epochs each true time falls into: 0 or 1."""
    epoch_index = world.restarts.get(node)
    return np.zeros_like(at) if epoch_index is None else (at >= epoch_index).astype(np.int64)


class Cut(NamedTuple):
    """Things `begin` up to before `end` of a sheet make a segment of the epoch `epoch_index`."""

    begin: int
    end: int
    epoch_index: int


def cut(rows: Ints, times: Ints, epoch_indexes: Ints, most: int) -> Iterator[Cut]:
    """Cut where a day or an epoch ends, and where there are rows enough. What has no rows goes with what follows."""
    total = np.append(0, np.cumsum(rows))
    bounds = np.flatnonzero((np.diff(times // _DAY) != 0) | (np.diff(epoch_indexes) != 0)) + 1
    for begin, end in zip(np.append(0, bounds), np.append(bounds, len(rows)), strict=True):
        at = int(begin)
        while at < end:
            beyond = int(np.searchsorted(total, total[at] + most, "right")) - 1
            beyond = min(max(beyond, at + 1), int(end))
            yield Cut(at, beyond, int(epoch_indexes[at]))
            at = beyond


@dataclass(frozen=True)
class Block:
    """Some rows of a sheet: of the things `items` the rows `low` to `high`, counted within each; `counts` of them."""

    items: Ints
    low: Ints
    counts: Ints

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return int(self.counts.sum())

    def spread(self, values: Any) -> Any:
        """A value of each thing (of the whole sheet), for each row."""
        return np.repeat(values[self.items], self.counts)

    def within(self) -> Ints:
        """The place of each row in its thing."""
        ends = np.cumsum(self.counts)
        shift: Ints = np.repeat(self.low - (ends - self.counts), self.counts)
        return np.arange(ends[-1]) + shift


def blocks(rows: Ints, one: Cut) -> Iterator[Block]:
    """The rows of a segment, a row group at a time."""
    items = np.arange(one.begin, one.end)
    ends = np.cumsum(rows[one.begin : one.end])
    starts = ends - rows[one.begin : one.end]
    for first in range(0, int(ends[-1]), ROW_GROUP):
        low, high = np.clip(first - starts, 0, ends - starts), np.clip(first + ROW_GROUP - starts, 0, ends - starts)
        some = np.flatnonzero(high > low)
        yield Block(items[some], low[some], (high - low)[some])


def numbers_of(world: World, journal: Journal, block: Block, starts: Ints, *, held: bool) -> Ints:
    """The events' numbers of a block's rows. `starts`: where each thing's rows begin, in its course or its history."""
    begin = starts[block.items] + block.low
    pieces = []
    for uid, at, count in zip(journal.flow[block.items].tolist(), begin.tolist(), block.counts.tolist(), strict=True):
        if uid == OWN:
            pieces.append(np.arange(at, at + count))
        else:
            flow = world.flows[uid]
            pieces.append((flow.held if held else flow.rows)[at : at + count])
    return np.concatenate(pieces)
