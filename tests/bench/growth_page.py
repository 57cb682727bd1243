"""Formats results as Markdown tables and as one picture. Pure."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, SubElement, indent, tostring

Result = Mapping[str, Any]

NAMES = {
    "ingest": "ingest over the API, an event",
    "push": "push to a peer, an event",
    "receive": "receive from a peer, an event",
    "page_start": "read a page at the start, an event",
    "page_middle": "read a page in the middle, an event",
    "page_end": "read a page at the end, an event",
    "page_type": "a page of one type in ten, a call",
    "page_subject": "a page of subjects, a call",
    "list": "list the newest 100, a call",
    "look_up": "look up an id, a call",
    "deliveries_start": "list the oldest 100 deliveries, a call",
    "deliveries_end": "list the newest 100 deliveries, a call",
    "doctor": "doctor, a call",
    "links": "links, a call",
    "status": "status, a call",
    "prune": "prune, an event",
    "summary": "deliveries summary, a stored event",
    "rare_type": "ask for a type that is not there, a stored event",
    "rare_subject": "ask for a subject that is not there, a stored event",
}
FIGURES = {"a_peak_mib": "peak memory of the sender, MiB", "b_peak_mib": "peak memory of the receiver, MiB"}
HEADS = {
    "peers": "peers",
    "dead": "of these dead",
    "groups": "groups",
    "declare_s": "declared in s",
    "events_per_second": "events/s together",
    "cpu_us": "CPU µs of the node, an event and peer",
    "lone_p50_ms": "a lone event at all, p50 ms",
    "lone_max_ms": "slowest ms",
    "lone_cpu_us": "CPU µs of it, for each peer",
    "p99_ms": "p99 of a request, ms",
    "status_ms": "status, CPU ms",
    "start_s": "start, s",
    "peak_mib": "peak memory, MiB",
    "ingest_mb_per_second": "ingest, MB/s",
    "ingest_p99_ms": "p99 of a request, ms",
    "push_mb_per_second": "push, MB/s",
    "ingest_cpu_us": "CPU µs: ingest",
    "push_cpu_us": "push",
    "receive_cpu_us": "receive",
    "a_peak_mib": "peak memory A, MiB",
    "b_peak_mib": "B",
    "alone_per_second": "ingest alone, events/s",
    "alone_p99_ms": "p99 of a request, ms",
    "beside_per_second": "beside retention, events/s",
    "beside_p99_ms": "p99 of a request, ms",
    "removed_per_second": "removed, events/s",
}
"""The columns of each case, in order; further measurements are in the result file only."""
CURVES = (
    *(("node", name) for name in ("ingest", "push", "receive", "page_middle", "list", "look_up", "doctor", "prune")),
    *(("random", name) for name in ("ingest", "receive", "prune")),
)
COLOURS = {
    "ingest": "#cf222e",
    "push": "#1f6feb",
    "receive": "#8250df",
    "page_middle": "#2da44e",
    "list": "#0a7ea4",
    "look_up": "#bf8700",
    "doctor": "#57606a",
    "prune": "#953800",
}
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 800, 420, 56, 220, 48, 40
LEAST, MOST = 0.25, 16.0
"""The ends of the scale: a cost as a multiple of that in the smallest log."""
ALLOWED = 1.2


class Costs(NamedTuple):
    """Medians of all rounds over logs of one kind: microseconds of CPU and of wall time, by size and operation."""

    ids: str
    rounds: int
    cpu: Mapping[int, Mapping[str, float]]
    wall: Mapping[int, Mapping[str, float]]
    figures: Mapping[int, Mapping[str, float]]


def read_costs(results: Sequence[Result], ids: str) -> Costs:
    """Return the costs among some results."""
    found: dict[int, list[Result]] = defaultdict(list)
    for one in results:
        if one["case"] == "costs" and one["ids"] == ids:
            found[one["events"]].append(one)
    sizes = sorted(found)

    def medians(kind: str) -> dict[int, dict[str, float]]:
        return {
            size: {
                name: statistics.median(one["costs"][name][kind] for one in found[size])
                for name in found[size][0]["costs"]
            }
            for size in sizes
        }

    figures = {
        size: {name: max(one["figures"][name] for one in found[size]) for name in found[size][0]["figures"]}
        for size in sizes
    }
    return Costs(ids, max(map(len, found.values()), default=0), medians("cpu_us"), medians("wall_us"), figures)


def markdown(results: Sequence[Result]) -> str:
    """Return all tables."""
    parts = []
    for ids in ("node", "random"):
        costs = read_costs(results, ids)
        if costs.cpu:
            parts.append(_of_costs(costs))
    cases: dict[str, list[Result]] = defaultdict(list)
    for one in results:
        if one["case"] != "costs":
            cases[one["case"]].append(one)
    parts += [_of_case(name, found) for name, found in cases.items()]
    return "\n\n".join(parts) + "\n"


def _of_costs(costs: Costs) -> str:
    sizes = [*costs.cpu]
    last = sizes[-1]
    heads = ["µs of CPU", *(f"{size:,}" for size in sizes), "last / first", f"µs of the clock at {last:,}"]
    rows = []
    for name, words in NAMES.items():
        cpu = [costs.cpu[size][name] for size in sizes]
        wall = costs.wall[last][name]
        rows.append([words, *map(_number, cpu), f"{cpu[-1] / cpu[0]:.2f}", _number(wall)])
    for name, words in FIGURES.items():
        peaks = [costs.figures[size][name] for size in sizes]
        rows.append([words, *(f"{peak:.0f}" for peak in peaks), f"{peaks[-1] / peaks[0]:.2f}", ""])
    told = f"Ids: {'made by the node' if costs.ids == 'node' else 'random'}; medians of {costs.rounds} rounds."
    return f"{told}\n\n{_table(heads, rows)}"


def _of_case(name: str, found: Sequence[Result]) -> str:
    """Yield one row for each setting: the medians of its rounds, and the maximum of the peaks."""
    by: dict[tuple[tuple[str, Any], ...], list[Mapping[str, float]]] = defaultdict(list)
    for one in found:
        settings = tuple((key, one[key]) for key in ("peers", "dead", "groups") if key in one)
        by[settings].append(one["figures"])
    settings = [key for key, _ in next(iter(by))]
    figures = [key for key in HEADS if key in found[0]["figures"]]
    rows = []
    for told, rounds in by.items():
        values = [
            (max if key.endswith("mib") else statistics.median)(one[key] for one in rounds)  # type: ignore[operator]
            for key in figures
        ]
        rows.append([*(f"{value:,}" for _, value in told), *map(_number, values)])
    return f"{name}\n\n{_table([HEADS[key] for key in (*settings, *figures)], rows)}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["--:"] * (len(heads) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (heads, rule, *rows))


def picture(results: Sequence[Result]) -> str:
    """Draw each operation's cost as a multiple of its cost in the smallest log; the allowed range is shaded."""
    by_ids = {ids: read_costs(results, ids).cpu for ids in ("node", "random")}
    sizes = [*by_ids["node"]]
    size = {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "width": str(WIDTH), "height": str(HEIGHT)}
    label = "CPU for an operation as the log grows"
    fonts = {"font-family": "system-ui, sans-serif", "font-size": "12"}
    image = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "aria-label": label, **size, **fonts})
    SubElement(image, "rect", {"width": "100%", "height": "100%", "fill": "#ffffff"})
    _text(image, 16, 24, "CPU for an operation, as a multiple of that with 10,000 stored events")
    _scales(image, sizes)
    ends: list[float] = []
    for ids, name in CURVES:
        if cpu := by_ids[ids]:
            _curve(image, ids, name, [(size, cpu[size][name] / cpu[sizes[0]][name]) for size in cpu], ends)
    indent(image)
    return tostring(image, encoding="unicode") + "\n"


def _scales(image: Element, sizes: Sequence[int]) -> None:
    band = {"x": f"{LEFT}", "y": f"{_down(ALLOWED):.1f}", "width": f"{WIDTH - LEFT - RIGHT}"}
    height = f"{_down(1 / ALLOWED) - _down(ALLOWED):.1f}"
    SubElement(image, "rect", {**band, "height": height, "fill": "#dafbe1"})
    for mark in (0.25, 0.5, 1, 2, 4, 8, 16):
        y = f"{_down(mark):.1f}"
        SubElement(image, "line", {"x1": str(LEFT), "x2": str(WIDTH - RIGHT), "y1": y, "y2": y, "stroke": "#d0d7de"})
        _text(image, 16, _down(mark) + 4, f"{mark:g}")
    for size in sizes:
        _text(image, _across(size, sizes) - 20, HEIGHT - 16, f"{size:,}")


def _curve(image: Element, ids: str, name: str, points: Sequence[tuple[int, float]], ends: list[float]) -> None:
    sizes = [size for size, _ in points]
    places = " ".join(f"{_across(size, sizes):.1f},{_down(value):.1f}" for size, value in points)
    dashes = {"stroke-dasharray": "5 4"} if ids == "random" else {}
    line = {"points": places, "fill": "none", "stroke": COLOURS[name], "stroke-width": "2", **dashes}
    SubElement(image, "polyline", line)
    y = _down(points[-1][1])
    while any(abs(y - other) < 13 for other in ends):  # labels must not overlap
        y += 1
    ends.append(y)
    words = f"{name.replace('_', ' ').replace('page middle', 'read a page')}{', random ids' if ids == 'random' else ''}"
    _text(image, WIDTH - RIGHT + 8, y + 4, f"{words} {points[-1][1]:.2f}", COLOURS[name])


def _across(size: int, sizes: Sequence[int]) -> float:
    first, last = math.log(sizes[0]), math.log(sizes[-1])
    return LEFT + (WIDTH - LEFT - RIGHT - 16) * ((math.log(size) - first) / (last - first) if last > first else 0)


def _down(value: float) -> float:
    """Return the y coordinate of a multiple, limited to the scale."""
    share = math.log(min(MOST, max(LEAST, value)) / LEAST) / math.log(MOST / LEAST)
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share


def _text(image: Element, x: float, y: float, words: str, colour: str = "#24292f") -> None:
    SubElement(image, "text", {"x": f"{x:g}", "y": f"{y:.1f}", "fill": colour}).text = words
