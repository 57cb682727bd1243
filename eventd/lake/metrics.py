"""The metrics of shipping to a lake, shown with those of the node."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

STATES: Final = ("running", "backing-off", "blocked", "failed")
_SECOND: Final = 1_000_000


class LakeFigures:
    """Counters and gauges in a registry. On a node without a lake they are absent or 0; the time is NaN."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._rows = self._counter("rows_total", "Rows that were shipped to the lake.", "book")
        self._segments = self._counter("segments_total", "Segments that were shipped to the lake.", "book")
        self._bytes = self._counter("bytes_total", "Bytes of segments that were shipped to the lake.", "book")
        self._failures = self._counter("failures_total", "Failed attempts to ship, compact or delete.", "reason")
        self._compacted = self._counter("compacted_segments_total", "Segments that were compacted into the archive.")
        self._removed = self._counter(
            "removed_segments_total", "Segments, and states of old epochs, removed from the lake."
        )
        self._state = self._gauge("state", "1 for the state that shipping is in, 0 for the others.", "state")
        self._until = self._gauge(
            "complete_until_seconds", "All rows stored before this time (seconds since 1970) are in the lake."
        )
        self._until.set(float("nan"))  # 0 would be taken for 1970 by an alert

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"routerd_eventd_lake_{name}", text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"routerd_eventd_lake_{name}", text, labels, registry=self._registry)

    def shipped(self, book: str, rows: int, size: int) -> None:
        """Count a shipped segment with its rows and bytes."""
        self._segments.labels(book).inc()
        self._rows.labels(book).inc(rows)
        self._bytes.labels(book).inc(size)

    def held_up(self, state: str, reason: str) -> None:
        """Count a failed attempt to ship under its `reason`, and show `state` as the state of shipping."""
        self._failures.labels(reason).inc()
        self._show(state)

    def rested(self, complete_until: int) -> None:
        """Show shipping as running, with everything recorded before `complete_until` (microseconds) in the lake."""
        self._until.set(complete_until / _SECOND)
        self._show("running")

    def tidied(self, compacted: int, removed: int) -> None:
        """Count segments compacted into the archive, and segments and old states removed from the lake."""
        self._compacted.inc(compacted)
        self._removed.inc(removed)

    def not_tidied(self, reason: str) -> None:
        """Count a failed attempt to compact or delete, under its `reason`."""
        self._failures.labels(reason).inc()

    def _show(self, state: str) -> None:
        for known in STATES:
            self._state.labels(known).set(known == state)
