"""One event at a time: from the call that appends it at A to the moment B has acknowledged it as durable.

A runs in this process, so that no HTTP of the measurement stands in between; B is a process of its own. The moment
taken is that of B's signed receipt at A: the event was visible at B a little before.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from eventd.clock import SystemClock
from eventd.node import Node
from eventd.resources.effective import topic_of
from eventd.settings import load
from tests.bench.nodes import GROUP, BenchNode, make_drafts, verify

EVENTS = 500
WARM_UP = 50


async def measure_latency(
    directory: Path, make_url: Callable[[], str | None], options: argparse.Namespace
) -> dict[str, float]:
    """Milliseconds, percentiles over single events with a pause between them."""
    sys.setswitchinterval(0.0005)  # as `serve` does
    (directory / "key").write_text("bench-secret")
    a, b = BenchNode("a", directory, make_url()), BenchNode("b", directory, make_url())
    for node, other in ((a, b), (b, a)):
        node.declare(directory / "key", [other])
    drafts = make_drafts("a", EVENTS + WARM_UP, options.size)
    b.start()
    environ = {"EVENTD_DATA_DIR": str(a.directory), "EVENTD_DATABASE_URL": a.url, "EVENTD_API_LISTEN": "127.0.0.1:0"}
    node = Node(load({}, environ), clock=SystemClock())
    acknowledged: asyncio.Queue[float] = asyncio.Queue()
    delivered = node.metrics.delivered

    def notice(group: str, peer: str, count: int, lag: float) -> None:
        acknowledged.put_nowait(time.perf_counter())
        delivered(group, peer, count, lag)

    node.metrics.delivered = notice  # type: ignore[method-assign]
    await node.start()
    appends, arrivals = [], []
    try:
        topic = await node.log.topic(topic_of(GROUP))
        for draft in drafts:
            begun = time.perf_counter()
            await node.log.append(topic, [draft])
            appended = time.perf_counter()
            arrived = await acknowledged.get()
            appends.append((appended - begun) * 1000)
            arrivals.append((arrived - begun) * 1000)
            await asyncio.sleep(0.002)
    finally:
        await node.stop()
        b.stop()
    verify(a, b, len(drafts))
    cut = statistics.quantiles(arrivals[WARM_UP:], n=100)
    return {
        "p50_ms": round(cut[49], 3),
        "p99_ms": round(cut[98], 3),
        "append_p50_ms": round(statistics.median(appends[WARM_UP:]), 3),
    }
