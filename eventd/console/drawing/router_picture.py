"""The picture of a routing graph: a box for each topic, and a line for all routers from one topic to another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from eventd.console.drawing.router_layout import COLUMN, ROW, TopicPlace, place_topics

MOST_TOPICS: Final = 60
"""Maximum number of boxes of a picture."""
MOST_LABELS: Final = 24
"""In a picture with more lines than this, lines of running routers have no label."""
STATES: Final = ("backing-off", "planned", "waiting", "running")
"""The states of routers; those that need attention come first. `planned`: the router does not exist and is only
checked; `waiting`: it has not run yet."""
_BOX: Final = (176.0, 34.0)
_MARGIN: Final = 24.0
_LONGEST: Final = 22
"""Maximum length of a name in the picture, in characters."""
_HEAD: Final = (9.0, 4.0)


class TopicBox(NamedTuple):
    """A topic in the picture: its corner, its shortened name, and whether a problem is about it."""

    topic: str
    label: str
    x: float
    y: float
    odd: bool

    @property
    def middle(self) -> float:
        return self.x + _BOX[0] / 2


class RouterLine(NamedTuple):
    """The routers from one topic to another. `state` is that of the router that needs attention most."""

    source: str
    dest: str
    routers: tuple[str, ...]
    state: str
    path: str
    head: str
    x: float
    y: float
    labelled: bool


@dataclass(frozen=True, slots=True)
class RouterPicture:
    """Everything that is drawn.

    `left_out`: how many topics are not drawn; topics without a problem are left out first.
    """

    width: float
    height: float
    box: tuple[float, float]
    boxes: tuple[TopicBox, ...]
    lines: tuple[RouterLine, ...]
    left_out: int


def state_of(router: Mapping[str, Any]) -> str:
    """Return the state of a router of the answer of `topology.show` as a word of `STATES`."""
    if not router["exists"]:
        return "planned"
    return router["state"] if router["state"] in STATES else "waiting"


def draw_routers(routers: Sequence[Mapping[str, Any]], odd: frozenset[str]) -> RouterPicture:
    """Return the picture of routers. `odd`: the topics that problems are about."""
    joined: defaultdict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for router in routers:
        joined[router["source"], router["dest"]].append(router)
    topics = sorted({topic for pair in joined for topic in pair})
    urgent = {
        topic for pair, some in joined.items() if any(state_of(one) != "running" for one in some) for topic in pair
    }
    ranked = sorted(topics, key=lambda topic: (topic not in odd, topic not in urgent, topic))
    drawn = frozenset(ranked[:MOST_TOPICS])
    pairs = {pair: some for pair, some in joined.items() if drawn.issuperset(pair)}
    alone = drawn - {topic for pair in pairs for topic in pair}
    places = place_topics([*pairs, *((topic, topic) for topic in sorted(alone))])
    boxes = {topic: _box(topic, place, topic in odd) for topic, place in sorted(places.items())}
    ends, all_labelled = _spread(pairs, boxes), len(pairs) <= MOST_LABELS
    lines = [
        _line(boxes[pair[0]], boxes[pair[1]], some, ends.get(pair, (0.5, 0.5)), all_labelled)
        for pair, some in sorted(pairs.items())
    ]
    lines.sort(key=lambda line: -STATES.index(line.state))  # what needs attention is painted last, above all others
    width = max((box.x for box in boxes.values()), default=0.0) + _BOX[0] + 2 * _MARGIN
    height = max((box.y for box in boxes.values()), default=0.0) + _BOX[1] + 2 * _MARGIN
    return RouterPicture(width, height, _BOX, tuple(boxes.values()), tuple(lines), len(topics) - len(drawn))


def _box(topic: str, place: TopicPlace, odd: bool) -> TopicBox:
    label = topic if len(topic) <= _LONGEST else f"{topic[: _LONGEST - 1]}…"
    return TopicBox(topic, label, 2 * _MARGIN + place.column * COLUMN, 2 * _MARGIN + place.row * ROW, odd)


def _spread(
    pairs: Iterable[tuple[str, str]], boxes: Mapping[str, TopicBox]
) -> dict[tuple[str, str], tuple[float, float]]:
    """Return where the lines to the right begin and end, as shares of the heights of their boxes, so that no line
    hides another."""
    out: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    into: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for pair in sorted(pairs, key=lambda pair: (boxes[pair[0]].y, boxes[pair[1]].y, pair)):
        if boxes[pair[1]].x > boxes[pair[0]].x:
            out[pair[0]].append(pair)
            into[pair[1]].append(pair)
    starts = {pair: (at + 1) / (len(some) + 1) for some in out.values() for at, pair in enumerate(some)}
    ends = {pair: (at + 1) / (len(some) + 1) for some in into.values() for at, pair in enumerate(some)}
    return {pair: (start, ends[pair]) for pair, start in starts.items()}


def _line(
    source: TopicBox,
    dest: TopicBox,
    routers: Sequence[Mapping[str, Any]],
    ends: tuple[float, float],
    all_labelled: bool,
) -> RouterLine:
    """Return a line: forwards from the right side of a box to the left side of another, backwards in an arc below."""
    width, height = _BOX
    state = min((state_of(router) for router in routers), key=STATES.index)
    if dest.x > source.x:
        start, tip = (source.x + width, source.y + height * ends[0]), (dest.x - 2, dest.y + height * ends[1])
        end = (tip[0] - _HEAD[0] + 1, tip[1])
        reach = (end[0] - start[0]) / 2
        # a line over several columns bends around the boxes between its ends
        lift = ROW / 2 if dest.x - source.x > COLUMN and dest.y == source.y else 0.0
        curve = ((start[0] + reach, start[1] - lift), (end[0] - reach, end[1] - lift))
        corners = (tip, (tip[0] - _HEAD[0], tip[1] - _HEAD[1]), (tip[0] - _HEAD[0], tip[1] + _HEAD[1]))
        share = 0.7
    else:
        start, tip = (source.middle, source.y + height), (dest.middle + 12, dest.y + height + 2)
        end = (tip[0], tip[1] + _HEAD[0] - 1)
        dip = max(start[1], end[1]) + 30 + 6 * min(3, (source.x - dest.x) / COLUMN)
        curve = ((start[0], dip), (end[0], dip))
        corners = (tip, (tip[0] - _HEAD[1], tip[1] + _HEAD[0]), (tip[0] + _HEAD[1], tip[1] + _HEAD[0]))
        share = 0.5
    x, y = _along((start, *curve, end), share)
    return RouterLine(
        source.topic,
        dest.topic,
        tuple(router["router"] for router in routers),
        state,
        f"M{_point(start)} C{_point(curve[0])} {_point(curve[1])} {_point(end)}",
        f"M{' L'.join(map(_point, corners))} Z",
        round(x, 1),
        round(y - 6, 1),
        all_labelled or state != "running",
    )


def _along(points: Sequence[tuple[float, float]], share: float) -> tuple[float, float]:
    """Return a point of a cubic curve, from its four points."""
    rest = 1 - share
    weights = (rest**3, 3 * rest**2 * share, 3 * rest * share**2, share**3)
    pairs = list(zip(weights, points, strict=True))
    return sum(weight * x for weight, (x, _) in pairs), sum(weight * y for weight, (_, y) in pairs)


def _point(point: tuple[float, float]) -> str:
    return f"{point[0]:.1f},{point[1]:.1f}"
