"""Cells: what stage 1 sums the rows of a segment into, and the counts and latencies of the report are computed from.

There are three kinds of cells. By slot (a minute of the events' own time): the number of events and the sums of the
hashes of their rows, which must be equal at both ends of a link. By type and hour: the figures of the report, such as
counts, attempts, and latencies by bin. By batch: its receipt, as sender or receiver recorded it. Cells of any segments
can be added up, in any order, on any machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from eventd.audit.arrays.bins import BINS, bins_of
from eventd.audit.arrays.columns import Numbers, Words, constant
from eventd.audit.arrays.counts import Key, count, highest
from eventd.audit.arrays.grid import Grid
from eventd.lake.layout import MINUTE

if TYPE_CHECKING:
    import pyarrow as pa

SLOTS_PER_HOUR: Final = 60
HOUR: Final = SLOTS_PER_HOUR * MINUTE
"""Microseconds per hour."""
ALL_HOURS: Final = (-(1 << 40), 1 << 40)
"""Hours since 1970 [first, last) in which every time lies."""


class Measure(IntEnum):
    """The kind of a cell: the quantity that it counts, or the ledger that its batch is from."""

    # by slot; `total` is the sum of `outlines`, `content` of DUE and HELD that of `contents`
    DUE = 1  # events at their sender that the peer should have received; `high`: the latest expiry, `ENDLESS` for none
    AHEAD = 2  # events that the link has not reached yet
    SENT = 3  # deliveries that were acknowledged; `high`: when the last attempt of any began
    SLOT_REFUSED = 4  # events that the peer refused
    HELD = 5  # events at the peer
    SLOT_IN_PATH = 6  # events that were not sent because they came from the peer, or through it
    SLOT_EXPIRED = 7  # events that were not sent because they had expired; `low`: when the first was given up
    RELAYED = 8  # events of other sources that the peer itself delivered to `node`
    # by type and hour
    EXPECTED = 10  # the events of DUE; what a report calls expected includes PENDING
    PENDING = 11  # the events of AHEAD
    DELIVERED = 12  # `total`: bytes
    EXPIRED = 13
    IN_PATH = 14
    REFUSED = 15
    OWN = 16  # events that entered the log at this node
    ATTEMPTS = 20  # by bin: the number itself
    RECORDED = 21  # by bin, as the following; `high`: the longest
    ACKNOWLEDGED = 22
    PEER_RECORDED = 23
    WHOLE = 24
    # by batch: see `batch_cells`
    RECEIPT = 30
    INBOUND = 31
    # by number of the batch, see `batch_counts`
    CARRIED = 32  # events with a delivery
    ANSWERED = 33  # events that the receipt counts
    # by number of the batch, see `refused_counts`
    REFUSED_ROWS = 34  # events with a row that says refused
    REFUSED_ANSWERS = 35  # refused events that the answer accounts for


def cell_schema() -> pa.Schema:
    """Return the Arrow schema of cells. `time` is a slot (minute) or an hour, since 1970.

    `low` and `high` are in microseconds, but `high` counts attempts in cells of ATTEMPTS; batches: see `batch_cells`.
    """
    import pyarrow as pa

    word = pa.dictionary(pa.int32(), pa.string())
    words = [pa.field(name, word) for name in ("segment", "node", "group", "source", "peer", "type")]
    numbers = [pa.field(name, pa.int64()) for name in ("time", "n", "total", "low", "high", "content")]
    return pa.schema([pa.field("what", pa.int16()), pa.field("bin", pa.int16()), *words, *numbers])


class Cells:
    """Collects the cells of one segment as Arrow tables."""

    def __init__(self, segment: str) -> None:
        self._segment = segment
        self._tables: list[pa.Table] = []

    def add(
        self,
        what: npt.NDArray[np.integer] | Measure,
        words: Mapping[str, Words],
        time: Numbers,
        n: Numbers,
        *,
        bin: Numbers | None = None,
        total: Numbers | None = None,
        low: Numbers | None = None,
        high: Numbers | None = None,
        content: Numbers | None = None,
    ) -> None:
        """Add cells: arrays have one value per cell, a single `what` applies to all. The default is 0 or ''."""
        import pyarrow as pa

        rows = len(n)
        if not rows:
            return
        empty = np.zeros(rows, np.int64)
        whats = np.full(rows, int(what), np.int16) if isinstance(what, Measure) else what.astype(np.int16)
        named = {"segment": constant(self._segment, rows), **words}
        columns: list[pa.Array] = [pa.array(whats), pa.array((empty if bin is None else bin).astype(np.int16))]
        names = [field.name for field in cell_schema() if pa.types.is_dictionary(field.type)]
        columns += [(named.get(name) or constant("", rows)).to_arrow() for name in names]
        columns += [pa.array(empty if each is None else each) for each in (time, n, total, low, high, content)]
        self._tables.append(pa.Table.from_arrays(columns, schema=cell_schema()))

    def add_histogram(self, what: Measure, grid: Grid, key: Key, bins: Numbers, values: Numbers, size: int) -> None:
        """Add a cell for each key and bin: the number of values in the bin, and the highest value of the key in any
        bin."""
        keys, n = count(key.beside(bins, size))
        words, hours, bin = grid.split(keys, size)
        self.add(what, words, hours, n, bin=bin, high=highest(key, values, keys // size))

    def add_spans(self, what: Measure, grid: Grid, key: Key, spans: Numbers) -> None:
        """Add the cells of a histogram of times, in microseconds."""
        self.add_histogram(what, grid, key, bins_of(spans), spans, BINS)

    def table(self) -> pa.Table:
        """Return all cells as a table."""
        import pyarrow as pa

        return pa.concat_tables(self._tables) if self._tables else cell_schema().empty_table()
