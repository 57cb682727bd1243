"""The figures of the pairs by type and hour: counts, bytes, and percentiles of histograms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from eventd.audit.arrays.bins import edges_of
from eventd.audit.arrays.columns import Columns, Mask, Numbers, grouped
from eventd.audit.segments.cells import Measure
from eventd.audit.segments.row_marks import PAIR
from eventd.runtime.clock import SECOND

if TYPE_CHECKING:
    import pyarrow as pa

LEGS: Final = {
    Measure.RECORDED: "recorded",
    Measure.ACKNOWLEDGED: "delivered",
    Measure.PEER_RECORDED: "peer_recorded",
    Measure.WHOLE: "whole",
}
"""The measures of latencies, each with the name that it has in a report."""
COUNTS: Final = {
    Measure.EXPECTED: "expected",
    Measure.PENDING: "pending",
    Measure.DELIVERED: "delivered",
    Measure.EXPIRED: "expired",
    Measure.IN_PATH: "in_path",
    Measure.REFUSED: "dead_lettered",
}
SHARES: Final = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


def sum_figures(figures: pa.Table) -> pa.Table:
    """Return counts and histograms by pair, type and hour, over all senders."""
    return grouped(figures, (*PAIR, "type", "time", "what", "bin"), [("n", "sum"), ("total", "sum"), ("high", "max")])


def add_pairs(tables: list[pa.Table]) -> pa.Table:
    """Return counts and histograms by pair, summed from tables of `sum_figures` or of this function."""
    import pyarrow as pa

    every = pa.concat_tables(table.select([*PAIR, "what", "bin", "n", "total", "high"]) for table in tables)
    return grouped(every, (*PAIR, "what", "bin"), [("n", "sum"), ("total", "sum"), ("high", "max")])


def by_hour(figures: pa.Table) -> pa.Table:
    """Return one row for each pair, type and hour: counts and bytes (default 0), and percentiles (default null)."""
    import pyarrow as pa

    keys = grouped(figures, (*PAIR, "type", "time"), [])
    place = keys.append_column("place", pa.array(np.arange(keys.num_rows)))
    table = Columns(figures.join(place, keys=[*PAIR, "type", "time"], join_type="inner"))
    at, what, n = table.numbers("place"), table.numbers("what"), table.numbers("n")
    for one, name in COUNTS.items():
        keys = keys.append_column(name, pa.array(_scatter(keys.num_rows, at, n, what == one)))
    keys = keys.append_column(
        "bytes", pa.array(_scatter(keys.num_rows, at, table.numbers("total"), what == Measure.DELIVERED))
    )
    for histogram in (Measure.ATTEMPTS, *LEGS):
        for name, column in _percentiles(histogram, keys.num_rows, table, what == histogram).items():
            keys = keys.append_column(name, column)
    return keys


def _scatter(rows: int, at: Numbers, values: Numbers, mine: Mask) -> Numbers:
    """Return an array with each value of the rows `mine` at its index `at`, and 0 elsewhere; no index occurs twice."""
    found = np.zeros(rows, np.int64)
    found[at[mine]] = values[mine]
    return found


def _percentiles(what: Measure, rows: int, table: Columns, mine: Mask) -> dict[str, Any]:
    """Return the percentiles of one histogram for each pair, type and hour (`place` is their index).

    Percentiles of attempts are whole numbers, without p99; percentiles of latencies are seconds. Null without values.
    """
    import pyarrow as pa

    order = np.lexsort((table.numbers("bin")[mine], table.numbers("place")[mine]))
    at, bins, n = (table.numbers(name)[mine][order] for name in ("place", "bin", "n"))
    starts = np.flatnonzero(np.diff(at, prepend=-1))
    reached = np.cumsum(n)
    before = reached[starts] - n[starts]
    all_of = np.diff(before, append=reached[-1] if len(reached) else 0)
    found: dict[str, Any] = {}
    for name, share in SHARES.items():
        wanted = before + share * all_of
        here = np.searchsorted(reached, wanted, side="left")
        if what is Measure.ATTEMPTS and name == "p99":
            continue
        if what is Measure.ATTEMPTS:
            values: Any = bins[here]
        else:
            low, high = edges_of(bins[here])
            within = (wanted - (reached[here] - n[here])) / np.maximum(n[here], 1)
            values = np.round((low + (high - low) * within) / SECOND, 6)
        column = np.zeros(rows, values.dtype)
        column[at[starts]] = values
        nothing = np.ones(rows, bool)
        nothing[at[starts]] = False
        found[f"{LEGS.get(what, 'attempts')}_{name}"] = pa.array(column, mask=nothing)
    return found
