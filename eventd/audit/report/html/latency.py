"""The section of latencies: charts by leg on one logarithmic scale, and charts by pair on another."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from eventd.audit.report.figures import natural, span
from eventd.audit.report.html.scales import LogScale, Tick, coordinate
from eventd.audit.report.pair_status import pair_name
from eventd.audit.report.report import Bin, Latency, Pair, Report

SMALL_MULTIPLES = 12
"""Maximum number of pairs whose charts are shown without unfolding, the slowest first."""
MOST_RIDGES = 800
"""Maximum number of pairs with a chart."""
NEGLIGIBLE = 0.0005
"""The share of deliveries at each end that is drawn at the edge of a chart, so that outliers do not compress it."""
PER_DECADE, FINEST, LEAST = 12, 19, 40
"""Columns of a chart: `PER_DECADE` for each power of ten of seconds, but at least `LEAST` per chart, unless that makes
more than `FINEST` for each power of ten (about one per bin)."""
RIDGE, RIDGE_WIDTH, RIDGE_TOP = 48, 760, 6

LEGS = {
    "recorded": "event → its record at the source",
    "delivered": "record → the peer's acknowledgement",
    "peer_recorded": "first attempt → the peer's record",
    "whole": "event → the peer's record, the whole way",
}
_SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


class AreaChart(NamedTuple):
    """A distribution drawn as an area between `top` and `base`, with its percentiles as (name, x)."""

    path: str
    marks: list[tuple[str, float]]
    top: float
    base: float


class PairChart(NamedTuple):
    """One pair, its latency as figures and in words, and its chart."""

    pair: Pair
    latency: Latency
    spoken: str
    hill: AreaChart


def latencies(report: Report) -> dict[str, Any] | None:
    """Return the template's data for the section of latencies; None if no delivery was measured."""
    measured = sorted(
        (pair for pair in report.pairs if _longest(pair).bins), key=lambda p: (-(_longest(p).p99 or 0), pair_name(p))
    )
    if not measured:
        return None
    scale = _scale(map(_longest, measured))
    skip = 2 if math.log10(scale.last / scale.first) > 6 else 1
    return {
        "total": merge(map(_longest, measured)),
        "measured": len(measured),
        "skew": _describe_skew(report),
        **_leg_charts(report),
        "slowest": [_pair_chart(pair, scale, 2, 298, 58, 50) for pair in measured[:SMALL_MULTIPLES]],
        "ticks": _ticks(scale, 2, 298, skip),
        "sources": _sources(measured[:MOST_RIDGES], scale),
        "left_out": len(measured[MOST_RIDGES:]),
    }


def overall(report: Report) -> Latency | None:
    """Return one latency for all pairs: from event to peer's record, or if unmeasured, from record to acknowledgement.

    None if no delivery was measured.
    """
    measured = [_longest(pair) for pair in report.pairs if _longest(pair).bins]
    return merge(measured) if measured else None


def merge(latencies: Iterable[Latency]) -> Latency:
    """Merge distributions into one, whose percentiles are upper ends of bins, or the maximum, and so never too low."""
    counts: Counter[tuple[float, float]] = Counter()
    slowest: float | None = None
    for latency in latencies:
        for one in latency.bins:
            counts[one.low, one.high] += one.count
        if latency.max is not None:
            slowest = max(latency.max, slowest or 0.0)
    bins = [Bin(low, high, counts[low, high]) for low, high in sorted(counts)]
    values = {name: _percentile(bins, share, slowest) for name, share in _SHARES.items()}
    return Latency(count=sum(one.count for one in bins), max=slowest, bins=tuple(bins), **values)


def _percentile(bins: Sequence[Bin], share: float, slowest: float | None) -> float | None:
    left = share * sum(one.count for one in bins)
    for one in bins:
        left -= one.count
        if left <= 0:
            return one.high if slowest is None else min(one.high, slowest)
    return slowest


def _longest(pair: Pair) -> Latency:
    """Return the leg from event to peer's record; if unmeasured, the one from source's record to acknowledgement."""
    return pair.latencies.whole if pair.latencies.whole.bins else pair.latencies.delivered


def _describe_skew(report: Report) -> str:
    skews = [pair.skew for pair in report.pairs if pair.skew is not None]
    if not skews:
        return "No clocks could be compared: the legs that end at a peer include the errors of both clocks."
    worst, moved = max(skews, key=lambda one: abs(one.ms)), max(abs(one.moved_ms) for one in skews)
    words = (
        f"Corrected for the clocks: the difference between two nodes' clocks, up to {span(abs(worst.ms) / 1e3)} "
        f"(± {span(worst.error_ms / 1e3)}), where known, is subtracted from the legs that end at the peer's record."
    )
    drift = f" It was measured hour by hour; within a pair it moved by up to {span(moved / 1e3)}."
    return words + (drift if moved else "")


def _describe(latency: Latency) -> str:
    return f"half within {span(latency.p50)}, 95 % within {span(latency.p95)}, 99 % within {span(latency.p99)}"


# --- charts -----------------------------------------------------------------------------------------------------------


def _scale(latencies: Iterable[Latency]) -> LogScale:
    """Return a scale that maps these latencies, without outliers, to 0 to 1.

    It spans at least a factor of ten, within 100 µs and 10,000,000 s.
    """
    whole = merge(latencies)
    low, high = (_percentile(whole.bins, share, whole.max) or 0.0 for share in (NEGLIGIBLE, 1 - NEGLIGIBLE))
    low = min(max(low / 1.5, 1e-4), 1e6)
    return LogScale(low, min(max(high * 1.5, low * 10), 1e7), 0.0, 1.0)


def _ticks(scale: LogScale, left: float, right: float, skip: int = 1) -> list[Tick]:
    """Return a line for every tick of the scale; one in `skip` of them has a label."""
    ticks = []
    for place, value in enumerate(scale.ticks()):
        x = left + scale.at(value) * (right - left)
        anchor = "start" if x - left < 12 else "end" if right - x < 12 else "middle"
        label = span(value) if value < 60 else f"{value:,.0f} s"
        ticks.append(Tick(x, label if place % skip == 0 else "", anchor))
    return ticks


def _columns(latency: Latency, scale: LogScale) -> list[float]:
    """Return the share of deliveries in each column of the chart; a bin wider than a column is spread over several."""
    decades = math.log10(scale.last / scale.first)
    number_of = round(max(decades * PER_DECADE, min(decades * FINEST, LEAST)))
    columns = [0.0] * number_of
    for one in latency.bins:
        start, end = scale.at(one.low) * number_of, scale.at(one.high) * number_of
        if end - start < 1e-9:
            columns[min(int(start), number_of - 1)] += one.count
            continue
        for place in range(int(start), min(math.ceil(end), number_of)):
            columns[place] += one.count * (min(end, place + 1) - max(start, place)) / (end - start)
    total = sum(columns) or 1.0
    return [column / total for column in columns]


def _area_chart(latency: Latency, scale: LogScale, left: float, right: float, base: float, height: float) -> AreaChart:
    """Return a distribution, which must not be empty, as an area above the line y=`base`, with a peak of `height`."""
    columns = _columns(latency, scale)
    peak, width = max(columns), (right - left) / len(columns)
    filled = [place for place, column in enumerate(columns) if column]
    first, last = filled[0], filled[-1] + 1
    tops = [(left + (place + 0.5) * width, base - columns[place] / peak * height) for place in range(first, last)]
    points = [(left + first * width, base), *tops, (left + last * width, base)]
    path = "L".join(f"{coordinate(x)} {coordinate(y)}" for x, y in points)
    values = ((name, getattr(latency, name)) for name in _SHARES)
    marks = [(name, left + scale.at(value) * (right - left)) for name, value in values if value is not None]
    return AreaChart(f"M{path}Z", marks, base - height, base)


def _pair_chart(pair: Pair, scale: LogScale, *room: float) -> PairChart:
    latency = _longest(pair)
    return PairChart(pair, latency, _describe(latency), _area_chart(latency, scale, *room))


def _leg_charts(report: Report) -> dict[str, Any]:
    """Return the template's data for the charts of all pairs together: one per measured leg, one below the other."""
    legs = [(words, [getattr(pair.latencies, name) for pair in report.pairs]) for name, words in LEGS.items()]
    scale = _scale(leg for _, each in legs for leg in each)
    ridges: list[dict[str, Any]] = []
    for words, each in legs:
        if (latency := merge(each)).bins:
            base = RIDGE_TOP + RIDGE * (len(ridges) + 1) - 1
            hill = _area_chart(latency, scale, 0, RIDGE_WIDTH, base, RIDGE - 12)
            ridges.append({"words": words, "latency": latency, "hill": hill})
    label = "; ".join(f"{one['words']}: {_describe(one['latency'])}" for one in ridges)
    return {
        "ridges": ridges,
        "ridges_bottom": RIDGE_TOP + RIDGE * len(ridges),
        "ridges_label": f"All pairs together, by leg. {label}",
        "ridges_ticks": _ticks(scale, 0, RIDGE_WIDTH),
    }


def _sources(pairs: Sequence[Pair], scale: LogScale) -> list[dict[str, Any]]:
    """Return the charts of these pairs, grouped by group and source."""
    in_order = sorted(pairs, key=lambda pair: [natural(name) for name in pair_name(pair)])
    found = []
    for (group, source), same in groupby(in_order, key=lambda pair: (pair.group, pair.source)):
        its = [_pair_chart(pair, scale, 0, 240, 25, 23) for pair in same]
        slowest = max(one.latency.p99 or 0 for one in its)
        found.append({"group": group, "source": source, "pairs": its, "slowest": slowest})
    return found
