"""A small chart of one series: its curve, with gaps where no sample was taken, and its figures by the minute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

WIDTH: Final = 360
HEIGHT: Final = 72
WINDOW_SECONDS: Final = 900
_INSET: Final = 3
"""Space for the width of the curve, above and below."""
Values = Sequence[float | None]


class Sparkline(NamedTuple):
    """A chart. `curves` and `areas`: as paths, one for each run without a gap. `now`: the last value; None without one.

    `top`: the largest value, which is at the upper edge.
    """

    curves: tuple[str, ...]
    areas: tuple[str, ...]
    now: float | None
    top: float
    width: int = WIDTH
    height: int = HEIGHT


def draw_sparkline(values: Values, interval: int) -> Sparkline:
    """Return the chart of values, the newest last; its lower edge is 0.

    `interval`: seconds between two values. The width stands for `WINDOW_SECONDS`, also if there are values only of its
    end.
    """
    known = [value for value in values if value is not None]
    top = max(known, default=0.0)
    count = max(WINDOW_SECONDS // interval, len(values), 2)
    step, before = (WIDTH - 2 * _INSET) / (count - 1), count - len(values)
    curves, areas = [], []
    for first, run in _runs(values):
        points = [(_INSET + (before + first + at) * step, _height(value, top)) for at, value in enumerate(run)]
        if len(points) == 1:
            points.insert(0, (points[0][0] - 1, points[0][1]))
        curve = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        curves.append(f"M{curve}")
        areas.append(f"M{points[0][0]:.1f},{HEIGHT} L{curve} {points[-1][0]:.1f},{HEIGHT} Z")
    return Sparkline(tuple(curves), tuple(areas), values[-1] if values else None, top)


def _height(value: float, top: float) -> float:
    usable = HEIGHT - 2 * _INSET
    return HEIGHT - _INSET - (usable * max(0.0, value) / top if top > 0 else 0.0)


def _runs(values: Values) -> list[tuple[int, list[float]]]:
    """Return the parts of a list that lie between gaps, each with its first index."""
    found: list[tuple[int, list[float]]] = []
    open_run = False
    for at, value in enumerate(values):
        if value is None:
            open_run = False
        elif open_run:
            found[-1][1].append(value)
        else:
            found.append((at, [value]))
            open_run = True
    return found


def by_minute(values: Values, per_minute: int, join: Callable[[list[float]], float]) -> list[float | None]:
    """Return one value for each minute, the newest first, combined from `per_minute` samples.

    None for a minute without samples.
    """
    found: list[float | None] = []
    for end in range(len(values), 0, -per_minute):
        known = [value for value in values[max(0, end - per_minute) : end] if value is not None]
        found.append(join(known) if known else None)
    return found
