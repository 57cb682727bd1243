"""When: how much was due in each hour, and where and when something was missing or still to come."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from eventd.audit.report.figures import HOUR, counted, micros, natural, period, short_span
from eventd.audit.report.html.markup import Child, Markup, element
from eventd.audit.report.html.svg import SECOND, TimeScale, bar, drawing, line, text
from eventd.audit.report.html.tables import Column, number, paragraph, section, swatch, table, way, wide
from eventd.audit.report.report import Gap, Report
from eventd.audit.report.standing import PairName

MOST_LANES = 30
"""Pairs that are drawn, those that miss most first."""
MOST_ROWS = 100
"""Rows of the table of gaps."""

_WIDTH, _LEFT, _RIGHT = 1080, 190, 1068
_LANE, _VOLUME = 22, 64


class Stretch(NamedTuple):
    """Part of a lane: from when to when (microseconds), how it is filled, and what it says."""

    since: int
    until: int
    fill: str
    told: str


def timeline(report: Report) -> Markup | None:
    """The section of the timeline; None where no time is known."""
    first, last = micros(report.period.first), micros(report.period.last)
    if first is None or last is None:
        return None
    lanes = _lanes(report, last)
    ends = [stretch.until for stretches in lanes.values() for stretch in stretches]
    starts = [stretch.since for stretches in lanes.values() for stretch in stretches]
    scale = TimeScale(min([first, *starts]), max([last, *ends, first + 1]), _LEFT, _RIGHT)
    return section(
        "timeline",
        "Gaps and what is still to come",
        paragraph(_sentence(report, lanes)),
        _picture(report, lanes, scale),
        _table(report.gaps),
    )


def _sentence(report: Report, lanes: dict[PairName, list[Stretch]]) -> str:
    if not lanes:
        known = "There was no gap" if report.verdict == "complete" else "No gap is known"
        return f"{known} at any time, and nothing is still to come."
    lost = sum(gap.events for gap in report.gaps if gap.kind == "missing")
    parts = [f"{counted(lost, 'event')} missing"] if lost else []
    if told := sum(gap.events for gap in report.gaps if gap.kind == "declared"):
        parts.append(f"up to {counted(told, 'event')} lost before they were sent, as nodes told of themselves")
    if report.totals.pending:
        parts.append(f"{report.totals.pending:,} still to come")
    return f"On {counted(len(lanes), 'pair')}: {', '.join(parts) or 'a gap without events'}."


def _lanes(report: Report, last: int) -> dict[PairName, list[Stretch]]:
    """For each pair with something to show, its stretches in the order of drawing."""
    lanes: dict[PairName, list[Stretch]] = defaultdict(list)
    for pair in report.pairs:
        open_since = micros(pair.oldest_open_gap.since) if pair.oldest_open_gap else None
        if pair.pending and open_since is not None and not pair.missing:
            told = f"{pair.pending:,} still to come; the oldest waits for {short_span(pair.lag)}"
            lanes[pair.group, pair.source, pair.peer].append(Stretch(open_since, max(last, open_since), "open", told))
    for gap in sorted(report.gaps, key=lambda gap: gap.kind):
        since, until = micros(gap.since), micros(gap.until)
        if since is None or until is None:
            continue
        told = f"{counted(gap.events, 'event')} {gap.kind}{f' ({gap.reason})' if gap.reason else ''}"
        fill = "bad" if gap.kind == "missing" else "none"
        when = f"{told}: {period(gap.since, gap.until)}"
        lanes[gap.group, gap.source, gap.peer].append(Stretch(since, max(until, since), fill, when))
    return dict(lanes)


def _picture(report: Report, lanes: dict[PairName, list[Stretch]], scale: TimeScale) -> Markup:
    lost: Counter[PairName] = Counter()
    for gap in report.gaps:
        lost[gap.group, gap.source, gap.peer] += gap.events
    names = sorted(lanes, key=lambda name: (-lost[name], [natural(part) for part in name]))
    shown = names[:MOST_LANES]
    bars = _volume(report, scale)
    top = _VOLUME + 14 if bars else 4
    bottom = top + _LANE * len(shown)
    ticks: list[Child] = []
    for moment, label in scale.ticks():
        x = scale.at(moment)
        ticks += [
            line(x, 2, x, bottom + 2, "grid"),
            text(x, bottom + 16, label, anchor="end" if x > _RIGHT - 14 else "middle"),
        ]
    drawn = [_lane(name, lanes[name], top + _LANE * place, scale) for place, name in enumerate(shown)]
    label = f"Timeline from {period(report.period.first, report.period.last)}. {_sentence(report, lanes)}"
    picture = drawing(_WIDTH, bottom + 24, label, ticks, bars, drawn)
    more = (
        paragraph(f"and {counted(len(names) - len(shown), 'more pair')} with smaller gaps, in the table below")
        if names[MOST_LANES:]
        else None
    )
    caption = element("figcaption", element("b", "Time of the events, UTC"))
    return element("figure", caption, picture, more, _key(lanes), class_="sheet")


def _key(lanes: dict[PairName, list[Stretch]]) -> Markup | None:
    words = (("bad", "missing"), ("open", "still to come"), ("none", "a loss the node itself has told of"))
    drawn = {stretch.fill for stretches in lanes.values() for stretch in stretches}
    if not drawn:
        return None
    return element("ul", (element("li", swatch(fill), told) for fill, told in words if fill in drawn), class_="legend")


def _lane(name: PairName, stretches: Sequence[Stretch], top: float, scale: TimeScale) -> list[Markup]:
    """One pair: its name, a bar for all of the time, and on it what happened. The shortest gap can still be seen."""
    group, source, peer = name
    words = f"{source} → {peer}" if peer else source
    short = words if len(words) <= 30 else f"{words[:29]}…"
    drawn = [
        element(
            "text",
            element("title", f"{words}, group {group}"),
            short,
            x=float(_LEFT - 10),
            y=top + 14,
            text_anchor="end",
        ),
        bar(_LEFT, top + 4, _RIGHT - _LEFT, _LANE - 8, "lane"),
    ]
    inset = {"bad": 4, "open": 6, "none": 8}
    for one in stretches:
        x, off = scale.at(one.since), inset[one.fill]
        width = max(scale.at(one.until) - x, 3.0)
        drawn.append(bar(min(x, _RIGHT - width), top + off, width, _LANE - 2 * off, f"f-{one.fill}", title=one.told))
    return drawn


def _volume(report: Report, scale: TimeScale) -> list[Markup]:
    """What was due in each hour, over all pairs and types; nothing where there is one hour alone."""
    expected: Counter[int] = Counter()
    for hour in report.hours:
        if (at := micros(hour.hour)) is not None:
            expected[at] += hour.expected
    if len(expected) < 2:
        return []
    highest = max(max(expected.values()), 1)
    drawn = [
        text(_LEFT - 10, 14, "deliveries due by hour", anchor="end"),
        text(_LEFT - 10, 28, f"at most {highest:,}", anchor="end"),
        line(_LEFT, _VOLUME, _RIGHT, _VOLUME, "axis"),
    ]
    for at, count in sorted(expected.items()):
        x, end = scale.at(at), scale.at(at + HOUR * SECOND)
        height = count / highest * (_VOLUME - 6)
        title = f"{counted(count, 'delivery', 'deliveries')} due"
        drawn.append(bar(x, _VOLUME - height, max(end - x - 1, 0.75), height, "f-shape", title=title))
    return drawn


def _table(gaps: Sequence[Gap]) -> Markup | None:
    if not gaps:
        return None
    columns = (Column("From → to"), Column("Group"), Column("What"), number("Events"), wide("When"), Column("Lasted"))
    ordered = sorted(gaps, key=lambda gap: (-gap.events, gap.since))
    rows = [
        (
            way(gap.source, gap.peer),
            gap.group,
            _what(gap),
            _events(gap),
            period(gap.since, gap.until),
            _lasted(gap),
        )
        for gap in ordered
    ]
    return table("Gaps, the largest first", columns, rows, most=MOST_ROWS, noun="gap")


def _events(gap: Gap) -> str:
    """How many. Who tells of a loss tells a range of its log, and not all of it need have been meant for the peer."""
    return f"{gap.events:,}" if gap.kind == "missing" else f"up to {gap.events:,}"


def _what(gap: Gap) -> str:
    return f"{gap.kind}: {gap.reason}" if gap.reason else gap.kind


def _lasted(gap: Gap) -> str:
    since, until = micros(gap.since), micros(gap.until)
    return short_span((until - since) / SECOND) if since is not None and until is not None else "–"
