"""Metrics in Prometheus' text format; on request, only those of the groups that a key may access."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from eventd.observe.metrics import METRICS_CONTENT_TYPE


class Exposition(NamedTuple):
    """Metrics as text, and its media type."""

    text: bytes
    media: str


def render(
    registry: CollectorRegistry, sees: Callable[[str], bool] | None = None, *, exemplars: bool = False
) -> Exposition:
    """Return metrics as text; with `sees`, only the samples whose label `group` (empty if missing) satisfies it.

    With `exemplars`, the text is OpenMetrics, the only format that has them.
    """
    shown = registry
    if sees is not None:
        shown = CollectorRegistry()
        shown.register(_GroupMetrics(registry, sees))
    if exemplars:
        text = openmetrics.generate_latest(shown)  # type: ignore[no-untyped-call]
        return Exposition(text, openmetrics.CONTENT_TYPE_LATEST)
    return Exposition(generate_latest(shown), METRICS_CONTENT_TYPE)


class _GroupMetrics(Collector):
    """The samples of a registry whose label `group` satisfies `sees`; metrics without such samples are left out."""

    def __init__(self, registry: CollectorRegistry, sees: Callable[[str], bool]) -> None:
        self._registry = registry
        self._sees = sees

    def describe(self) -> Iterator[Metric]:
        return iter(())  # its names need no check: they are those of the registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            shown = Metric(metric.name, metric.documentation, metric.type)
            shown.samples = [one for one in metric.samples if self._sees(one.labels.get("group", ""))]
            if shown.samples:
                yield shown
