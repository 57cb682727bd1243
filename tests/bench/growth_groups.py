"""Measures one node with many groups with a peer each; events of 64 KiB; retention of a million events beside
writers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eventd.bench.nodes import pause
from eventd.bench.pouring import held
from eventd.bench.wire import now, percentile
from tests.bench.growth_costs import LONGEST_SECONDS, NotVerified
from tests.bench.growth_logs import GROUP, A, B, Shape, fill_own
from tests.bench.growth_peers import open_sink
from tests.bench.growth_sites import (
    FilledNode,
    Meter,
    ask_all,
    declare_down,
    group_with,
    node_site,
    peer_with,
    start_all,
)

LINES = 4
LOOK_SECONDS = 0.02
LARGE = 64 << 10
"""Bytes of a large event."""
LARGE_EVENTS = 2000
LARGE_REQUEST = 8
REMOVED = 1_000_000
KEPT = 100_000
BASE_EVENTS = 100_000
"""Events that are written while retention is idle."""
REQUEST = 256
LOAD = LINES * 10 * REQUEST
"""Events that are written before it is looked how many are left."""


async def measure_groups(home: Path, groups: int, events: int) -> dict[str, float]:
    """Measure the delivery of `events` spread over groups with one peer each. Raises `NotVerified`."""
    url, names = f"sqlite:///{home / 'a.db'}", [f"growth-{number:03}" for number in range(groups)]
    with node_site(home, [url], [A]) as (a,), open_sink("growth") as sink:
        await start_all([a])
        begun = now()
        await a.declare(*[group_with(a, name) for name in names], *[peer_with(name, B, sink.port) for name in names])
        declared, meter = now() - begun, Meter(a)
        size, rows = 100, [[] for _ in range(LINES)]  # type: tuple[int, list[list[bytes]]]
        for at in range(events // size):
            body = Shape().request(range(at * size, (at + 1) * size), with_ids=False)
            rows[at % LINES].append(a.client.request("POST", f"/api/v1/groups/{names[at % groups]}/events", body))
        load = await a.client.load(rows)
        counts: dict[str, dict[str, Any]] = {}
        while sum(one["events"] for one in counts.values()) < events and now() - begun < LONGEST_SECONDS:
            await pause(LOOK_SECONDS)
            counts = await sink.counts()
        cost = meter.cost(events)
        wanted = {f"{name}/{B}": len(range(at, events // size, groups)) * size for at, name in enumerate(names)}
        if {name: one["events"] for name, one in counts.items()} != {name: n for name, n in wanted.items() if n}:
            raise NotVerified(f"{len(counts)} of {groups} groups have got events, and not as many as were written")
        _, status = await _calls(a, "/api/v1/status")
        peak = a.peak_mib()
        a.stop()
        begun = now()
        await a.start()
        while (await a.client.ask("GET", "/readyz")).status != 200:
            await pause(LOOK_SECONDS)
        return {
            "declare_s": declared,
            "events_per_second": events / load.seconds,
            "cpu_us": cost.cpu_us,
            "p99_ms": percentile(load.latencies, 99),
            "status_ms": status,
            "start_s": now() - begun,
            "peak_mib": peak,
        }


async def _calls(node: FilledNode, path: str) -> tuple[list[Any], float]:
    """Return the answers of some calls, and the CPU milliseconds of each."""
    meter = Meter(node)
    told = [await node.client.call("GET", path) for _ in range(20)]
    return told, meter.cost(20).cpu_us / 1000


async def measure_bodies(home: Path) -> dict[str, float]:
    """Measure events of 64 KiB: the ingest at A and the delivery to B. Raises `NotVerified`."""
    urls = [f"sqlite:///{home / name}" for name in ("a.db", "b.db")]
    shape = Shape(size=LARGE)
    with node_site(home, urls, [A, B]) as (a, b):
        await start_all([a, b])
        assert b.listen is not None
        await b.declare(group_with(b, GROUP, listens=True))
        await b.listening(GROUP)
        await a.declare(group_with(a, GROUP))
        rows: list[list[bytes]] = [[] for _ in range(LINES)]
        for at, first in enumerate(range(0, LARGE_EVENTS, LARGE_REQUEST)):
            body = shape.request(range(first, first + LARGE_REQUEST), with_ids=False)
            rows[at % LINES].append(a.client.request("POST", f"/api/v1/groups/{GROUP}/events", body))
        meter = Meter(a)
        load = await a.client.load(rows)
        ingest, sender, receiver, begun = meter.cost(LARGE_EVENTS), Meter(a), Meter(b), now()
        await a.declare(peer_with(GROUP, B, b.listen[1]))
        while await held(b.client, GROUP) < LARGE_EVENTS and now() - begun < LONGEST_SECONDS:
            await pause(LOOK_SECONDS)
        seconds, push, receive = now() - begun, sender.cost(LARGE_EVENTS), receiver.cost(LARGE_EVENTS)
        here, there = await _numbers(a, 100), await _numbers(b, 100)
        if here != there or sorted(here) != [*range(LARGE_EVENTS)]:
            raise NotVerified(f"{len(here)} at A and {len(there)} at B, and not the same {LARGE_EVENTS}")
        size = LARGE_EVENTS * LARGE / 1e6
        return {
            "ingest_mb_per_second": size / load.seconds,
            "ingest_p99_ms": percentile(load.latencies, 99),
            "push_mb_per_second": size / seconds,
            "ingest_cpu_us": ingest.cpu_us,
            "push_cpu_us": push.cpu_us,
            "receive_cpu_us": receive.cpu_us,
            "a_peak_mib": a.peak_mib(),
            "b_peak_mib": b.peak_mib(),
        }


async def _numbers(node: FilledNode, limit: int) -> list[int]:
    """Return the numbers of all events of a node, in the order of its log."""
    found: list[int] = []
    after: str | None = ""
    while after is not None:
        page = await node.client.call("GET", f"/api/v1/groups/{GROUP}/events?limit={limit}&after={after}")
        found += [int(event["payload"]["number"]) for event in page["events"]]
        after = page["next"]
    return found


async def measure_retention(home: Path) -> dict[str, float]:
    """Measure the latency of writes while retention removes a million events. Raises `NotVerified`."""
    url = f"sqlite:///{home / 'a.db'}"
    fill_own(url, REMOVED + KEPT, Shape())
    with node_site(home, [url], [A]) as (a,):
        declare_down(url, group_with(a, GROUP, history={"mode": "off"}))
        await start_all([a])
        first = REMOVED + KEPT
        alone = await a.client.load(_rows(a, range(first, first + BASE_EVENTS)))
        first += BASE_EVENTS
        before = (await a.client.call("GET", "/api/v1/status"))["groups"][0]["events"]
        a.stop()
        declare_down(url, group_with(a, GROUP, history={"mode": "off"}, retention={"maxEvents": KEPT}))
        await start_all([a])  # retention runs at the start
        begun = now()
        seconds, latencies, written = 0.0, [], 0  # type: tuple[float, list[float], int]
        while True:  # at least once: a small log may be at its limit already
            load = await a.client.load(_rows(a, range(first, first + LOAD)))
            first, written = first + LOAD, written + LOAD
            seconds, latencies = seconds + load.seconds, latencies + load.latencies
            held = (await a.client.call("GET", "/api/v1/status"))["groups"][0]["events"]
            if held <= KEPT + 2 * LOAD or now() - begun >= LONGEST_SECONDS:
                break
        took = now() - begun
        await ask_all(a, [a.client.request("POST", f"/api/v1/groups/{GROUP}/prune", {})])
        left = (await a.client.call("GET", "/api/v1/status"))["groups"][0]
        if left["events"] != KEPT or left["seq"] != before + written:
            raise NotVerified(f"{left['events']} events are left and not {KEPT}, up to {left['seq']}")
        return {
            "alone_per_second": alone.calls * REQUEST / alone.seconds,
            "alone_p99_ms": percentile(alone.latencies, 99),
            "beside_per_second": written / seconds,
            "beside_p99_ms": percentile(latencies, 99),
            "removed_per_second": (REMOVED + written) / took,
            "peak_mib": a.peak_mib(),
        }


def _rows(a: FilledNode, numbers: range) -> list[list[bytes]]:
    rows: list[list[bytes]] = [[] for _ in range(LINES)]
    for at, first in enumerate(range(numbers.start, numbers.stop, REQUEST)):
        body = Shape().request(range(first, min(first + REQUEST, numbers.stop)), with_ids=False)
        rows[at % LINES].append(a.client.request("POST", f"/api/v1/groups/{GROUP}/events", body))
    return rows
