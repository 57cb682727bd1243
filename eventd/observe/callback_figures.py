"""The Prometheus metrics of callbacks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from eventd.observe.consumer_figures import LAGS, LINK_STATES

MOST: Final = 1000
"""Maximum number of callbacks that have series of their own."""
MOST_REASONS: Final = 24
"""Maximum number of reasons of failures that are counted apart for a callback: an endpoint may answer any status."""
OTHER: Final = "other"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 60)


class CallbackFigure(NamedTuple):
    """The condition of one callback.

    `waiting`: events; `seconds`: how long the oldest of them has waited; `disabled`: the node itself has paused it.
    """

    callback: str
    state: str
    waiting: int
    seconds: float
    dead_letters: int
    disabled: bool = False


class CallbackFigures:
    """The metrics of the callbacks that one process serves."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def name(rest: str) -> str:
            return f"routerd_eventd_callback_{rest}"

        one = ("callback",)
        self._deliveries = Counter(
            name("deliveries_total"),
            "Events that an endpoint has accepted (`delivered`) or that became dead letters (`refused`).",
            (*one, "status"),
            registry=registry,
        )
        self._attempts = Counter(name("attempts_total"), "Requests to an endpoint.", one, registry=registry)
        self._failures = Counter(
            name("failures_total"), "Requests that were not accepted.", (*one, "reason"), registry=registry
        )
        self._seconds = Histogram(
            name("seconds"), "Seconds of one request to an endpoint.", one, buckets=_SECONDS, registry=registry
        )
        self._lag = Histogram(
            name("lag_seconds"),
            "Seconds from recording a run's oldest event to its acceptance, once per run of requests.",
            one,
            buckets=LAGS,
            registry=registry,
        )
        self._state = Gauge(name("state"), "1 for the state a callback is in.", (*one, "state"), registry=registry)
        self._waiting = Gauge(
            name("waiting_events"), "Events that wait for an endpoint, up to 1,000.", one, registry=registry
        )
        self._waiting_seconds = Gauge(
            name("waiting_seconds"),
            "Seconds for which the oldest event that waits for an endpoint has waited.",
            one,
            registry=registry,
        )
        self._letters = Gauge(name("dead_letters"), "Dead letters of a callback.", one, registry=registry)
        self._disabled = Gauge(
            name("disabled"), "1 if the node itself has paused a callback, else 0.", one, registry=registry
        )
        self._known: set[str] = set()
        self._counted: dict[str, set[tuple[Counter | Histogram, tuple[str, ...]]]] = {}

    def attempted(self, callback: str, duration: int, reason: str) -> None:
        """Count a request, and the microseconds it took; `reason` is empty if the endpoint accepted it."""
        if not self._has_room(callback):
            return
        self._count(self._attempts, 1, callback)
        self._observe(self._seconds, duration, callback)
        if reason:
            known = [labels[1] for metric, labels in self._counted[callback] if metric is self._failures]
            is_apart = reason in known or len(known) < MOST_REASONS
            self._count(self._failures, 1, callback, reason if is_apart else OTHER)

    def delivered(self, callback: str, events: int, lag: int) -> None:
        """Count accepted events; the oldest was recorded `lag` microseconds ago."""
        if self._has_room(callback):
            self._count(self._deliveries, events, callback, "delivered")
            self._observe(self._lag, lag, callback)

    def refused(self, callback: str, events: int) -> None:
        """Count events that became dead letters."""
        if self._has_room(callback):
            self._count(self._deliveries, events, callback, "refused")

    def _has_room(self, callback: str) -> bool:
        """Return whether a callback has series of its own, or can get them now."""
        if callback not in self._counted and len(self._counted) < MOST:
            self._counted[callback] = set()
            self._count(self._deliveries, 0, callback, "refused")
        return callback in self._counted

    def _count(self, counter: Counter, amount: int, *labels: str) -> None:
        counter.labels(*labels).inc(amount)
        self._counted[labels[0]].add((counter, labels))

    def _observe(self, histogram: Histogram, duration: int, *labels: str) -> None:
        histogram.labels(*labels).observe(duration / 1e6)
        self._counted[labels[0]].add((histogram, labels))

    def forget(self, callback: str) -> None:
        """Remove the series of a callback that is not served any more, which makes room for another callback."""
        for metric, labels in self._counted.pop(callback, ()):
            metric.remove(*labels)

    def show(self, figures: Iterable[CallbackFigure]) -> None:
        """Set the gauges of all callbacks, and remove those of callbacks that are not among them."""
        found = {figure.callback: figure for figure in [*figures][:MOST]}
        for gone in sorted(self._known - found.keys()):
            for gauge in (self._waiting, self._waiting_seconds, self._letters, self._disabled):
                gauge.remove(gone)
            for state in LINK_STATES:
                self._state.remove(gone, state)
        self._known = set(found)
        for figure in found.values():
            for state in LINK_STATES:
                self._state.labels(figure.callback, state).set(figure.state == state)
            self._waiting.labels(figure.callback).set(figure.waiting)
            self._waiting_seconds.labels(figure.callback).set(figure.seconds)
            self._letters.labels(figure.callback).set(figure.dead_letters)
            self._disabled.labels(figure.callback).set(figure.disabled)
