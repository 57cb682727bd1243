"""Metrics in Prometheus' text format; on request, only those of the groups that a key may access."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector


def render(registry: CollectorRegistry, sees: Callable[[str], bool] | None = None) -> bytes:
    """Return metrics as text; with `sees`, only the samples whose label `group` (empty if missing) satisfies it."""
    if sees is None:
        return generate_latest(registry)
    apart = CollectorRegistry()
    apart.register(_GroupMetrics(registry, sees))
    return generate_latest(apart)


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
