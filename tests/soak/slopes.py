"""Slopes of samples by Theil and Sen: the median of the slopes of all pairs, which outliers hardly move."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import combinations
from math import sqrt
from statistics import median
from typing import Final, NamedTuple

MOST_SAMPLES: Final = 600
"""More samples are thinned out: pairs grow with the square of their number."""
_NORMAL: Final = 1.96
"""The quantile of the normal distribution for an interval at 95 %."""


class Slope(NamedTuple):
    """A slope per unit of time, and the interval in which it lies at 95 %, by Kendall's statistic."""

    value: float
    low: float
    high: float


def slope_of(samples: Sequence[tuple[float, float]]) -> Slope:
    """Return the slope of (time, value) pairs, of which there must be at least three with different times."""
    step = -(-len(samples) // MOST_SAMPLES)
    kept = samples[::step]
    slopes = sorted((y - x) / (u - t) for (t, x), (u, y) in combinations(kept, 2) if u != t)
    count = len(kept)
    half = _NORMAL * sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low, high = int((len(slopes) - half) / 2), int((len(slopes) + half) / 2)
    return Slope(median(slopes), slopes[max(0, low)], slopes[min(len(slopes) - 1, high)])


def quantile_of(bounds: Sequence[float], counts: Sequence[float], share: float) -> float:
    """Return a quantile of a histogram: `counts` are cumulative, each up to its bound; the last bound is infinite.

    It lies within its bucket in proportion; beyond the last finite bound, that bound is returned.
    """
    wanted = share * counts[-1]
    at = bisect_left(counts, wanted)
    if at == len(bounds) - 1:
        return bounds[-2]
    below = counts[at - 1] if at else 0.0
    begin = bounds[at - 1] if at else 0.0
    width = counts[at] - below
    return begin + (bounds[at] - begin) * ((wanted - below) / width if width else 1.0)
