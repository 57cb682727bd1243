"""What Spark did to answer a query, from the plan that it executed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame


def scanned(frame: DataFrame, metric: str) -> int:
    """Run a query, and return the sum of a metric, such as `numFiles` or `numOutputRows`, over all that it scanned."""
    inner: Any = frame
    frame.collect()
    return sum(int(scan.metrics().apply(metric).value()) for scan in _scans(inner._jdf.queryExecution().executedPlan()))


def _scans(plan: Any) -> Sequence[Any]:
    for inner in ("finalPhysicalPlan", "plan"):  # of a plan that adapts, and of one of its stages
        if inner in dir(plan):
            return _scans(getattr(plan, inner)())
    if "Scan" in plan.nodeName():
        return [plan]
    children = plan.children()
    return [scan for at in range(children.size()) for scan in _scans(children.apply(at))]
