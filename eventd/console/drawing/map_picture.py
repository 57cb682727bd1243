"""The picture of a map: marks for nodes and for folded groups of nodes, and a line for each direction of a link."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from eventd.console.drawing.layout import MapLayout, MapPlace, arrange
from eventd.console.drawing.map_links import (
    CALM,
    OLD_SECONDS,
    SILENT,
    STATES,
    LinkOnMap,
    ranks_of,
    read_link,
    silent_nodes,
)

MOST_LINES: Final = 160
"""Maximum number of lines: those that need attention first, then those of this node."""
MOST_LABELS: Final = 24
"""In a picture with more lines than this, lines of running links have no label."""
_LONGEST: Final = 26
"""Maximum length of a name in the picture, in characters."""
_BEND: Final = 0.05
"""How far a line bends to one side, as a share of its length, so that the lines of both directions do not overlap."""
_HEAD: Final = (9.0, 4.0)
"""Length, and half of the width, of the arrow head of a line."""
_RADIUS: Final = 9.0


class MapMark(NamedTuple):
    """A node, or a fold of several nodes.

    `label`: the shortened name; `place` is the position of the mark, the last four members are the position of the
    label. `folded`: the names in a fold, with their states in words as `note`. `age`: of a report that is old. `rank`:
    how much the node needs attention, as of links; a hub needs attention only if it is silent itself, since it has
    links to all other nodes.
    """

    name: str
    label: str
    place: MapPlace
    radius: float
    note: str = ""
    age: float | None = None
    folded: tuple[str, ...] = ()
    rank: int = CALM
    anchor: str = "middle"
    dx: float = 0.0
    dy: float = 0.0
    turn: float = 0.0


class MapLine(NamedTuple):
    """A line between two marks. `links`: how many links it stands for, of which `link` needs attention most.

    `labelled`: whether its state is written beside it, at `x` and `y`.
    """

    link: LinkOnMap
    links: int
    path: str
    head: str
    x: float
    y: float
    labelled: bool


@dataclass(frozen=True, slots=True)
class MapPicture:
    """Everything that is drawn. `left_out`: how many links have no line although both of their ends are drawn."""

    width: float
    height: float
    dense: bool
    marks: tuple[MapMark, ...]
    lines: tuple[MapLine, ...]
    left_out: int


def draw_map(shown: Mapping[str, Any]) -> MapPicture:
    """Return the picture of an answer of `map.show`."""
    own: str = shown["node"]
    nodes = {node["node"]: node for node in shown["nodes"]}
    silent = silent_nodes(shown)
    links = [read_link(link, silent) for link in shown["links"]]
    layout = arrange(nodes.keys(), [(link.source, link.target) for link in links], own)
    marks = tuple(_marks(layout, nodes, ranks_of(nodes, links)))
    at = {name: mark for mark in marks for name in mark.folded or (mark.name,)}
    joined = _joined(links, at)
    joined.sort(key=lambda one: (one[0].rank, own not in (one[0].source, one[0].target), one[0].source, one[0].target))
    drawn, rest = joined[:MOST_LINES], joined[MOST_LINES:]
    lines = [_line(link, count, at, len(drawn) <= MOST_LABELS) for link, count in drawn]
    lines.reverse()  # what needs attention is painted last, above all others
    left_out = sum(count for _, count in rest)
    return MapPicture(layout.width, layout.height, layout.dense, marks, tuple(lines), left_out)


def _marks(layout: MapLayout, nodes: Mapping[str, Mapping[str, Any]], ranks: Mapping[str, int]) -> Iterator[MapMark]:
    for name, place in layout.hubs.items():
        silent = nodes[name]["answer"] in SILENT
        yield _labelled(_node(nodes[name], place, ranks[name] if silent else CALM), layout)
    for sector in layout.sectors:
        worst = min(sector.names, key=lambda name: (ranks[name], name))
        alone = len(sector.names) > 1 and ranks[worst] < CALM
        rest = tuple(name for name in sector.names if not (alone and name == worst))
        if len(rest) == 1:
            yield _labelled(_node(nodes[rest[0]], sector.place, ranks[rest[0]]), layout)
        else:
            rank = min(ranks[name] for name in rest)
            text = f"+{len(rest)}, {_told([ranks[name] for name in rest])}"
            yield _labelled(MapMark(rest[0], text, sector.place, _RADIUS + 3, text, folded=rest, rank=rank), layout)
        if alone:
            yield _labelled(_node(nodes[worst], sector.second, ranks[worst]), layout)


def _told(ranks: Sequence[int]) -> str:
    """Return the states of folded nodes in words: `all running`, or `2 blocked, 1 paused`."""
    bad = Counter("in contradiction" if rank < 0 else STATES[rank] for rank in sorted(ranks) if rank < CALM)
    return ", ".join(f"{count} {state}" for state, count in bad.items()) or "all running"


def _node(node: Mapping[str, Any], place: MapPlace, rank: int) -> MapMark:
    name, age = node["node"], node["ageSeconds"]
    label = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
    old = age if age is not None and (age > OLD_SECONDS or node["answer"] in SILENT) else None
    return MapMark(name, label, place, _RADIUS + (4 if place.inside else 0), node["answer"], old, rank=rank)


def _labelled(mark: MapMark, layout: MapLayout) -> MapMark:
    """Return a mark whose label stands outside of the ring, or below a hub."""
    place, gap = mark.place, mark.radius + 6
    across, down = math.cos(place.angle), math.sin(place.angle)
    if place.inside or (abs(across) < 0.1 and not layout.dense):
        above = not place.inside and down < 0
        return mark._replace(dy=-gap - 14 if above else gap + 10)
    left = across < 0
    if layout.dense:
        turn = math.degrees(place.angle) - (180 if left else 0)
        return mark._replace(anchor="end" if left else "start", dx=-gap if left else gap, dy=4, turn=round(turn, 1))
    return mark._replace(anchor="end" if left else "start", dx=-gap if left else gap, dy=4)


def _joined(links: Sequence[LinkOnMap], at: Mapping[str, MapMark]) -> list[tuple[LinkOnMap, int]]:
    """Return the links between different marks, one for each pair of marks and direction, each with the number of
    links that it stands for."""
    found: dict[tuple[str, str], tuple[LinkOnMap, int]] = {}
    for link in links:
        ends = at[link.source].name, at[link.target].name
        if ends[0] == ends[1]:
            continue
        if ends not in found:
            found[ends] = (link, 1)
            continue
        known, count = found[ends]
        first, second = (link, known) if link.rank < known.rank else (known, link)
        found[ends] = (replace(first, rate=first.rate + second.rate), count + 1)
    return list(found.values())


def _line(link: LinkOnMap, count: int, at: Mapping[str, MapMark], all_labelled: bool) -> MapLine:
    """Return the line of a link: a curve, with a head where it ends and a label nearer to where it begins."""
    source, target = at[link.source], at[link.target]
    (ax, ay, *_), (bx, by, *_) = source.place, target.place
    long = math.hypot(bx - ax, by - ay) or 1.0
    bend = min(_BEND * long, 18.0)
    side = ((by - ay) / long, (ax - bx) / long)
    middle = ((ax + bx) / 2 + side[0] * 2 * bend, (ay + by) / 2 + side[1] * 2 * bend)
    start = _towards((ax, ay), middle, source.radius + 2)
    tip = _towards((bx, by), middle, target.radius + 3)
    end = _towards(tip, middle, _HEAD[0] - 1)
    back = _towards(tip, middle, _HEAD[0])
    across = ((tip[1] - back[1]) / _HEAD[0] * _HEAD[1], (back[0] - tip[0]) / _HEAD[0] * _HEAD[1])
    corners = (tip, (back[0] + across[0], back[1] + across[1]), (back[0] - across[0], back[1] - across[1]))
    x, y = _along(start, middle, end, 0.4)
    return MapLine(
        link,
        count,
        f"M{_point(start)} Q{_point(middle)} {_point(end)}",
        f"M{' L'.join(map(_point, corners))} Z",
        round(x + side[0] * 10, 1),
        round(y + side[1] * 10 + 4, 1),
        all_labelled or not link.runs or link.age is not None,
    )


def _towards(start: tuple[float, float], goal: tuple[float, float], far: float) -> tuple[float, float]:
    long = math.hypot(goal[0] - start[0], goal[1] - start[1]) or 1.0
    return start[0] + (goal[0] - start[0]) / long * far, start[1] + (goal[1] - start[1]) / long * far


def _along(
    start: tuple[float, float], middle: tuple[float, float], end: tuple[float, float], share: float
) -> tuple[float, float]:
    """Return a point of a quadratic curve."""
    one, two, three = (1 - share) ** 2, 2 * share * (1 - share), share**2
    x = one * start[0] + two * middle[0] + three * end[0]
    return x, one * start[1] + two * middle[1] + three * end[1]


def _point(point: tuple[float, float]) -> str:
    return f"{point[0]:.1f},{point[1]:.1f}"
