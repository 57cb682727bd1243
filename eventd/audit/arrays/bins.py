"""Histograms of durations: fixed bins, eight to each doubling, so that histograms of any segments can be added up.

Bin 0 holds durations of 0; the others, from one microsecond to 100 days, are at most 12.5 % wide. The last bin also
holds all longer durations.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from itertools import accumulate
from typing import Final

import numpy as np
import numpy.typing as npt

from eventd.audit.arrays.columns import Numbers
from eventd.audit.report.report import Bin, Latency
from eventd.runtime.clock import SECOND

Edges = npt.NDArray[np.float64]

BINS: Final = 346
"""The number of bins. The last one also holds all longer durations."""
PER_DOUBLING: Final = 8
_FRACTION_BITS: Final = 49
"""Bits of a float's 52-bit fraction without the three that select one of eight bins per doubling."""
_OF_ONE: Final = 1023 << 3
"""The float 1.0, shifted right by `_FRACTION_BITS`: its biased exponent and three zeros."""


def bins_of(spans: Numbers) -> Numbers:
    """Return the bin of each span in microseconds; a negative span, caused by a clock that was set, counts as 0."""
    positive = np.maximum(spans, 0).astype(np.float64)
    found = (positive.view(np.int64) >> _FRACTION_BITS) - (_OF_ONE - 1)
    return np.clip(found, 0, BINS - 1, out=found)


def latency(counts: Mapping[int, int], longest: int | None) -> Latency:
    """Return the distribution, in seconds, from counts by bin and the `longest` value (microseconds)."""
    filled = sorted((at, n) for at, n in counts.items() if n > 0)
    if not filled:
        return Latency()
    whole = tuple(Bin(_LOW[at], _HIGH[at], n) for at, n in filled)
    top = None if longest is None else max(longest, 0) / SECOND
    return Latency(
        count=sum(n for _, n in filled),
        p50=percentile(whole, 0.50, top),
        p95=percentile(whole, 0.95, top),
        p99=percentile(whole, 0.99, top),
        max=top,
        bins=whole,
    )


def edges_of(bins: Numbers) -> tuple[Edges, Edges]:
    """Return the begins and the ends of these bins, in microseconds."""
    doubling, part = np.divmod(np.maximum(bins - 1, 0), PER_DOUBLING)
    size = np.exp2(doubling)
    low, high = size * (1 + part / PER_DOUBLING), size * (1 + (part + 1) / PER_DOUBLING)
    return np.where(bins > 0, low, 0.0), np.where(bins > 0, high, 1.0)


_LOW, _HIGH = ((edges / SECOND).tolist() for edges in edges_of(np.arange(BINS)))
"""The begin and end of every bin, in seconds."""


def percentile(bins: tuple[Bin, ...], share: float, longest: float | None = None) -> float:
    """Return the value (seconds) that a share (0 to 1) of all values do not exceed, interpolated linearly in its bin.

    The result is at most `longest` (seconds), if that is known.
    """
    reached = list(accumulate(one.count for one in bins))
    wanted = share * reached[-1]
    at = min(bisect_left(reached, wanted), len(bins) - 1)
    within = 1 - (reached[at] - wanted) / bins[at].count
    value = bins[at].low + (bins[at].high - bins[at].low) * within
    return round(value if longest is None else min(value, longest), 6)


def quantile(counts: Mapping[int, int], share: float) -> int | None:
    """Return the smallest number that at least a share (0 to 1) of all numbers do not exceed; None without numbers.

    `counts`: how often each number occurs.
    """
    total, located = sum(counts.values()), 0
    for number in sorted(counts):
        located += counts[number]
        if located >= share * total and total:
            return number
    return None
