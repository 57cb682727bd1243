"""The Prometheus metrics of streams over QUIC and of the cache. No label names a tenant, a stream or a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

MOST_SERIES: Final = 32
"""Maximum number of series of one metric; further label values are counted as `other`."""
OTHER: Final = "other"

StreamKind = Literal["request", "publish", "events"]
"""The kinds of streams: a client's bidirectional stream, its unidirectional one, which only publishes, and the stream
of a subscription."""
PublishResult = Literal["ok", "refused", "dropped"]

_PUBLISH_SECONDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1, 2.5, 5),
)
_CACHE_SECONDS = (0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.1)


class _Counts:
    """A counter with labels whose series are looked up once, because it counts each frame."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._series: dict[tuple[str, ...], Counter] = {}

    def add(self, amount: float, *labels: str) -> None:
        found = self._series.get(labels)
        if found is None:
            kept = labels if len(self._series) < MOST_SERIES - 1 else (*labels[:-1], OTHER)
            found = self._series.get(kept)
            if found is None:
                found = self._series[kept] = self._counter.labels(*kept)
        found.inc(amount)


class StreamMetrics:
    """The metrics of the streams, and of the cache, of one process. Times are in seconds."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._receiving()
        self._sending()
        self._caching()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"routerd_eventd_{name}", text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"routerd_eventd_{name}", text, labels, registry=self._registry)

    def _receiving(self) -> None:
        self._connections = self._gauge("stream_connections", "Open QUIC connections.")
        self._open = self._gauge(
            "stream_open_streams",
            "Open streams: bidirectional ones of clients (`request`), unidirectional ones of clients (`publish`), and"
            " those of subscriptions (`events`).",
            "kind",
        )
        self._auth = _Counts(self._counter("stream_auth_total", "Attempts to authenticate a stream.", "result"))
        self._frames = _Counts(
            self._counter("stream_frames_total", "Frames of streams, by what their payload is.", "direction", "form")
        )
        self._bad = _Counts(self._counter("stream_bad_frames_total", "Frames that were not understood.", "reason"))
        self._published = _Counts(
            self._counter(
                "stream_published_total",
                "Records to publish: written (`ok`), refused with an answer (`refused`), or without one (`dropped`).",
                "result",
            )
        )
        self._published.add(0, "dropped")
        self._dropped = _Counts(
            self._counter("stream_dropped_total", "Unacknowledged records that were not written.", "reason")
        )
        self._published_bytes = self._counter("stream_published_bytes_total", "Bytes of the payloads written.")
        self._publish_seconds = Histogram(
            "routerd_eventd_stream_publish_seconds",
            "Seconds from reading the frame of an acknowledged publish to writing its answer.",
            buckets=_PUBLISH_SECONDS,
            registry=self._registry,
        )
        self._errors = self._counter(
            "stream_transport_errors_total", "Failures in QUIC itself, each of which ended one connection."
        )

    def _sending(self) -> None:
        self._subscriptions = self._gauge("stream_subscriptions", "Subscriptions that are served.")
        self._delivered = self._counter("stream_delivered_total", "Events written to event streams.")
        self._delivered_bytes = self._counter(
            "stream_delivered_bytes_total", "Bytes of the payloads of events written to event streams."
        )
        self._gaps = _Counts(self._counter("stream_gaps_total", "Gaps in subscriptions, reported or not.", "reason"))
        self._behind = self._gauge(
            "stream_behind_records", "Records by which the slowest subscription is behind its stream."
        )
        self._unsent = self._gauge("stream_unsent_bytes", "Bytes that are written to streams and not yet sent.")

    def _caching(self) -> None:
        self._entries = self._gauge("cache_entries", "Values in the caches, expired ones included.")
        self._bytes = self._gauge("cache_bytes", "Bytes of the caches: keys, values, and 128 for each of them.")
        self._gets = _Counts(self._counter("cache_gets_total", "Reads of the caches: `hit` or `miss`.", "result"))
        self._puts = self._counter("cache_puts_total", "Writes to the caches.")
        self._evicted = _Counts(
            self._counter(
                "cache_evicted_total", "Values removed because they have `expired`, or to make room (`full`).", "reason"
            )
        )
        seconds = Histogram(
            "routerd_eventd_cache_seconds",
            "Seconds of a `get` or `put`, without reading its frame and writing its answer.",
            ("op",),
            buckets=_CACHE_SECONDS,
            registry=self._registry,
        )
        self._get_seconds, self._put_seconds = seconds.labels("get"), seconds.labels("put")

    # --- connections and streams --------------------------------------------------------------------------------------

    def connected(self) -> None:
        """Count a connection as open."""
        self._connections.inc()

    def disconnected(self) -> None:
        """Count a connection as closed."""
        self._connections.dec()

    def transport_error(self) -> None:
        """Count a failure in QUIC itself, which ended one connection."""
        self._errors.inc()

    def stream_opened(self, kind: StreamKind) -> None:
        """Count a stream as open."""
        self._open.labels(kind).inc()

    def stream_closed(self, kind: StreamKind) -> None:
        """Count a stream as closed."""
        self._open.labels(kind).dec()

    def authenticated(self, result: str) -> None:
        """Count an attempt to authenticate a stream; `result` is `ok` or a short fixed word."""
        self._auth.add(1, result)

    def frame(self, direction: Literal["in", "out"], form: str, frames: int = 1) -> None:
        """Count frames; `form` is a short fixed word for their payload, such as `json`."""
        self._frames.add(frames, direction, form)

    def bad_frame(self, reason: str) -> None:
        """Count a frame that was not understood; `reason` is a short fixed word."""
        self._bad.add(1, reason)

    # --- publishing and subscribing -----------------------------------------------------------------------------------

    def published(self, result: PublishResult, records: int, size: int, seconds: float | None = None) -> None:
        """Count the records of a publish, the bytes of their payloads, and the seconds until its answer, if any."""
        self._published.add(records, result)
        if result == "ok":
            self._published_bytes.inc(size)
        if seconds is not None:
            self._publish_seconds.observe(seconds)

    def dropped(self, reason: str, records: int) -> None:
        """Count unacknowledged records that were not written; `reason` is a short fixed word."""
        self._published.add(records, "dropped")
        self._dropped.add(records, reason)

    def subscribed(self, change: int) -> None:
        """Add this number to the count of subscriptions; a negative number reduces the count."""
        self._subscriptions.inc(change)

    def delivered(self, records: int, size: int) -> None:
        """Count events that were written to an event stream, and the bytes of their payloads."""
        self._delivered.inc(records)
        self._delivered_bytes.inc(size)

    def gap(self, reason: str) -> None:
        """Count a gap in a subscription, also if the subscriber does not get it as a message."""
        self._gaps.add(1, reason)

    def behind(self, records: Callable[[], int]) -> None:
        """Set the function that returns by how many records the slowest subscription is behind its stream."""
        self._behind.set_function(records)

    def unsent(self, size: Callable[[], int]) -> None:
        """Set the function that returns the bytes that are written to streams and not yet sent."""
        self._unsent.set_function(size)

    # --- cache --------------------------------------------------------------------------------------------------------

    def cache_sizes(self, entries: Callable[[], int], size: Callable[[], int]) -> None:
        """Set the functions that return the entries of all caches, and their bytes."""
        self._entries.set_function(entries)
        self._bytes.set_function(size)

    def got(self, result: Literal["hit", "miss"], seconds: float) -> None:
        """Count a read of a cache."""
        self._gets.add(1, result)
        self._get_seconds.observe(seconds)

    def put(self, seconds: float) -> None:
        """Count a write to a cache."""
        self._puts.inc()
        self._put_seconds.observe(seconds)

    def evicted(self, reason: Literal["expired", "full"], entries: int) -> None:
        """Count values that were removed to make room, or because they have expired."""
        self._evicted.add(entries, reason)
