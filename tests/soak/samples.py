"""What is sampled of a running node: from the files of its process, its data, and its metrics."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.soak.slopes import quantile_of
from tests.support.running import NodeProcess

FIGURES: Final = ("memory (MiB)", "descriptors", "threads", "write-ahead log (MiB)", "p99 of delivery (ms)")
_LAG: Final = "routerd_eventd_outbox_delivery_lag_seconds_bucket"
_BUCKET: Final = re.compile(rf'^{_LAG}{{[^}}]*le="([^"]+)"[^}}]*}} (\S+)$', re.MULTILINE)
_MEBIBYTE: Final = 1 << 20

Buckets = dict[float, float]
"""The cumulative counts of a histogram by their upper bounds."""


class NodeSampler:
    """Samples one node. The latency is that of the deliveries since the sample before."""

    def __init__(self, node: NodeProcess) -> None:
        self.node = node
        self._before: Buckets = {}

    def sample(self) -> dict[str, float]:
        """Return the figures by name; without the latency if nothing was delivered. Raises OSError if it is down."""
        place = Path(f"/proc/{self.node.process.pid}")
        status = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines() if ":" in line)
        log = self.node.file.with_name(f"{self.node.file.name}-wal")
        values = (
            int(status["VmRSS"].split()[0]) / 1024,
            len(os.listdir(place / "fd")),
            int(status["Threads"]),
            log.stat().st_size / _MEBIBYTE if log.exists() else 0.0,
        )
        found: dict[str, float] = dict(zip(FIGURES, values, strict=False))
        _, body = self.node.process.get("/metrics")
        now = read_buckets(body.decode())
        late = delivery_p99(self._before, now)
        self._before = now
        return found if late is None else found | {FIGURES[-1]: late * 1000}


def read_buckets(text: str) -> Buckets:
    """Return the histogram of delivery latencies in the text of a node's metrics, over all of its links."""
    found: Buckets = {}
    for bound, count in _BUCKET.findall(text):
        found[float(bound)] = found.get(float(bound), 0.0) + float(count)
    return found


def delivery_p99(before: Mapping[float, float], now: Mapping[float, float]) -> float | None:
    """Return the 99th percentile, in seconds, of what a histogram has counted in between; None if that is nothing."""
    bounds = sorted(now)
    if not bounds:
        return None
    if now[math.inf] < before.get(math.inf, 0.0):  # the process is another one
        before = {}
    counts = [now[bound] - before.get(bound, 0.0) for bound in bounds]
    return quantile_of(bounds, counts, 0.99) if counts[-1] else None
