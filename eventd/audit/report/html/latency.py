"""How long it took: distributions on one logarithmic scale, so that every drawing can be compared with every other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from eventd.audit.report.figures import counted, natural, span
from eventd.audit.report.html.markup import Child, Markup, element, join
from eventd.audit.report.html.svg import LogScale, drawing, line, outline, text
from eventd.audit.report.html.tables import Column, folded, number, paragraph, section, table, way
from eventd.audit.report.report import Bin, Latency, Pair, Report
from eventd.audit.report.standing import name_of

SMALL_MULTIPLES = 12
"""Pairs that are drawn at once, the slowest first."""
MOST_RIDGES = 800
"""Pairs that are drawn at all."""
NEGLIGIBLE = 0.0005
"""The share of deliveries at each end of the scale that is drawn at its edge, lest a single one squeezes all others."""
PER_DECADE, FINEST, LEAST = 12, 19, 40
"""Columns of a drawing for each power of ten of seconds; where these are few, more, but none finer than a bin."""

LEGS = (
    ("recorded", "event → its record at the source"),
    ("delivered", "record → the peer's acknowledgement"),
    ("peer_recorded", "first attempt → the peer's record"),
    ("whole", "event → the peer's record, the whole way"),
)
_SHARES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))


def latencies(report: Report) -> Markup | None:
    """The section of latencies; None where nothing was measured."""
    measured = sorted(
        (pair for pair in report.pairs if _shown(pair).bins), key=lambda p: (-(_shown(p).p99 or 0), name_of(p))
    )
    if not measured:
        return None
    legs_scale, scale = _scale(leg for pair in report.pairs for leg in _legs(pair)), _scale(map(_shown, measured))
    legs = [(words, merged([getattr(pair.latencies, name) for pair in report.pairs])) for name, words in LEGS]
    total = merged([_shown(pair) for pair in measured])
    slowest = measured[:SMALL_MULTIPLES]
    return section(
        "latency",
        "How long it took",
        paragraph(_sentence(total, len(measured))),
        paragraph(_about_skew(report), class_="note"),
        _ridges("All pairs together, by leg", [(words, leg) for words, leg in legs if leg.bins], legs_scale),
        element("h3", f"The {len(slowest)} slowest pairs" if len(measured) > len(slowest) else "By pair"),
        paragraph(_LINES, class_="soft"),
        element("div", (_small(pair, scale) for pair in slowest), class_="multiples"),
        _all_pairs(measured, scale) if len(measured) > 1 else None,
    )


def overall(report: Report) -> Latency | None:
    """All pairs as one; None where nothing was measured."""
    measured = [_shown(pair) for pair in report.pairs if _shown(pair).bins]
    return merged(measured) if measured else None


_LINES = (
    "Solid line: p50, half were faster. Dashed: p95. Dotted: p99. Time is on a logarithmic scale, the same for all "
    "pairs; the height is the share of a pair's own deliveries."
)


def _shown(pair: Pair) -> Latency:
    """The longest way that was measured: as far as the peer's record if its books or receipts say when that was."""
    return pair.latencies.whole if pair.latencies.whole.bins else pair.latencies.delivered


def _legs(pair: Pair) -> Iterable[Latency]:
    return (getattr(pair.latencies, name) for name, _ in LEGS)


def _sentence(total: Latency, pairs: int) -> str:
    measured = f"{counted(total.count, 'delivery', 'deliveries')} measured on {counted(pairs, 'pair')}"
    return (
        f"Half of all deliveries took at most {span(total.p50)}, 95 % at most {span(total.p95)}, 99 % at most "
        f"{span(total.p99)}; the slowest took {span(total.max)} ({measured})."
    )


def _about_skew(report: Report) -> Child:
    skews = [pair.skew for pair in report.pairs if pair.skew is not None]
    if not skews:
        return "No clock could be compared with another: the legs that end at a peer hold the errors of both clocks."
    worst = max(skews, key=lambda one: abs(one.ms))
    words = (
        f"Corrected for the clocks: the difference between two nodes' clocks, up to {span(abs(worst.ms) / 1e3)} "
        f"(± {span(worst.error_ms / 1e3)}), has been taken out of every leg that ends at the peer."
    )
    moved = max(skews, key=lambda one: abs(one.moved_ms))
    drift = f" It was measured hour by hour; within a pair it moved by up to {span(abs(moved.moved_ms) / 1e3)}."
    return words + (drift if moved.moved_ms else "")


def merged(latencies: Sequence[Latency]) -> Latency:
    """Several distributions as one. Its percentiles are upper ends of bins: never better than they were."""
    counts: Counter[tuple[float, float]] = Counter()
    for latency in latencies:
        for low, high, count in ((one.low, one.high, one.count) for one in latency.bins):
            counts[low, high] += count
    bins = [Bin(low, high, counts[low, high]) for low, high in sorted(counts)]
    slowest = max((latency.max for latency in latencies if latency.max is not None), default=None)
    values = {name: _percentile(bins, share, slowest) for name, share in _SHARES}
    return Latency(count=sum(one.count for one in bins), max=slowest, bins=tuple(bins), **values)


def _percentile(bins: Sequence[Bin], share: float, slowest: float | None) -> float | None:
    left = share * sum(one.count for one in bins)
    for one in bins:
        left -= one.count
        if left <= 0:
            return one.high if slowest is None else min(one.high, slowest)
    return slowest


def _scale(latencies: Iterable[Latency]) -> LogScale:
    """A decade at least, around all but the few fastest and slowest of all, between 100 µs and 100 days."""
    whole = merged(list(latencies))
    low, high = (_percentile(whole.bins, share, whole.max) or 0.0 for share in (NEGLIGIBLE, 1 - NEGLIGIBLE))
    low = min(max(low / 1.5, 1e-4), 1e6)
    return LogScale(low, min(max(high * 1.5, low * 10), 1e7), 0.0, 1.0)


def _columns(latency: Latency, scale: LogScale) -> list[float]:
    """The share of all deliveries in each column of the drawing; bins that lie across several are spread."""
    decades = math.log10(scale.last / scale.first)
    number_of = round(max(decades * PER_DECADE, min(decades * FINEST, LEAST)))
    columns = [0.0] * number_of
    for low, high, count in ((one.low, one.high, one.count) for one in latency.bins):
        start, end = scale.at(low) * number_of, scale.at(high) * number_of
        if end - start < 1e-9:
            columns[min(int(start), number_of - 1)] += count
            continue
        for place in range(int(start), min(math.ceil(end), number_of)):
            columns[place] += count * (min(end, place + 1) - max(start, place)) / (end - start)
    total = sum(columns) or 1.0
    return [column / total for column in columns]


def _hill(latency: Latency, scale: LogScale, left: float, right: float, base: float, height: float) -> list[Markup]:
    """The distribution as a hill on a base line, as high as the room there is, with its three percentiles."""
    columns = _columns(latency, scale)
    peak, width = max(columns), (right - left) / len(columns)
    first = next(place for place, column in enumerate(columns) if column)
    last = len(columns) - next(place for place, column in enumerate(reversed(columns)) if column)
    tops = [(left + (place + 0.5) * width, base - columns[place] / peak * height) for place in range(first, last)]
    points = [(left + first * width, base), *tops, (left + last * width, base)]
    marks = []
    for name, _ in _SHARES:
        if (value := getattr(latency, name)) is not None:
            x = left + scale.at(value) * (right - left)
            marks.append(line(x, base - height, x, base, name))
    return [outline(points, "area", close=True), *marks]


def _decade_lines(
    scale: LogScale, left: float, right: float, top: float, bottom: float, *, every: int = 1
) -> list[Markup]:
    """A line for every power of ten, labelled below."""
    drawn = []
    for place, value in enumerate(scale.ticks()):
        x = left + scale.at(value) * (right - left)
        drawn.append(line(x, top, x, bottom, "grid"))
        if place % every == 0:
            anchor = "start" if x - left < 12 else "end" if right - x < 12 else "middle"
            drawn.append(text(x, bottom + 14, span(value) if value < 60 else f"{value:,.0f} s", anchor=anchor))
    return drawn


def _ridges(caption: str, rows: Sequence[tuple[str, Latency]], scale: LogScale) -> Markup:
    """Distributions below each other, each with its figures beside it."""
    row, left, right, top = 48, 0, 760, 6
    bottom = top + row * len(rows)
    drawn: list[Child] = [_decade_lines(scale, left, right, top, bottom)]
    for place, (words, latency) in enumerate(rows):
        base = top + row * (place + 1) - 1
        drawn += [line(left, base, right, base, "axis"), *_hill(latency, scale, left, right, base, row - 12)]
        told = f"p50 {span(latency.p50)} · p95 {span(latency.p95)} · p99 {span(latency.p99)}"
        drawn += [
            text(right + 16, base - 20, words, class_="strong"),
            text(right + 16, base - 5, told),
        ]
    label = "; ".join(f"{words}: {_spoken(latency)}" for words, latency in rows)
    picture = drawing(1080, bottom + 20, f"{caption}. {label}", drawn)
    return element("figure", element("figcaption", element("b", caption)), picture, class_="sheet")


def _spoken(latency: Latency) -> str:
    return f"half within {span(latency.p50)}, 95 % within {span(latency.p95)}, 99 % within {span(latency.p99)}"


def _small(pair: Pair, scale: LogScale) -> Markup:
    """One pair: its name, its figures, its hill."""
    latency = _shown(pair)
    every = 2 if math.log10(scale.last / scale.first) > 6 else 1
    picture = drawing(
        300,
        76,
        f"Latencies of {pair.source} to {pair.peer}: {_spoken(latency)}",
        _decade_lines(scale, 2, 298, 2, 58, every=every),
        line(2, 58, 298, 58, "axis"),
        _hill(latency, scale, 2, 298, 58, 50),
    )
    told = f"p50 {span(latency.p50)} · p95 {span(latency.p95)} · p99 {span(latency.p99)}"
    beside = f"skew of {_signed(pair.skew.ms)} taken out" if pair.skew is not None else "clocks could not be compared"
    if latency is not pair.latencies.whole:
        beside = "as far as the acknowledgement"
    lines = [element("span", words, class_="soft") for words in (told, beside)]
    caption = element("figcaption", element("b", way(pair.source, pair.peer)), lines)
    return element("figure", caption, picture)


def _signed(milliseconds: float) -> str:
    return f"{'+' if milliseconds > 0 else ''}{span(milliseconds / 1e3)}"


def _all_pairs(pairs: Sequence[Pair], scale: LogScale) -> Markup:
    """Every pair in one table, source by source, behind a fold for each."""
    in_order = sorted(pairs[:MOST_RIDGES], key=lambda pair: [natural(name) for name in name_of(pair)])
    folds = []
    for (group, source), same in groupby(in_order, key=lambda pair: (pair.group, pair.source)):
        its = list(same)
        rows = [_strip_row(pair, scale) for pair in its]
        slowest = max(_shown(pair).p99 or 0 for pair in its)
        told = f" · {counted(len(its), 'peer')}, p99 at most {span(slowest)}"
        folds.append(
            folded(
                join(element("bdi", source), f" in {group}", told),
                table(f"Latencies of what {source} recorded", _STRIP, rows),
            )
        )
    more = len(pairs) - MOST_RIDGES
    rest = paragraph(f"and {counted(more, 'faster pair')}, in report.json") if more > 0 else None
    on_screen = element("div", element("h3", "Every pair, by source"), folds, rest, class_="screen")
    return join(
        on_screen, paragraph("The latencies of every pair are in this page, and are not printed.", class_="soft paper")
    )


_STRIP = (
    Column("To"),
    Column("Distribution"),
    number("p50"),
    number("p95"),
    number("p99"),
    number("Slowest"),
    number("Deliveries"),
)


def _strip_row(pair: Pair, scale: LogScale) -> Sequence[Child]:
    latency = _shown(pair)
    strip = drawing(
        240, 26, _spoken(latency), line(0, 25, 240, 25, "axis"), _hill(latency, scale, 0, 240, 25, 23), class_="strip"
    )
    figures = (span(value) for value in (latency.p50, latency.p95, latency.p99, latency.max))
    return (element("bdi", pair.peer), strip, *figures, f"{latency.count:,}")
