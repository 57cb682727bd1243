"""Measures one node with many peers, some of them dead: throughput and latency of all together, and the cost at the
node.

Every other dead peer refuses connections, and the rest accept requests and never answer. One small process plays the
living peers, so that the node is the bottleneck and not they; both share the machine.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

from eventd.bench.children import bare_environment, free_ports
from eventd.bench.nodes import pause
from eventd.bench.wire import NodeClient, now
from eventd.net.address import Address
from tests.bench.growth_costs import NotVerified
from tests.bench.growth_logs import GROUP, A, Shape, fill_own
from tests.bench.growth_sink import SILENT
from tests.bench.growth_sites import (
    FilledNode,
    Meter,
    cpu_of,
    declare_down,
    group_with,
    node_site,
    peer_with,
    start_all,
)

DELIVERIES = 2_000_000
"""The approximate number of events that all living peers receive together."""
MOST_EVENTS = 200_000
LONE = 40
"""Single events, one after the other."""
LOOK_SECONDS = 0.02
LONGEST_SECONDS = 240.0


@dataclass(frozen=True, slots=True)
class Sink:
    """The process that plays the peers."""

    port: int
    process: Popen[str]

    @property
    def client(self) -> NodeClient:
        return NodeClient(Address(False, "127.0.0.1", self.port, ""))

    async def counts(self) -> dict[str, dict[str, Any]]:
        """Return what each peer has received."""
        told: dict[str, dict[str, Any]] = await self.client.call("GET", "/counts")
        return told


@contextmanager
def open_sink(secret: str) -> Iterator[Sink]:
    """Yield a sink that runs until the end of the block."""
    [port] = free_ports(1)
    command = [sys.executable, "-m", "tests.bench.growth_sink", str(port), secret]
    with Popen(command, stdout=PIPE, text=True, env=bare_environment()) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield Sink(port, process)
        finally:
            process.kill()


async def measure_peers(home: Path, peers: int, dead: int) -> dict[str, float]:
    """Measure this number of peers. Raises `NotVerified` if a living peer does not hold all events, once and
    in order."""
    living = peers - dead
    events = min(MOST_EVENTS, DELIVERIES // living)
    url = f"sqlite:///{home / 'a.db'}"
    fill_own(url, events, Shape())
    with node_site(home, [url], [A]) as (a,), open_sink("growth") as sink:
        declare_down(url, group_with(a, GROUP))
        await start_all([a])
        figures = await _deliver(a, sink, living, dead, events)
        figures |= await _lone(a, sink, living, events)
        return figures | {"events": float(events), "peak_mib": a.peak_mib()}


def _peers(sink: Sink, living: int, dead: int) -> list[dict[str, Any]]:
    [closed] = free_ports(1)
    names = [(f"peer-{number:04}", sink.port) for number in range(living)]
    names += [(f"{SILENT}-{number:04}", sink.port) for number in range(0, dead, 2)]
    names += [(f"closed-{number:04}", closed) for number in range(1, dead, 2)]
    return [peer_with(GROUP, name, port) for name, port in names]


async def _deliver(a: FilledNode, sink: Sink, living: int, dead: int, events: int) -> dict[str, float]:
    begun, meter, helper = now(), Meter(a), cpu_of(sink.process.pid)
    await a.declare(*_peers(sink, living, dead))
    declared, counts = now(), await sink.counts()
    already = _total(counts)
    while _total(counts) < living * events and now() - begun < LONGEST_SECONDS:
        await pause(LOOK_SECONDS)
        counts = await sink.counts()
    seconds = now() - declared
    _check(counts, living, events)
    cost = meter.cost(living * events)
    return {
        "declare_s": declared - begun,
        "events_per_second": (living * events - already) / seconds,
        "cpu_us": cost.cpu_us,
        "sink_cpu_us": (cpu_of(sink.process.pid) - helper) / (living * events) * 1e6,
        "batches": float(sum(one["batches"] for one in counts.values())),
    }


def _total(counts: dict[str, dict[str, Any]]) -> int:
    return sum(one["events"] for one in counts.values())


def _check(counts: dict[str, dict[str, Any]], living: int, events: int) -> None:
    """Check that all living peers have received the same bytes, and every event."""
    different = {(one["events"], one["checksum"]) for one in counts.values()}
    if len(counts) != living or len(different) != 1 or next(iter(different))[0] != events:
        raise NotVerified(f"{len(counts)} of {living} peers hold events, and these: {list(different)[:5]}")


async def _lone(a: FilledNode, sink: Sink, living: int, events: int) -> dict[str, float]:
    """Measure single events: from the request until the last peer has the event."""
    times: list[float] = []
    meter = Meter(a)
    for number in range(LONE):
        begun = now()
        body = Shape().request(range(events + number, events + number + 1), with_ids=False)
        await a.client.call("POST", f"/api/v1/groups/{GROUP}/events", body)
        while _total(counts := await sink.counts()) < living * (events + number + 1):
            if now() - begun > LONGEST_SECONDS:
                raise NotVerified(f"not all peers got event {number}")
            await pause(0.001)
        times.append(now() - begun)
    _check(counts, living, events + LONE)
    cost = meter.cost(LONE * living)
    return {
        "lone_p50_ms": statistics.median(times) * 1000,
        "lone_max_ms": max(times) * 1000,
        "lone_cpu_us": cost.cpu_us,
    }
