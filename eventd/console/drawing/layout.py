"""Where the nodes of a map are: computed from their names and links alone, so that nothing moves when a state changes.

Hubs are inside, all others on a ring, in the order of their names. If there are more nodes than a picture can hold,
nodes share sectors of the ring, each drawn as one mark (folded).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final, NamedTuple

MOST_DRAWN: Final = 60
"""Maximum number of marks of a picture."""
MOST_HUBS: Final = 8
SECTORS: Final = (MOST_DRAWN - MOST_HUBS) // 2
"""Number of sectors of a ring with folded nodes. A sector has two places: one for its folded nodes, one for the node
that needs attention most."""
_HUB_LINKS: Final = 3
"""Minimum number of neighbours of a hub."""
_MARGIN_X, _MARGIN_Y = 220.0, 64.0
_DENSE_MARGIN: Final = 170.0
_DENSE_FROM: Final = 21
"""From this many places on, the ring is a circle, with names along its radii."""
_WIDTH: Final = 960.0
_HEIGHTS: Final = ((2, 200.0), (4, 380.0), (10, 440.0), (_DENSE_FROM - 1, 600.0))


class MapPlace(NamedTuple):
    """The centre of a mark. `angle`: in radians, from the centre of the picture, clockwise from the right."""

    x: float
    y: float
    angle: float
    inside: bool = False


class RingSector(NamedTuple):
    """A part of the ring: its nodes, the place of its first mark, and that of a second one."""

    names: tuple[str, ...]
    place: MapPlace
    second: MapPlace


@dataclass(frozen=True, slots=True)
class MapLayout:
    """A picture's size, its hubs by name, and the sectors of its ring. `dense`: names are along the radii."""

    width: float
    height: float
    dense: bool
    hubs: dict[str, MapPlace]
    sectors: tuple[RingSector, ...]


def arrange(names: Collection[str], pairs: Iterable[tuple[str, str]], own: str) -> MapLayout:
    """Return the places of all nodes. `pairs`: the two ends of each link; `own`: this node, which is never folded."""
    folded = len(names) > MOST_DRAWN
    hubs = find_hubs(names, pairs)
    if folded and own in names and own not in hubs:
        hubs = sorted([*hubs[: MOST_HUBS - 1], own])
    others = sorted(set(names) - set(hubs))
    shares = _shared(others, SECTORS) if folded else [(name,) for name in others]
    count = len(shares) * 2 if folded else len(shares)
    dense = count >= _DENSE_FROM
    height = next((height for most, height in _HEIGHTS if count <= most), _WIDTH)
    across = (_WIDTH / 2 - _DENSE_MARGIN,) * 2 if dense else (_WIDTH / 2 - _MARGIN_X, height / 2 - _MARGIN_Y)
    centre = (_WIDTH / 2, height / 2)
    # No place is right above or below a hub in the centre: its name is there, and lines are shortest.
    first = math.pi + (math.pi / count if hubs and count % 4 == 0 and count else 0.0)
    ring = [_at(centre, across, first + 2 * math.pi * number / count) for number in range(count)]
    step = 2 if folded else 1
    sectors = [RingSector(share, ring[at * step], ring[at * step + step - 1]) for at, share in enumerate(shares)]
    return MapLayout(_WIDTH, height, dense, _inside(hubs, centre, across), tuple(sectors))


def find_hubs(names: Collection[str], pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return the nodes that have many more neighbours than most, in the order of their names."""
    near: dict[str, set[str]] = {name: set() for name in names}
    for one, other in pairs:
        if one != other and one in near and other in near:
            near[one].add(other)
            near[other].add(one)
    usual = median(map(len, near.values())) if near else 0
    found = [name for name, others in near.items() if len(others) >= max(_HUB_LINKS, 2 * usual)]
    return sorted(sorted(found, key=lambda name: (-len(near[name]), name))[:MOST_HUBS])


def _shared(names: Sequence[str], most: int) -> list[tuple[str, ...]]:
    """Return the names, in order, divided into at most this many parts of nearly the same size."""
    parts = min(most, len(names))
    bounds = [len(names) * number // parts for number in range(parts + 1)] if parts else [0]
    return [tuple(names[start:end]) for start, end in pairwise(bounds)]


def _inside(hubs: Sequence[str], centre: tuple[float, float], across: tuple[float, float]) -> dict[str, MapPlace]:
    if len(hubs) == 1:
        return {hubs[0]: MapPlace(*centre, 0.0, inside=True)}
    inner = (across[0] * 0.4, across[1] * 0.4)
    turn = 2 * math.pi / max(1, len(hubs))
    return {name: _at(centre, inner, math.pi + turn * at)._replace(inside=True) for at, name in enumerate(hubs)}


def _at(centre: tuple[float, float], across: tuple[float, float], angle: float) -> MapPlace:
    x, y = centre[0] + across[0] * math.cos(angle), centre[1] + across[1] * math.sin(angle)
    return MapPlace(round(x, 1), round(y, 1), angle % (2 * math.pi))
