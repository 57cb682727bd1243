"""The verdict on the samples of a soak: what grows, and what does not come back when the load is over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Final, NamedTuple

from tests.soak.slopes import Slope, slope_of

LEAST_GROWTH: Final = 0.02
"""The share of a figure by which it must grow over the judged half to be said to grow: samples of one process depend on
each other, so that their interval is narrower than it should be."""
MOST_LEFT: Final = 1.25
"""How many times a figure may be that of the begin once the load is over."""
BEGIN_SECONDS: Final = 3600.0
"""How long the begin is, with which the end is compared, or the first half of the load: meanwhile caches fill."""
LEAST_HOURS: Final = 1 / 6
"""The least length of the judged half: caches fill at first, and retention has nothing to evict yet."""
LEAST_LOAD: Final = 0.8
"""The share of the events of the rate and time that must be acknowledged: a soak with less load shows less."""
STEADY, GROWS, LEFT, TOO_SHORT = "steady", "grows", "does not come back", "too short to judge"
SOUND: Final = (STEADY, TOO_SHORT)
"""The verdicts that are not failures."""


class Series(NamedTuple):
    """The samples of one figure of one node as (seconds, value), and the value after the load was over.

    `returns`: the figure is compared with that of the begin.
    """

    node: str
    figure: str
    samples: Sequence[tuple[float, float]]
    after: float | None
    returns: bool = True


def judge(series: Series) -> dict[str, Any] | None:
    """Return the row of one figure; None if it has too few samples."""
    middle = len(series.samples) // 2
    half = series.samples[middle:]
    if len(half) < 3:
        return None
    begin = median(value for at, value in series.samples[: max(3, middle)] if at < BEGIN_SECONDS)
    hours = [(at / 3600, value) for at, value in half]
    slope = slope_of(hours)
    end = half[-1][1] if series.after is None else series.after
    return {
        "node": series.node,
        "figure": series.figure,
        "samples": len(series.samples),
        "begin": round(begin, 1),
        "end": round(end, 1),
        "slope": round(slope.value, 4),
        "low": round(slope.low, 4),
        "high": round(slope.high, 4),
        "verdict": _verdict(series, begin, end, slope, hours[-1][0] - hours[0][0]),
    }


def _verdict(series: Series, begin: float, end: float, slope: Slope, hours: float) -> str:
    if hours < LEAST_HOURS:
        return TOO_SHORT
    level = median(value for _, value in series.samples) or 1.0
    if slope.low > 0 and slope.low * hours > LEAST_GROWTH * level:
        return GROWS
    if series.returns and series.after is not None and end > MOST_LEFT * begin and end > begin + 2:
        return LEFT
    return STEADY


def missing_load(acknowledged: int, events_per_second: float, seconds: float) -> str:
    """Return what is wrong with the load of a soak; an empty text if nothing is."""
    planned = events_per_second * seconds
    if acknowledged >= LEAST_LOAD * planned:
        return ""
    return f"{acknowledged} events acknowledged, less than {LEAST_LOAD:.0%} of {planned:.0f}"


def rows(
    found: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]], after: Mapping[str, Mapping[str, float]]
) -> Iterator[dict[str, Any]]:
    """Yield the row of each figure of each node."""
    for node, figures in found.items():
        for figure, samples in figures.items():
            row = judge(Series(node, figure, samples, after.get(node, {}).get(figure), returns="p99" not in figure))
            if row is not None:
                yield row
