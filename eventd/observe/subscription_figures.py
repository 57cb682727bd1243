"""The Prometheus metrics of subscriptions: the runs of their plugins, and the events that wait for them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from eventd.observe.consumer_figures import LAGS, LINK_STATES


class SubscriptionFigures:
    """The metrics of the subscriptions that one process serves."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def name(rest: str) -> str:
            return f"routerd_eventd_subscription_{rest}"

        one = ("group", "subscription")
        self._runs = Counter(
            name("runs_total"), "Runs of a subscription's plugin.", (*one, "status"), registry=registry
        )
        self._run_events = Counter(
            name("run_events_total"), "Events of the plugin's runs.", (*one, "status"), registry=registry
        )
        self._run_seconds = Histogram(
            name("run_seconds"), "Seconds of one run of a plugin.", one, buckets=LAGS, registry=registry
        )
        self._state = Gauge(name("state"), "1 for the state a subscription is in.", (*one, "state"), registry=registry)
        self._waiting = Gauge(
            name("waiting_events"), "Events that wait for a plugin, up to 1,000.", one, registry=registry
        )
        self._waiting_seconds = Gauge(
            name("waiting_seconds"),
            "Seconds for which the oldest event that waits for a plugin has waited.",
            one,
            registry=registry,
        )

    def ran(self, group: str, subscription: str, status: str, events: int, seconds: float) -> None:
        """Count a run of a subscription's plugin, or a dead letter without one, with its events and seconds."""
        self._runs.labels(group, subscription, status).inc()
        self._run_events.labels(group, subscription, status).inc(events)
        self._run_seconds.labels(group, subscription).observe(seconds)

    def show(self, group: str, subscription: str, *, state: str, events: int, seconds: float) -> None:
        """Set the state of a subscription, how many events wait, and for how many seconds the oldest has waited."""
        self._runs.labels(group, subscription, "parked")
        for known in LINK_STATES:
            self._state.labels(group, subscription, known).set(known == state)
        self._waiting.labels(group, subscription).set(events)
        self._waiting_seconds.labels(group, subscription).set(seconds)

    def forget(self, group: str, subscription: str) -> None:
        """Remove the gauges of a subscription that is no longer declared."""
        for known in LINK_STATES:
            self._state.remove(group, subscription, known)
        for gauge in (self._waiting, self._waiting_seconds):
            gauge.remove(group, subscription)
