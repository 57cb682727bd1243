"""The rates of the last 15 minutes of one process, in memory: sampled at fixed times, never stored.

Samples are taken at whole multiples of `INTERVAL_SECONDS` of the wall clock, the ticks, so that the rates of all
workers of a node can be added up.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from eventd.observe.traffic import TrafficSample

INTERVAL_SECONDS: Final = 5
POINTS: Final = 180
"""Number of samples that are kept: 15 minutes."""
MOST_SERIES: Final = 500
MOST_COLUMNS: Final = 1100
"""Maximum numbers of series, and of columns of all series: 1 MiB of memory. A link has three columns."""
MOST_INBOUND: Final = 128
"""Maximum number of senders with a series, the busiest: a member of a group can invent names."""
MOST_CALLBACKS: Final = 100
"""Maximum number of callbacks with a series, the busiest."""
MOST_CHANGED: Final = 20
"""Maximum number of topics, of senders, and of callbacks, that one sample begins to keep."""
_FADING: Final = 0.97
"""Factor by which the recent activity of a topic decreases from sample to sample: to one half in two minutes."""

NODE, GROUP, LINK, INBOUND, CALLBACK, TOPIC = "node", "group", "link", "inbound", "callback", "topic"
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    NODE: ("appendedPerSecond", "receivedPerSecond", "deliveredPerSecond", "deliveredBytesPerSecond"),
    GROUP: ("emittedPerSecond", "receivedPerSecond"),
    LINK: ("eventsPerSecond", "bytesPerSecond", "lagSeconds"),
    INBOUND: ("eventsPerSecond",),
    CALLBACK: ("requestsPerSecond", "failedPerSecond", "eventsPerSecond", "requests", "failed"),
    TOPIC: ("recordsPerSecond",),
}
"""The columns of each kind of series, kinds in the order of lists.

The last two of a callback are what a sample counted: a rate does not say how many requests it stands for, because
samples are of unequal length.
"""
_KINDS = tuple(COLUMNS)
_RANK = {kind: rank for rank, kind in enumerate(COLUMNS)}
_OF_NODE, _OF_GROUP, _OF_LINK, _OF_INBOUND, _OF_CALLBACK, _OF_TOPIC = _RANK.values()
_MOST: Final = {_OF_INBOUND: MOST_INBOUND, _OF_CALLBACK: MOST_CALLBACKS}


class SeriesKey(NamedTuple):
    """What a series is about: `rank` is its kind, `group` and `node` those of a group, a link or a sender.

    `node` is also the name of a callback.
    """

    rank: int
    group: str = ""
    node: str = ""
    topic: int = 0

    @property
    def kind(self) -> str:
        return _KINDS[self.rank]

    @property
    def competes(self) -> bool:
        """Return whether series of this kind compete for the limited room: those of senders, callbacks and topics
        do."""
        return self.rank >= _OF_INBOUND


class RateFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which series to read: up to `limit` after the key `after`, in order, and of how many ticks.

    Empty fields do not restrict the series; `topic` is an id, 0 for all. `node`: of links and senders.
    """

    kind: str = ""
    group: str = ""
    node: str = ""
    callback: str = ""
    topic: int = 0
    ticks: int = POINTS
    after: SeriesKey | None = None
    limit: int = MOST_SERIES

    def takes(self, key: SeriesKey) -> bool:
        """Return whether the series is one of those to read."""
        return (
            (not self.kind or key.kind == self.kind)
            and (not self.group or key.group == self.group)
            and (not self.node or (key.node == self.node and key.rank != _OF_CALLBACK))
            and (not self.callback or (key.node == self.callback and key.rank == _OF_CALLBACK))
            and (not self.topic or key.topic == self.topic)
            and (self.after is None or key > self.after)
        )


class RatePage(msgspec.Struct):
    """Series of one process, or of all: for each key, its columns, with a value for each of the `ticks`.

    A value is None where the series, or the process, was not sampled.
    """

    ticks: list[int]
    series: list[tuple[SeriesKey, list[list[float | None]]]]


@dataclass(slots=True, eq=False)
class _Series:
    columns: tuple[array[float], ...]
    competes: bool
    """Whether a busier series may take the place of this one."""
    activity: float = 0.0
    busy_at: int = 0
    """The tick of the last value that was not 0."""


@dataclass(slots=True)
class RateHistory:
    """The series of one process. `add` takes a sample; `read` returns a page of series.

    First come the node, its groups, links, senders and callbacks; the busiest topics get the room that these leave. A
    series whose values have been 0 for 15 minutes is dropped.
    """

    _series: dict[SeriesKey, _Series] = field(default_factory=dict)
    _counts: list[int] = field(default_factory=lambda: [0] * len(COLUMNS))
    _columns: int = 0
    _ticks: array[int] = field(default_factory=lambda: array("q", [0] * POINTS))
    _next: int = 0
    _last: int = 0

    def __len__(self) -> int:
        return len(self._series)

    def add(self, tick: int, seconds: float, sample: TrafficSample, groups: Mapping[int, str]) -> None:
        """Add a sample of `seconds` that ends at a tick. `groups`: the groups' names by the ids of their topics.

        A tick before the last one means that the clock was set back: all earlier samples are dropped.
        """
        if tick <= self._last:
            self._series.clear()
            self._counts, self._columns = [0] * len(COLUMNS), 0
            self._next, self._ticks = 0, array("q", [0] * POINTS)
        at, self._last = self._next, tick
        self._next = (at + 1) % POINTS
        self._ticks[at] = tick
        per, topics = 1 / max(seconds, 0.001), dict[int, int]()
        values: dict[tuple[int, str, str, int], tuple[float, ...]] = {}
        values.update(_values(sample, groups, topics, per))
        for key in [key for key in values if key not in self._series]:
            self._begin(SeriesKey(*key))
        self._choose(_OF_INBOUND, {(_OF_INBOUND, *sender, 0): events for sender, events in sample.inbound.items()})
        values |= {(_OF_INBOUND, *sender, 0): (events * per,) for sender, events in sample.inbound.items()}
        self._choose(
            _OF_CALLBACK, {(_OF_CALLBACK, "", name, 0): one.requests for name, one in sample.callbacks.items()}
        )
        values |= {
            (_OF_CALLBACK, "", name, 0): (*(count * per for count in one), one.requests, one.failed)
            for name, one in sample.callbacks.items()
        }
        self._choose(_OF_TOPIC, {(_OF_TOPIC, "", "", topic): records for topic, records in topics.items()})
        for topic, records in topics.items():
            values[_OF_TOPIC, "", "", topic] = (records * per,)
        self._write(at, tick, values)

    def _begin(self, key: SeriesKey) -> bool:
        """Begin a series if there is room; a series that is not a topic's takes that of the least busy topic."""
        if self._counts[key.rank] >= _MOST.get(key.rank, MOST_SERIES):
            return False
        width = len(COLUMNS[key.kind])
        while len(self._series) >= MOST_SERIES or self._columns + width > MOST_COLUMNS:
            if key.rank == _OF_TOPIC or not self._counts[_OF_TOPIC]:
                return False
            self._drop(self._least_busy(_OF_TOPIC, 1)[0][1])
        self._series[key] = _Series(tuple(array("f", [math.nan]) * POINTS for _ in range(width)), competes=key.competes)
        self._columns += width
        self._counts[key.rank] += 1
        return True

    def _least_busy(self, rank: int, count: int) -> list[tuple[float, SeriesKey]]:
        known = ((series.activity, key) for key, series in self._series.items() if key.rank == rank)
        return heapq.nsmallest(count, known)

    def _drop(self, key: SeriesKey) -> None:
        self._columns -= len(self._series.pop(key).columns)
        self._counts[key.rank] -= 1

    def _choose(self, rank: int, counts: Mapping[tuple[int, str, str, int], int]) -> None:
        """Begin series for the busiest senders, callbacks or topics that have none, in place of less busy ones."""
        new = [key for key in counts if key not in self._series]
        kept: list[tuple[float, SeriesKey]] | None = None
        for name in heapq.nlargest(MOST_CHANGED, new, key=counts.__getitem__):
            key = SeriesKey(*name)
            if self._begin(key):
                continue
            if kept is None:
                kept = self._least_busy(rank, MOST_CHANGED)[::-1]
            if not kept or kept[-1][0] >= counts[name]:
                return
            self._drop(kept.pop()[1])
            self._begin(key)

    def _write(self, at: int, tick: int, values: Mapping[tuple[int, str, str, int], tuple[float, ...]]) -> None:
        idle: list[SeriesKey] = []
        for key, series in self._series.items():
            row = values.get(key)
            if series.competes:
                series.activity = series.activity * _FADING + (row[0] * INTERVAL_SECONDS if row else 0.0)
            if row is not None:
                series.busy_at = tick
                for column, value in zip(series.columns, row, strict=True):
                    column[at] = value
                continue
            for column in series.columns:
                column[at] = 0.0
            if tick - series.busy_at >= POINTS:
                idle.append(key)
        for key in idle:
            self._drop(key)

    def read(self, question: RateFilter) -> RatePage:
        """Return the series that pass the filter, in order, with the latest ticks."""
        places = [(self._next + at) % POINTS for at in range(POINTS)]
        since = self._last - question.ticks
        places = [at for at in places if self._ticks[at] > max(since, 0)]
        keys = heapq.nsmallest(question.limit, filter(question.takes, self._series))
        return RatePage(
            [self._ticks[at] for at in places],
            [(key, [_shown(column, places) for column in self._series[key].columns]) for key in keys],
        )

    def means(self, kind: str, group: str, ticks: int) -> dict[str, float]:
        """Return the means of the first column over the latest ticks, by node, of a group's series of a kind."""
        places = [(self._next - 1 - back) % POINTS for back in range(min(ticks, POINTS))]
        found: dict[str, float] = {}
        for key, series in self._series.items():
            if key.kind == kind and key.group == group:
                known = [value for at in places if not math.isnan(value := series.columns[0][at])]
                if known:
                    found[key.node] = sum(known) / len(known)
        return found


def _values(
    sample: TrafficSample, groups: Mapping[int, str], topics: dict[int, int], per: float
) -> Iterator[tuple[tuple[int, str, str, int], tuple[float, ...]]]:
    """Yield the values of the node, its groups and links; add the records of other topics to `topics`."""
    appended = 0
    of_groups: list[tuple[str, int, int]] = []
    for topic, (own, others) in sample.topics.items():
        appended += own + others
        if topic in groups:
            of_groups.append((groups[topic], own, others))
        else:
            topics[topic] = own + others
    received = sum(sample.inbound.values())
    delivered = sum(events for events, _ in sample.links.values())
    size = sum(size for _, size in sample.links.values())
    yield (_OF_NODE, "", "", 0), (appended * per, received * per, delivered * per, size * per)
    for group, own, others in of_groups:
        yield (_OF_GROUP, group, "", 0), (own * per, others * per)
    for group, peer in {**sample.links, **sample.lags}:
        events, size = sample.links.get((group, peer), (0, 0))
        yield (_OF_LINK, group, peer, 0), (events * per, size * per, sample.lags.get((group, peer), 0.0))


def _shown(column: Sequence[float], places: Iterable[int]) -> list[float | None]:
    return [None if math.isnan(value := column[at]) else round(value, 3) for at in places]


def add_pages(pages: Sequence[RatePage], limit: int) -> RatePage:
    """Return the first `limit` series of all workers, added up tick by tick; of lags, the highest."""
    found = {tick for page in pages for tick in page.ticks}
    ticks = sorted(tick for tick in found if tick > max(found) - POINTS)
    index = {tick: at for at, tick in enumerate(ticks)}
    merged: dict[SeriesKey, list[list[float | None]]] = {}
    for page in pages:
        for key, columns in page.series:
            names = COLUMNS[key.kind]
            into = merged.setdefault(key, [[None] * len(ticks) for _ in names])
            for name_of, column, target in zip(names, columns, into, strict=True):
                for tick, value in zip(page.ticks, column, strict=True):
                    if value is not None and (at := index.get(tick)) is not None:
                        target[at] = _join(name_of, target[at], value)
    return RatePage(ticks, [(key, merged[key]) for key in sorted(merged)[:limit]])


def _join(column: str, one: float | None, other: float) -> float:
    if one is None:
        return other
    return max(one, other) if column == "lagSeconds" else round(one + other, 3)
