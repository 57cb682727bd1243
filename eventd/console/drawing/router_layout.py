"""Where the topics of a routing graph are: in columns, each right of the topics that are copied into it.

Places depend on the names of topics and routers alone, so that nothing moves when a state changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Final, NamedTuple

COLUMN: Final = 290.0
ROW: Final = 84.0


class TopicPlace(NamedTuple):
    """The column and the row of a topic, each from 0."""

    column: int
    row: int


def place_topics(pairs: Iterable[tuple[str, str]]) -> dict[str, TopicPlace]:
    """Return the places of all topics that routers connect; `pairs` has the two ends of each router.

    Groups of topics that no router connects are placed below each other.
    """
    out: defaultdict[str, set[str]] = defaultdict(set)
    near: defaultdict[str, set[str]] = defaultdict(set)
    for source, dest in pairs:
        near[source].add(dest)
        near[dest].add(source)
        if source != dest:
            out[source].add(dest)
    places: dict[str, TopicPlace] = {}
    row = 0
    for joined in _components(near):
        columns = _columns(joined, out)
        rows = _rows(columns, near)
        places |= {topic: TopicPlace(columns[topic], row + rows[topic]) for topic in joined}
        row += max(rows.values()) + 1
    return places


def _components(near: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Yield each set of topics that are connected over any number of routers, sorted by name."""
    seen: set[str] = set()
    for first in sorted(near):
        if first in seen:
            continue
        seen.add(first)
        joined, waiting = [first], [first]
        while waiting:
            for topic in sorted(near[waiting.pop()] - seen):
                seen.add(topic)
                joined.append(topic)
                waiting.append(topic)
        yield sorted(joined)


def _columns(topics: Sequence[str], out: Mapping[str, set[str]]) -> dict[str, int]:
    """Return for each topic the length of the longest path to it; paths that close a cycle do not count."""
    into = {dest for topic in topics for dest in out.get(topic, ())}
    order: list[str] = []
    back: set[tuple[str, str]] = set()
    open_: set[str] = set()
    seen: set[str] = set()
    for first in sorted(topics, key=lambda name: (name in into, name)):
        if first in seen:
            continue
        seen.add(first)
        open_.add(first)
        way = [(first, iter(sorted(out.get(first, ()))))]
        while way:
            at, edges = way[-1]
            dest = next(edges, None)
            if dest is None:
                way.pop()
                open_.discard(at)
                order.append(at)
            elif dest in open_:
                back.add((at, dest))
            elif dest not in seen:
                seen.add(dest)
                open_.add(dest)
                way.append((dest, iter(sorted(out.get(dest, ())))))
    columns = dict.fromkeys(topics, 0)
    for topic in reversed(order):
        for dest in sorted(out.get(topic, ())):
            if (topic, dest) not in back:
                columns[dest] = max(columns[dest], columns[topic] + 1)
    return columns


def _rows(columns: Mapping[str, int], near: Mapping[str, set[str]]) -> dict[str, int]:
    """Return the row of each topic: near the rows of its neighbours in the earlier columns, then by name."""
    rows: dict[str, int] = {}
    for column in range(max(columns.values()) + 1):
        here = sorted(topic for topic, at in columns.items() if at == column)
        rows |= {topic: row for row, topic in enumerate(sorted(here, key=partial(_middle, near, rows)))}
    return rows


def _middle(near: Mapping[str, set[str]], rows: Mapping[str, int], topic: str) -> tuple[float, str]:
    before = [rows[one] for one in sorted(near[topic]) if one in rows]
    return (fmean(before) if before else 0.0), topic
