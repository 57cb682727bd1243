"""The figures of shipping, beside those of the node."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

STATES: Final = ("running", "backing-off", "blocked", "failed")
_SECOND: Final = 1_000_000


class LakeFigures:
    """Counters and gauges in a registry. A node without a lake has them without values."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._rows = self._counter("rows_total", "Rows that were shipped to the lake.", "book")
        self._segments = self._counter("segments_total", "Segments that were shipped to the lake.", "book")
        self._bytes = self._counter("bytes_total", "Bytes of those segments.", "book")
        self._failures = self._counter("failures_total", "Tries to ship or to tidy up that failed.", "reason")
        self._compacted = self._counter("compacted_segments_total", "Segments that went into the archive.")
        self._removed = self._counter("removed_segments_total", "Segments that were removed from the lake.")
        self._state = self._gauge("state", "1 for the state that shipping is in.", "state")
        self._until = self._gauge("complete_until_seconds", "All that was recorded before this time is in the lake.")
        self._until.set(float("nan"))  # nothing was promised: no alert may take that for 1970

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"routerd_eventd_lake_{name}", text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"routerd_eventd_lake_{name}", text, labels, registry=self._registry)

    def shipped(self, book: str, rows: int, size: int) -> None:
        """A segment of so many rows and bytes is in the lake."""
        self._segments.labels(book).inc()
        self._rows.labels(book).inc(rows)
        self._bytes.labels(book).inc(size)

    def held_up(self, state: str, reason: str) -> None:
        """A try to ship did not work; `state` is that of the cursors now."""
        self._failures.labels(reason).inc()
        self._show(state)

    def rested(self, complete_until: int) -> None:
        """All that was recorded before this time (microseconds) is in the lake."""
        self._until.set(complete_until / _SECOND)
        self._show("running")

    def tidied(self, compacted: int, removed: int) -> None:
        """Segments went into the archive, and were removed."""
        self._compacted.inc(compacted)
        self._removed.inc(removed)

    def not_tidied(self, reason: str) -> None:
        """A try to tidy up did not work."""
        self._failures.labels(reason).inc()

    def _show(self, state: str) -> None:
        for known in STATES:
            self._state.labels(known).set(known == state)
