"""The metrics of the Routemaster surface, under the names that Routemaster gave them: dots are underscores here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

MOST: Final = 1000
"""Maximum number of series of one metric."""
PREFIX: Final = "routemaster_"
SUCCESS, FAILURE, THROTTLED = "success", "failure", "throttled"
NO_PUBLISHER, MALFORMED = "null", "malformed"

Kind = Literal["counter", "gauge"]
LabelsT = TypeVar("LabelsT", bound=tuple[str, ...])


class SubscriberFigure(NamedTuple):
    """One subscriber, by its handle.

    `events` and `batches` wait for it, of which `due` batches could be sent now. `added` events were selected for it,
    without lost ones, and `removed` ones it has acknowledged, both since it subscribed.
    """

    handle: str
    events: int
    batches: int
    due: int
    added: int
    removed: int


class TopicFigure(NamedTuple):
    """One topic of the surface: the handle of its publisher, empty for none, and how many events it has accepted."""

    name: str
    publisher: str
    events: int


class StoreFigure(NamedTuple):
    """Bytes of the surface's events: stored, allowed, and the mark at which the limit takes effect.

    None: there is no limit.
    """

    used: int
    most: int | None
    mark: int | None


class SurfaceFigures(NamedTuple):
    """The figures of the surface at one time."""

    subscribers: Sequence[SubscriberFigure]
    topics: Sequence[TopicFigure]
    store: StoreFigure


class BoundedFamily(Collector):
    """One metric with at most `MOST` series: the first ones.

    Unlike a counter of the library, it can be set to a value.
    """

    def __init__(self, registry: CollectorRegistry, kind: Kind, name: str, text: str, *labels: str) -> None:
        self.reference_name = name
        """The name of the metric in Routemaster, with dots."""
        self.name = PREFIX + name.replace(".", "_")
        self._kind = kind
        self._text = text
        self._labelnames = labels
        self._values: dict[tuple[str, ...], float] = {}
        self._absent: set[tuple[str, ...]] = set()
        registry.register(self)

    def describe(self) -> Iterator[Metric]:
        yield Metric(self.name, self._text, self._kind)

    def collect(self) -> Iterator[Metric]:
        metric = Metric(self.name, self._text, self._kind)
        sample = f"{self.name}_total" if self._kind == "counter" else self.name
        for labels, value in self._values.items():
            metric.add_sample(sample, dict(zip(self._labelnames, labels, strict=True)), value)
        yield metric

    def add(self, amount: float, *labels: str) -> None:
        """Add to the series with these values of its labels."""
        if labels in self._values or len(self._values) < MOST:
            self._values[labels] = self._values.get(labels, 0) + amount

    def value(self, *labels: str) -> float:
        """Return the value of a series; 0 if there is none."""
        return self._values.get(labels, 0)

    def show(self, values: Mapping[LabelsT, float]) -> None:
        """Set the series, and remove all others."""
        self._values = {labels: value for labels, value in [*values.items()][:MOST]}

    def forget(self, first: str) -> None:
        """Remove the series with this value of the first label."""
        self._values = {labels: value for labels, value in self._values.items() if labels[0] != first}

    def keep(self, known: frozenset[str]) -> None:
        """Remove the series whose first label is missing from the `known` values in two calls in a row.

        One call proves nothing: `known` may have been read before a new series began.
        """
        absent = {labels for labels in self._values if labels[0] not in known}
        for labels in absent & self._absent:
            del self._values[labels]
        self._absent = absent


class RoutemasterFigures:
    """The metrics of the surface in one process. They have no series where the surface is off."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._families: list[BoundedFamily] = []
        self._measured()
        self._counted()

    def _family(self, kind: Kind, name: str, text: str, *labels: str) -> BoundedFamily:
        family = BoundedFamily(self._registry, kind, name, text, *labels)
        self._families.append(family)
        return family

    def _measured(self) -> None:
        gauge: Kind = "gauge"
        counter: Kind = "counter"
        self._batches = self._family(gauge, "subscriber.queue.batches", "Batches that wait.", "subscriber")
        self._events = self._family(gauge, "subscriber.queue.events", "Events that wait.", "subscriber")
        self._jobs = self._family(
            gauge, "jobs.count", "Batches that are due (`instant`), and others (`scheduled`).", "queue", "status"
        )
        self._used = self._family(gauge, "store.bytes_used", "Bytes of the events of the surface.")
        self._most = self._family(gauge, "store.max_mem", "Bytes that they may take: `routemaster_max_bytes`.")
        self._low = self._family(gauge, "store.low_mark", "Bytes at which eviction ends.")
        self._high = self._family(gauge, "store.high_mark", "Bytes at which events are refused or evicted.")
        self._published = self._family(counter, "events.published", "Events accepted.", "topic", "publisher")
        self._added = self._family(counter, "events.added", "Events selected for a subscriber.", "queue")
        self._removed = self._family(counter, "events.removed", "Events that a subscriber acknowledged.", "queue")

    def _counted(self) -> None:
        counter: Kind = "counter"
        of = ("queue", "status")
        self._size = self._family(counter, "events.bytes", "Bytes of accepted events.", "topic", "publisher")
        self._dropped = self._family(counter, "events.autodropped", "Events lost to retention.", "queue")
        self._sent_events = self._family(counter, "delivery.events", "Events of requests.", *of)
        self._sent_batches = self._family(counter, "delivery.batches", "Requests.", *of)
        self._time = self._family(counter, "delivery.time", "Milliseconds of requests.", *of)
        self._time2 = self._family(counter, "delivery.time2", "Squares of the milliseconds of requests.", *of)
        self._first = self._family(
            counter, "latency.batches.first_attempt", "Milliseconds from the first event to the first attempt.", "queue"
        )
        self._last = self._family(
            counter, "latency.batches.last_attempt", "Milliseconds from the first event to the last attempt.", "queue"
        )
        self._count = self._family(counter, "latency.batches.count", "Delivered batches.", "queue")
        self._scrubbed = self._family(counter, "jobs.scrubbed", "Always 0: no job is held by a process.", "queue")
        self._workers = self._family(counter, "workers.scrubbed", "Always 0: processes hold no jobs.")
        self._process = self._family(counter, "process", "Processes that began to serve.", "status", "type")

    def started(self) -> None:
        """Note that this process serves the surface, so that counters of events that never happen are shown as 0."""
        self._process.show({("start", "web"): 1, ("stop", "web"): 0})
        self._scrubbed.show({("main",): 0, ("aux",): 0})
        self._workers.show({(): 0})

    def published(self, topic: str, publisher: str, size: int) -> None:
        """Count the bytes of an accepted event; `publisher` is a handle."""
        self._size.add(size, topic, publisher_label(publisher))

    def attempted(self, handle: str, duration: int, events: int, *, delivered: bool) -> None:
        """Count a request, the number of its events, and the microseconds it took."""
        labels, milliseconds = (handle, SUCCESS if delivered else FAILURE), duration / 1000
        self._sent_events.add(events, *labels)
        self._sent_batches.add(1, *labels)
        self._time.add(milliseconds, *labels)
        self._time2.add(milliseconds**2, *labels)

    def waited(self, handle: str, duration: int, *, first: bool, delivered: bool) -> None:
        """Count how long the first event of a batch waited for this attempt, in microseconds."""
        if first:
            self._first.add(duration / 1000, handle)
        if delivered:
            self._last.add(duration / 1000, handle)
            self._count.add(1, handle)

    def postponed(self, handle: str, events: int) -> None:
        """Count a batch that waits for the end of a back-off."""
        labels = (handle, THROTTLED)
        self._sent_events.add(events, *labels)
        self._sent_batches.add(1, *labels)
        self._time.add(0, *labels)
        self._time2.add(0, *labels)

    def lost(self, handle: str, events: int) -> None:
        """Count events that retention removed before the subscriber received them."""
        self._dropped.add(events, handle)

    def forget(self, handle: str) -> None:
        """Remove the series of a subscriber that is not served any more."""
        for family in self._of_queues():
            family.forget(handle)

    def show(self, figures: SurfaceFigures) -> None:
        """Set the gauges to these figures, and remove the series of subscribers and topics that the figures lack."""
        subscribers, store = figures.subscribers, figures.store
        self._events.show({(one.handle,): one.events for one in subscribers})
        self._batches.show({(one.handle,): one.batches for one in subscribers})
        due = sum(one.due for one in subscribers)
        scheduled = sum(one.batches for one in subscribers) - due
        self._jobs.show(
            {("main", "instant"): due, ("main", "scheduled"): scheduled}
            | {("aux", "instant"): 0, ("aux", "scheduled"): 0}
        )
        self._used.show({(): store.used})
        self._most.show({(): _limit(store.most)})
        for family in (self._low, self._high):
            family.show({(): _limit(store.mark)})
        published = {(one.name, publisher_label(one.publisher)): one.events for one in figures.topics}
        self._published.show(published)
        self._added.show({(one.handle,): self._rising(one) for one in subscribers})
        self._removed.show({(one.handle,): one.removed for one in subscribers})
        for one in subscribers:
            self._dropped.add(0, one.handle)
        self._forget(frozenset(one.handle for one in subscribers), frozenset(one.name for one in figures.topics))

    def _rising(self, one: SubscriberFigure) -> float:
        """Return the events added for a subscriber, never fewer than before unless it has subscribed anew.

        It is a sum of numbers of which some fall for other reasons, as when an operator moves the cursor.
        """
        is_new = one.removed < self._removed.value(one.handle)
        added = one.added + self._dropped.value(one.handle)
        return added if is_new else max(added, self._added.value(one.handle))

    def _forget(self, handles: frozenset[str], topics: frozenset[str]) -> None:
        """Remove the series of unknown subscribers and topics: a metric has room for at most `MOST` series."""
        self._size.keep(topics)
        for family in self._of_queues():
            family.keep(handles)

    def _of_queues(self) -> Iterable[BoundedFamily]:
        yield from (self._dropped, self._sent_events, self._sent_batches, self._time, self._time2)
        yield from (self._first, self._last, self._count)

    def reference_names(self) -> dict[str, str]:
        """Return Routemaster's name of each metric, by the name that the metric has here without `_total`."""
        return {family.name: family.reference_name for family in self._families}


def publisher_label(handle: str) -> str:
    """Return the part of a handle before the first `--`: `null` without a publisher, `malformed` if the part is empty.

    So all tokens of one name count as one publisher.
    """
    name, mark, _ = handle.partition("--")
    if not handle:
        return NO_PUBLISHER
    return name if name and mark else MALFORMED


def _limit(size: int | None) -> float:
    return float("inf") if size is None else size
