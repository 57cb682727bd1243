"""Formats results as Markdown and as a picture. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement, indent, tostring

HIGHER, LOWER = ("catch_up", "publish", "stream", "through_client"), ("p50", "p99")
NAMES = {
    "catch_up": "catch-up",
    "p50": "p50",
    "p99": "p99",
    "publish": "publish",
    "stream": "stream",
    "through_client": "through client",
}
COLOURS = {
    "catch_up": "#1f6feb",
    "p50": "#bf8700",
    "p99": "#cf222e",
    "publish": "#2da44e",
    "stream": "#0a7a8c",
    "through_client": "#8250df",
}
COLUMNS = {
    "catch_up": ("catch-up/s", 0),
    "cpu_a": ("CPU A µs", 1),
    "cpu_b": ("CPU B µs", 1),
    "p50": ("p50 ms", 2),
    "p99": ("p99 ms", 2),
    "publish": ("publish/s", 0),
    "core": ("core", 2),
    "stream": ("stream/s", 0),
    "stream_core": ("core", 2),
    "through_client": ("through client/s", 0),
    "client_core": ("core", 2),
    "fsync": ("fsync ms", 2),
    "load": ("load", 1),
}
"""The headings of the figures, and the digits after the point."""
NONE = "–"
WIDTH, LABEL, BAR, SPACE, TOP = 800, 250, 12, 16, 64
FURTHEST = 100.0


@dataclass(slots=True)
class Row:
    """A contestant and its rounds. `missing` says why it has none, `client_missing` why none through its client."""

    name: str
    version: str = ""
    durability: str = ""
    settings: str = ""
    rounds: list[Mapping[str, float]] = field(default_factory=list)
    missing: str = ""
    client: str = ""
    client_missing: str = ""

    def taken(self, figure: str) -> list[float]:
        """Return a figure of each round that has it."""
        return [one[figure] for one in self.rounds if figure in one]

    def median(self, figure: str) -> float | None:
        """Return the median of a figure; None if it was not measured."""
        taken = self.taken(figure)
        return statistics.median(taken) if taken else None


def ratio(own: Row, other: Row, figure: str) -> float | None:
    """Return how many times better the own node is: above 1 it is ahead, whether more or less is better."""
    ours, theirs = own.median(figure), other.median(figure)
    if ours is None or theirs is None:
        return None
    return ours / theirs if figure in HIGHER else theirs / ours


def markdown(rows: Sequence[Row], facts: Mapping[str, object]) -> str:
    """Return the tables: figures, ratios, guarantees, and missing contestants. The first row is the own node."""
    measured = [row for row in rows if row.rounds]
    told = ", ".join(f"{name} {value}" for name, value in facts.items())
    parts = [f"Run: {told}.", _figures(measured)]
    own = rows[0]
    if own.rounds and len(measured) > 1:
        parts += ["How many times better our node on SQLite is; below 1 it is behind:", _ratios(own, measured[1:])]
    if any(len(row.rounds) > 1 for row in measured):
        parts += ["The lowest and the highest round:", _spread(measured)]
    parts.append(_promises(measured))
    missing = [f"- {row.name}: {row.missing}." for row in rows if row.missing]
    missing += [f"- {row.name}, through its client: {row.client_missing}." for row in measured if row.client_missing]
    if missing:
        parts.append("Not measured:\n\n" + "\n".join(missing))
    return "\n\n".join(parts) + "\n"


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]], numbers: bool = True) -> str:
    rule = ["---", *(["--:" if numbers else "---"] * (len(heads) - 1))]
    return "\n".join("| " + " | ".join(line) + " |" for line in (heads, rule, *lines))


def _figures(rows: Sequence[Row]) -> str:
    lines = [
        [row.name, *(_number(row.median(figure), digits) for figure, (_, digits) in COLUMNS.items())] for row in rows
    ]
    return _table(["", *(head for head, _ in COLUMNS.values())], lines)


def _ratios(own: Row, others: Sequence[Row]) -> str:
    lines = [[row.name, *(_number(ratio(own, row, figure), 2) for figure in NAMES)] for row in others]
    return _table(["", *NAMES.values()], lines)


def _spread(rows: Sequence[Row]) -> str:
    lines = [[row.name, *(_ends(row.taken(figure), COLUMNS[figure][1]) for figure in NAMES)] for row in rows]
    return _table(["", *(COLUMNS[figure][0] for figure in NAMES)], lines)


def _ends(taken: Sequence[float], digits: int) -> str:
    return f"{_number(min(taken), digits)} – {_number(max(taken), digits)}" if taken else NONE


def _number(value: float | None, digits: int) -> str:
    return NONE if value is None else f"{value:,.{digits}f}"


def _promises(rows: Sequence[Row]) -> str:
    lines = [[row.name, row.version, row.durability, row.settings, row.client or NONE] for row in rows]
    return _table(["", "version", "what is acknowledged is", "settings", "client for Python"], lines, numbers=False)


def picture(rows: Sequence[Row]) -> str:
    """Draw the ratios as bars on a logarithmic scale: to the right of the line the own node is ahead, to the left
    behind."""
    own, others = rows[0], [row for row in rows[1:] if row.rounds]
    groups = [
        (
            row.name,
            [None if (value := ratio(own, row, figure)) is None else Bar(value, COLOURS[figure]) for figure in NAMES],
        )
        for row in others
    ]
    title = "How many times better our node is than each rival (left of 1: behind)"
    legend = [(name, COLOURS[figure]) for figure, name in NAMES.items()]
    return draw("our node compared with each rival", title, legend, groups)


class Bar(NamedTuple):
    """One ratio, and the colour of its bar."""

    ratio: float
    colour: str


def draw(
    label: str,
    title: str,
    legend: Sequence[tuple[str, str]],
    groups: Sequence[tuple[str, Sequence[Bar | None]]],
    left: int = LABEL,
) -> str:
    """Return an SVG image of groups of bars on a logarithmic scale around 1; names stand in a column of `left`."""
    bars = max(len(group) for _, group in groups)
    room = BAR * bars + SPACE
    height = TOP + room * len(groups) + 30
    size = {"viewBox": f"0 0 {WIDTH} {height}", "width": str(WIDTH), "height": str(height)}
    fonts = {"font-family": "system-ui, sans-serif", "font-size": "12"}
    image = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "aria-label": label, **size, **fonts})
    SubElement(image, "rect", {"width": "100%", "height": "100%", "fill": "#ffffff"})
    _text(image, 16, 22, title)
    for at, (name, colour) in enumerate(legend):
        _text(image, 16 + 100 * at, 42, f"■ {name}", colour)
    for mark in (0.01, 0.1, 1, 10, 100):
        x = _across(mark, left)
        line = {"x1": f"{x:g}", "x2": f"{x:g}", "y1": str(TOP - 6), "y2": str(height - 24)}
        SubElement(image, "line", {**line, "stroke": "#24292f" if mark == 1 else "#d0d7de"})
        _text(image, x - 8, height - 8, f"{mark:g}")
    for at, (name, group) in enumerate(groups):
        y = TOP + room * at
        _text(image, 16, y + room / 2 - 4, name)
        for number, bar in enumerate(group):
            if bar is not None:
                _bar(image, y + BAR * number, bar, left)
    indent(image)
    return tostring(image, encoding="unicode") + "\n"


def _across(value: float, left: int) -> float:
    """Return the x coordinate of a ratio, limited to the scale."""
    share = math.log(min(FURTHEST, max(1 / FURTHEST, value)), FURTHEST)
    return left + (WIDTH - left - 24) * (share + 1) / 2


def _bar(image: Element, y: float, bar: Bar, left: int) -> None:
    begin, end = sorted((_across(1, left), _across(bar.ratio, left)))
    box = {
        "x": f"{begin:.1f}",
        "y": f"{y:g}",
        "width": f"{end - begin:.1f}",
        "height": str(BAR - 2),
        "fill": bar.colour,
    }
    SubElement(SubElement(image, "rect", box), "title").text = f"{bar.ratio:.2f}"


def _text(image: Element, x: float, y: float, words: str, colour: str = "#24292f") -> None:
    SubElement(image, "text", {"x": f"{x:g}", "y": f"{y:g}", "fill": colour}).text = words
