"""Measures single events: from their append at A until they are readable at B, and until A has B's receipt.

A runs in this process, so that the measurement includes no HTTP of its own; B is a process. A thread reads B's database
about every third of a millisecond; what it sees is committed and durable there.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path

from eventd.api.admin.deliveries.redelivery import Redeliver, redeliver
from eventd.api.framework.operations import Services
from eventd.log.core.head import read_head
from eventd.log.core.values import Draft
from eventd.node.node import Node
from eventd.resources.group_configuration import topic_of
from eventd.runtime.chance import SYSTEM
from eventd.runtime.clock import SystemClock
from eventd.settings.loading import load
from eventd.store.engine.database import Database
from eventd.tls.making import make_pair
from tests.bench.nodes import GROUP, BenchNode, make_drafts, verify

EVENTS = 500
WARM_UP = 50


Rounds = list[tuple[float, float, float]]
"""Seconds until an event was appended at A, was readable at B, and B's receipt was at A."""


async def measure_latency(
    directory: Path, make_url: Callable[[], str | None], options: argparse.Namespace
) -> dict[str, float]:
    """Return milliseconds, as percentiles over single events with a pause between them."""
    async with node_pair(directory, make_url, history=options.history) as pair:
        rounds = await pair.send(make_drafts("a", EVENTS + WARM_UP, options.size))
    appends, sights, receipts = zip(*rounds[WARM_UP:], strict=True)
    return {
        "visible_p50_ms": _percentile(sights, 50),
        "visible_p99_ms": _percentile(sights, 99),
        "receipt_p50_ms": _percentile(receipts, 50),
        "receipt_p99_ms": _percentile(receipts, 99),
        "append_p50_ms": _percentile(appends, 50),
    }


async def measure_previews(
    directory: Path, make_url: Callable[[], str | None], options: argparse.Namespace
) -> dict[str, float]:
    """Measure latencies at an idle node, and while redeliveries of all its events are previewed."""
    async with node_pair(
        directory, make_url, history=options.history, subjectPrefixes=["10."]
    ) as pair:  # so that every event is examined
        await pair.hold(make_drafts("a", options.events, options.size))
        drafts = make_drafts("a", 2 * EVENTS + WARM_UP, options.size, start=options.events)
        await pair.send(drafts[:WARM_UP])
        alone = await pair.send(drafts[WARM_UP:][:EVENTS])
        previews = list[float]()
        asking = [asyncio.create_task(pair.preview(options.events, previews)) for _ in range(options.previews)]
        await asyncio.sleep(0.5)
        beside = await pair.send(drafts[WARM_UP:][EVENTS:])
        for task in asking:
            task.cancel()
        ended = await asyncio.gather(*asking, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended
    figures = {
        f"{name}_visible_p{percent}_ms": _percentile([sight for _, sight, _ in rounds], percent)
        for name, rounds in (("alone", alone), ("beside", beside))
        for percent in (50, 99)
    }
    ratio = figures["beside_visible_p99_ms"] / figures["alone_visible_p99_ms"]
    mean = statistics.mean(previews) if previews else 0.0
    return {**figures, "p99_to_alone": round(ratio, 2), "previews": len(previews), "preview_seconds": round(mean, 2)}


@asynccontextmanager
async def node_pair(
    directory: Path,
    make_url: Callable[[], str | None],
    *,
    tls: bool = False,
    history: str = "record",
    **of_peers: object,
) -> AsyncIterator[_Pair]:
    """Yield the two nodes; at the end they are stopped, and B's events are compared with those that A sent.

    With `tls`, they show each other certificates, and know each other's pins.
    """
    sys.setswitchinterval(0.0005)  # as `serve` does
    (directory / "key").write_text("bench-secret")
    a, b = BenchNode("a", directory, make_url()), BenchNode("b", directory, make_url())
    for each in (a, b) if tls else ():
        each.tls = make_pair(each.directory / "tls", each.name, [], 1, datetime.now(UTC))
    for node, other in ((a, b), (b, a)):
        node.history = history
        node.declare(directory / "key", [other], **of_peers)
    b.start()
    environ = {"EVENTD_DATA_DIR": str(a.directory), "EVENTD_DATABASE_URL": a.url, "EVENTD_API_LISTEN": "127.0.0.1:0"}
    node = Node(load({}, environ), clock=SystemClock(), chance=SYSTEM)
    witness = Database(b.url)
    try:
        pair = _Pair(node, witness)
        await node.start()
        yield pair
    finally:
        witness.close()
        await node.stop()
        b.stop()
    verify(a, b, pair.sent)


class _Pair:
    """A node of this process that sends to another one, whose database `witness` reads."""

    def __init__(self, node: Node, witness: Database) -> None:
        self.sent = 0
        self._node = node
        self._witness = witness
        self._acknowledged: asyncio.Queue[tuple[float, int]] = asyncio.Queue()
        self._delivered = node.metrics.delivered
        node.metrics.delivered = self._notice  # type: ignore[method-assign]

    def _notice(self, group: str, peer: str, count: int, size: int, lag: float) -> None:
        self._acknowledged.put_nowait((time.perf_counter(), count))
        self._delivered(group, peer, count, size, lag)

    async def hold(self, drafts: Sequence[Draft]) -> None:
        """Store these events at both nodes."""
        topic = await self._node.log.topic(topic_of(GROUP))
        for start in range(0, len(drafts), 1000):
            await self._node.log.append(topic, drafts[start : start + 1000])
        self.sent += len(drafts)
        arrived = 0
        while arrived < len(drafts):
            arrived += (await self._acknowledged.get())[1]

    async def send(self, drafts: Sequence[Draft]) -> Rounds:
        """Append events one after the other, each when the one before has arrived."""
        topic = await self._node.log.topic(topic_of(GROUP))
        rounds: Rounds = []
        for draft in drafts:
            self.sent += 1
            seen = asyncio.create_task(asyncio.to_thread(_first_sight, self._witness, self.sent))
            await asyncio.sleep(0.005)
            begun = time.perf_counter()
            await self._node.log.append(topic, [draft])
            appended = time.perf_counter()
            arrived, _ = await self._acknowledged.get()
            rounds.append((appended - begun, await seen - begun, arrived - begun))
        return rounds

    async def preview(self, events: int, seconds: list[float]) -> None:
        """Preview a redelivery of this number of events, repeatedly."""
        asked = Redeliver(group=GROUP, peer="b", from_seq=1, to_seq=events, dry_run=True)
        while True:
            begun = time.perf_counter()
            told = await redeliver(Services(self._node.log), asked)
            assert told["events"] == events, told
            seconds.append(time.perf_counter() - begun)


def _first_sight(witness: Database, number: int) -> float:
    """Return when B's log first reached this number of records. It polls sparingly: it shares the interpreter
    with A."""
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
