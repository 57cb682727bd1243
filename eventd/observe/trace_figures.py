"""The metric of tracing: how many spans of this process were exported, not taken, or dropped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

from eventd.tracing import tracing

_NAME: Final = "routerd_eventd_trace_spans"
_TEXT: Final = (
    "Spans by what became of them: exported, failed (the collector did not take them), dropped (too many waited). All 0"
    " while tracing is off."
)
_RESULTS: Final = ("exported", "failed", "dropped")


class TraceFigures(Collector):
    """The counts of `tracing`, which belong to the process."""

    _labelnames: Final = ("result",)
    """Named as by the metrics of prometheus_client."""

    def __init__(self, registry: CollectorRegistry) -> None:
        registry.register(self)

    def describe(self) -> Iterator[CounterMetricFamily]:
        return self.collect()

    def collect(self) -> Iterator[CounterMetricFamily]:
        counts = tracing.counts()
        family = CounterMetricFamily(_NAME, _TEXT, labels=["result"])
        for result in _RESULTS:
            family.add_metric([result], counts.get(result, 0))
        yield family


def exemplar() -> dict[str, str] | None:
    """Return the current span as an exemplar of a histogram (OpenMetrics); None outside of any, or if not sampled."""
    context = tracing.current()
    if context is None or not context.sampled:
        return None
    return {"trace_id": context.trace_id, "span_id": context.span_id}
