"""Draws stored results: events per second, and the 50th and 99th percentile of latency, run after run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT = 86, 24
BANDS = ((56, 210, "events a second"), (256, 400, "milliseconds"))
LINES = (
    (0, "events_per_second", "#1f6feb", "events/s"),
    (1, "p50_ms", "#2da44e", "p50"),
    (1, "p99_ms", "#cf222e", "p99"),
)
MOST_LABELS = 8


def plot(results: Sequence[Mapping[str, Any]]) -> str:
    """Return an SVG image of these results of one measurement with the same settings."""
    last = results[-1]
    title = f"{last['bench']}: {len(results)} runs, the last with {last['events_per_second']:,.0f} events a second"
    image = Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {WIDTH} {HEIGHT}",
            "width": str(WIDTH),
            "height": str(HEIGHT),
            "role": "img",
            "aria-label": title,
            "font-family": "system-ui, sans-serif",
            "font-size": "12",
        },
    )
    SubElement(image, "rect", {"width": "100%", "height": "100%", "fill": "#ffffff"})
    settings = ", ".join(f"{name} {value}" for name, value in last["settings"].items())
    _text(image, LEFT, 22, f"routerctl bench {last['bench']}", weight="bold")
    _text(image, LEFT, 38, settings, fill="#57606a", size="10")
    for band, (top, bottom, name) in enumerate(BANDS):
        drawn = [line for line in LINES if line[0] == band]
        high = _round_up(max(float(one[field]) for one in results for _, field, _, _ in drawn))
        _axis(image, top, bottom, name, high)
        for at, (_, field, colour, word) in enumerate(drawn):
            values = [float(one[field]) for one in results]
            _curve(image, values, results, colour, lambda v, t=top, b=bottom, h=high: b - (b - t) * v / h)  # type: ignore[misc]
            _text(image, WIDTH - RIGHT - 60 * at, top - 6, word, fill=colour, anchor="end")
    _dates(image, results)
    indent(image)
    return tostring(image, encoding="unicode") + "\n"


def _round_up(value: float) -> float:
    """Return the smallest of …, 0.5, 1, 2, 5, 10, … not below the value, so that marks are round numbers; 1 for 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9))


def _across(at: int, of: int) -> float:
    """Return the horizontal position of run `at`, counted from 0, among `of` runs."""
    return LEFT + (WIDTH - LEFT - RIGHT) * (at + 0.5) / of


def _axis(image: Element, top: int, bottom: int, name: str, high: float) -> None:
    for quarter in range(5):
        y = bottom - (bottom - top) * quarter / 4
        SubElement(
            image,
            "line",
            {"x1": str(LEFT), "x2": str(WIDTH - RIGHT), "y1": f"{y:g}", "y2": f"{y:g}", "stroke": "#d0d7de"},
        )
        _text(image, LEFT - 8, y + 4, f"{high * quarter / 4:,g}", fill="#57606a", anchor="end")
    _text(image, LEFT, top - 6, name, fill="#57606a")


def _curve(
    image: Element,
    values: Sequence[float],
    results: Sequence[Mapping[str, Any]],
    colour: str,
    height: Callable[[float], float],
) -> None:
    points = [(_across(at, len(values)), height(value)) for at, value in enumerate(values)]
    way = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    SubElement(image, "polyline", {"points": way, "fill": "none", "stroke": colour, "stroke-width": "1.5"})
    for (x, y), value, one in zip(points, values, results, strict=True):
        dot = SubElement(image, "circle", {"cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": "3", "fill": colour})
        SubElement(dot, "title").text = f"{one['time'][:19]}: {value:,g}"


def _dates(image: Element, results: Sequence[Mapping[str, Any]]) -> None:
    step = math.ceil(len(results) / MOST_LABELS)
    for at in range(0, len(results), step):
        words = str(results[at]["time"])[5:16].replace("T", " ")
        _text(image, _across(at, len(results)), HEIGHT - 16, words, fill="#57606a", anchor="middle", size="10")


def _text(image: Element, x: float, y: float, words: str, *, fill: str = "#24292f", **more: str) -> None:
    names = {"anchor": "text-anchor", "weight": "font-weight", "size": "font-size"}
    attributes = {names[name]: value for name, value in more.items()}
    SubElement(image, "text", {"x": f"{x:g}", "y": f"{y:g}", "fill": fill, **attributes}).text = words
