"""One event at a time: from the call that appends it at A to the moment it can be read at B, and to B's receipt at A.

A runs in this process, so that no HTTP of the measurement stands in between; B is a process of its own. A thread looks
into B's database about every third of a millisecond; what it sees is committed and durable there.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from eventd.clock import SystemClock
from eventd.log.head import read_head
from eventd.node import Node
from eventd.resources.effective import topic_of
from eventd.settings import load
from eventd.store.database import Database
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
    rounds: list[tuple[float, float, float]] = []
    witness = Database(b.url)
    try:
        topic = await node.log.topic(topic_of(GROUP))
        for number, draft in enumerate(drafts, start=1):
            seen = asyncio.create_task(asyncio.to_thread(_first_sight, witness, number))
            await asyncio.sleep(0.005)
            begun = time.perf_counter()
            await node.log.append(topic, [draft])
            appended = time.perf_counter()
            arrived = await acknowledged.get()
            rounds.append((appended - begun, await seen - begun, arrived - begun))
    finally:
        witness.close()
        await node.stop()
        b.stop()
    verify(a, b, len(drafts))
    appends, sights, receipts = zip(*rounds[WARM_UP:], strict=True)
    return {
        "visible_p50_ms": _percentile(sights, 50),
        "visible_p99_ms": _percentile(sights, 99),
        "receipt_p50_ms": _percentile(receipts, 50),
        "receipt_p99_ms": _percentile(receipts, 99),
        "append_p50_ms": _percentile(appends, 50),
    }


def _first_sight(witness: Database, number: int) -> float:
    """When B's log first reached that many records. It asks little and rarely: it shares the interpreter with A."""
    if witness.path is not None:
        with closing(sqlite3.connect(f"file:{witness.path}?mode=ro", uri=True)) as file:
            while file.execute("SELECT next_position FROM log_heads").fetchone()[0] <= number:
                time.sleep(0.0003)
    else:
        while witness.read_now(read_head).last < number:
            time.sleep(0.0003)
    return time.perf_counter()


def _percentile(seconds: Sequence[float], percent: int) -> float:
    return round(statistics.quantiles(seconds, n=100)[percent - 1] * 1000, 3)
