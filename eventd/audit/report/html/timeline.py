"""The timeline: expected deliveries in each hour, and spans with missing, pending or declared lost events."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from eventd.audit.report.figures import HOUR, NONE, micros, natural, period, short_span
from eventd.audit.report.html.scales import SECOND, Tick, TimeScale
from eventd.audit.report.pair_status import PairName
from eventd.audit.report.report import LostSpan, Report
from eventd.audit.report.time_zone import zone_of
from eventd.text.plural import counted

MOST_LANES = 30
"""Maximum number of lanes; the pairs with most missing or lost events are drawn."""
LEFT, RIGHT = 190, 1068
LANE, VOLUME = 22, 64
_INSET = {"bad": 4, "open": 6, "none": 8}
_KEY = {"bad": "missing", "open": "pending", "none": "a loss declared by the node"}


class TimelineSpan(NamedTuple):
    """A bar of a lane before it is scaled: its start and end (microseconds since 1970), its fill, and its tooltip."""

    since: int
    until: int
    fill: str
    title: str


class Bar(NamedTuple):
    """A rectangle of the chart, in pixels, with its tooltip; `fill` is empty in the volume by hour."""

    x: float
    y: float
    width: float
    height: float
    title: str
    fill: str = ""


Lanes = dict[PairName, list[TimelineSpan]]


def timeline(report: Report) -> dict[str, Any] | None:
    """Return the template's data for the timeline; None if the period is unknown."""
    first, last = micros(report.period.first), micros(report.period.last)
    if first is None or last is None:
        return None
    lanes, zone = _lanes(report, last), zone_of(report)
    drawn = [span for spans in lanes.values() for span in spans]
    volume = _volume(report)
    near = _without_outliers(volume)
    if left_out := volume.total() - near.total():
        first, last = min(near), max(near) + HOUR * SECOND
    else:
        first = min([first, *(one.since for one in drawn)])
        last = max([last, *(one.until for one in drawn), first + 1])
    scale, volume = TimeScale(first, last, LEFT, RIGHT, zone), near
    names = _names(report, lanes)
    top = VOLUME + 14 if volume else 4
    sentence = _summary(report, lanes)
    if left_out:
        words = counted(left_out, "expected delivery", "expected deliveries")
        sentence += f" Not drawn: {words} of events from long before or after all others."
    return {
        "sentence": sentence,
        "label": f"Timeline from {period(report.period.first, report.period.last, zone)}. {sentence}",
        "ticks": [
            Tick(x, label, "end" if x > RIGHT - 14 else "middle")
            for x, label in ((scale.at(moment), label) for moment, label in scale.ticks())
        ],
        "bottom": top + LANE * len(names[:MOST_LANES]),
        "highest": max(volume.values(), default=0),
        "bars": _bars(volume, scale),
        "lanes": [_lane(name, lanes[name], top + LANE * at, scale) for at, name in enumerate(names[:MOST_LANES])],
        "left_out": len(names[MOST_LANES:]),
        "key": [(fill, words) for fill, words in _KEY.items() if any(one.fill == fill for one in drawn)],
        "zone": str(zone),
        "gaps": sorted(report.gaps, key=lambda gap: (-gap.events, gap.since)),
    }


def lasted(gap: LostSpan) -> str:
    """Format the length of a gap; a dash if its start or end is not a valid time."""
    since, until = micros(gap.since), micros(gap.until)
    return short_span((until - since) / SECOND) if since is not None and until is not None else NONE


def _summary(report: Report, lanes: Lanes) -> str:
    if not lanes:
        known = "There was no gap" if report.verdict == "complete" else "No gap is known"
        return f"{known}, and nothing is pending."
    lost = sum(gap.events for gap in report.gaps if gap.kind == "missing")
    parts = [f"{counted(lost, 'event')} missing"] if lost else []
    if declared := sum(gap.events for gap in report.gaps if gap.kind == "declared"):
        parts.append(f"up to {counted(declared, 'event')} in ranges that nodes declared as lost")
    if report.totals.pending:
        parts.append(f"{report.totals.pending:,} pending")
    return f"On {counted(len(lanes), 'pair')}: {', '.join(parts) or 'a gap without events'}."


def _lanes(report: Report, last: int) -> Lanes:
    """Return the spans of each pair, or node (peer ''), with any, in order of drawing: pending, declared, missing."""
    lanes: Lanes = defaultdict(list)
    for pair in report.pairs:
        open_since = micros(pair.oldest_open_gap.since) if pair.oldest_open_gap else None
        if pair.pending and open_since is not None and not pair.missing:
            title = f"{pair.pending:,} pending; the oldest for {short_span(pair.lag)}"
            lanes[pair.group, pair.source, pair.peer].append(
                TimelineSpan(open_since, max(last, open_since), "open", title)
            )
    for gap in sorted(report.gaps, key=lambda gap: gap.kind):
        since, until = micros(gap.since), micros(gap.until)
        if since is None or until is None:
            continue
        what = f"{counted(gap.events, 'event')} {gap.kind}{f' ({gap.reason})' if gap.reason else ''}"
        fill = "bad" if gap.kind == "missing" else "none"
        title = f"{what}: {period(gap.since, gap.until, zone_of(report))}"
        lanes[gap.group, gap.source, gap.peer].append(TimelineSpan(since, max(until, since), fill, title))
    return dict(lanes)


def _names(report: Report, lanes: Lanes) -> list[PairName]:
    lost: Counter[PairName] = Counter()
    for gap in report.gaps:
        lost[gap.group, gap.source, gap.peer] += gap.events
    return sorted(lanes, key=lambda name: (-lost[name], [natural(part) for part in name]))


def _lane(name: PairName, spans: Sequence[TimelineSpan], top: float, scale: TimeScale) -> dict[str, Any]:
    """Return the lane of one pair: its name, and the bars of its spans. The shortest gap stays visible."""
    group, source, peer = name
    words = f"{source} → {peer}" if peer else source
    bars = []
    for one in spans:
        x, inset = scale.at(one.since), _INSET[one.fill]
        width = max(scale.at(one.until) - x, 3.0)
        bars.append(Bar(min(x, RIGHT - width), top + inset, width, LANE - 2 * inset, one.title, one.fill))
    return {
        "top": top,
        "title": f"{words}, group {group}",
        "name": words if len(words) <= 30 else f"{words[:29]}…",
        "spans": bars,
    }


def _volume(report: Report) -> Counter[int]:
    """Return the number of expected deliveries by start of the hour (microseconds); empty for fewer than two hours."""
    expected: Counter[int] = Counter()
    for hour in report.hours:
        if (at := micros(hour.hour)) is not None:
            expected[at] += hour.expected
    return expected if len(expected) > 1 else Counter()


def _without_outliers(volume: Counter[int]) -> Counter[int]:
    """Return the hours that are drawn: without those far before or after all others, for at most 1 % of the deliveries.

    A node reports the time of an event, and one of the year 9999 would leave a pixel for all others.
    """
    kept, budget = sorted(volume), volume.total() // 100
    while len(kept) > 1:
        gap, at = max((later - hour, place) for place, (hour, later) in enumerate(pairwise(kept), 1))
        smaller, larger = sorted((kept[:at], kept[at:]), key=lambda hours: sum(volume[hour] for hour in hours))
        cost = sum(volume[hour] for hour in smaller)
        if 2 * gap <= kept[-1] - kept[0] or cost > budget:
            break
        kept, budget = larger, budget - cost
    return Counter({hour: volume[hour] for hour in kept})


def _bars(volume: Counter[int], scale: TimeScale) -> list[Bar]:
    highest = max(*volume.values(), 1) if volume else 1
    bars = []
    for at, count in sorted(volume.items()):
        x, height = scale.at(at), count / highest * (VOLUME - 6)
        width = max(scale.at(at + HOUR * SECOND) - x - 1, 0.75)
        bars.append(Bar(x, VOLUME - height, width, height, f"{counted(count, 'delivery', 'deliveries')} expected"))
    return bars
