"""Measures from an event to the effective configuration: `python -m tests.bench.subscriptions [options]`.

`waiting`: many subscriptions over one log hold events in open windows, and one gets single events: milliseconds from
the call that emits an event to its resource in the effective configuration. Its plugin is a running process that takes
less than one of them. `draining`: the node starts with that many events waiting for all subscriptions: seconds until
each has its part. `python`: one subscription with a Python plugin and a long log: events per second that become parts.
Every run verifies that each event was in one successful run, and that each resource exists.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from eventd.api.admin.resources import resources
from eventd.api.framework.operations import Services
from eventd.log.core.values import Draft
from eventd.node.node import Node
from eventd.runtime.chance import SYSTEM
from eventd.runtime.clock import SystemClock
from eventd.settings.loading import load
from eventd.store.engine.database import Database
from eventd.store.engine.statements import fetch
from eventd.store.rows.runs import RunStatus, read_runs
from eventd.store.schema.migrations import upgrade
from federation.event import Event, encode, from_micros
from tests.bench.rounds import run_rounds
from tests.support.declared import declare, group
from tests.support.derived import plugin, subscription

WARM_UP = 10
"""Probes that are not counted: the first one starts the plugin's process."""
CODE = """
from eventd.plugins import Resource

def routes(events):
    for event in events:
        yield Resource("net.routerd.net/v1alpha1", "IPv4Route", "r-" + event.id, spec={"destination": event.subject})
"""


def main() -> None:
    options = _options()

    def one() -> dict[str, float]:
        with tempfile.TemporaryDirectory(prefix="eventd-bench-") as directory:
            return asyncio.run(_measure(Path(directory), options))

    run_rounds(vars(options), options.rounds, one)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.subscriptions")
    parser.add_argument("what", choices=["waiting", "draining", "python"], nargs="?", default="waiting")
    parser.add_argument("--subscriptions", type=int, default=50)
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--probes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


async def _measure(directory: Path, options: argparse.Namespace) -> dict[str, float]:
    sys.setswitchinterval(0.0005)  # as `serve` does
    bench = _Bench(directory, options)
    try:
        return await {"waiting": bench.waiting, "draining": bench.draining, "python": bench.python}[options.what]()
    finally:
        await bench.stop()


class _Bench:
    """One node in this process, with a new database."""

    def __init__(self, directory: Path, options: argparse.Namespace) -> None:
        self.directory = directory
        self.options = options
        self.url = f"sqlite:///{directory / 'eventd.db'}"
        self.env = {"PYTHONPATH": f"{directory}:{Path.cwd()}"}
        self.node: Node | None = None
        (directory / "bench_plugin.py").write_text(CODE)
        told = directory / "bench_plugin-1.0.dist-info"
        told.mkdir()
        (told / "METADATA").write_text("Metadata-Version: 2.1\nName: bench-plugin\nVersion: 1.0\n")
        (told / "entry_points.txt").write_text("[eventd.plugins]\nbench = bench_plugin:routes\n")
        database = Database(self.url)
        database.write_now(upgrade, now=SystemClock().now())
        database.close()

    async def start(self) -> Node:
        settings = load({"database_url": self.url, "api_listen": "127.0.0.1:0"}, {})
        self.node = Node(settings, clock=SystemClock(), chance=SYSTEM)
        await self.node.start()
        return self.node

    async def stop(self) -> None:
        if self.node is not None:
            await self.node.stop()
            self.node = None

    async def declare(self, node: Node, *documents: dict[str, Any]) -> None:
        """Apply resources, and wait until the node runs them."""
        sources = [{"name": "bench", "text": declare(*documents)}]
        await resources.apply(Services(node.log), resources.Apply.model_validate({"sources": sources}))
        await node._take_over_now()

    def plugin(self, name: str) -> dict[str, Any]:
        return plugin(name=name, entryPoint="bench", env=self.env)

    async def fill(self, node: Node, types: list[str], count: int) -> None:
        topic = await node.log.topic("group:edge")
        for first in range(0, count, 1000):
            numbers = range(first, min(count, first + 1000))
            await node.log.append(topic, [_draft(number, types[number % len(types)], node) for number in numbers])

    async def waiting(self) -> dict[str, float]:
        node = await self.start()
        others = [f"t.{number}" for number in range(1, self.options.subscriptions)]
        await self.declare(
            node,
            group("bench"),
            self.plugin("probe"),
            self.plugin("others"),
            subscription("probe", name="probe", plugin="probe"),
            *[
                subscription(type, name=f"s{type[2:]}", plugin="others", trigger={"batchWindow": "10m"})
                for type in others
            ],
        )
        await self.fill(node, others, self.options.events)
        topic = await node.log.topic("group:edge")
        taken: list[float] = []
        for number in range(self.options.probes + WARM_UP):
            begun = time.perf_counter()
            await node.log.append(topic, [_draft(10**9 + number, "probe", node)])
            await _appears(node, f"r-e{10**9 + number}")
            taken.append((time.perf_counter() - begun) * 1000)
            await asyncio.sleep(0.02)
        runs = await node.log.database.read(lambda conn: read_runs(conn, subscription="probe", limit=1000))
        assert len({run.event_ids[0] for run in runs}) == len(taken), "each probe has a run of its own"
        held = await node.log.database.read(lambda conn: fetch(conn, "SELECT count(*) FROM plugin_runs"))
        assert held[0][0] == len(taken), "the others are still gathering"
        warm = taken[WARM_UP:]
        return {"p50_ms": _percentile(warm, 50), "p99_ms": _percentile(warm, 99)}

    async def draining(self) -> dict[str, float]:
        node = await self.start()
        types = [f"t.{number}" for number in range(self.options.subscriptions)]
        await self.declare(node, group("bench"))
        await self.fill(node, types, self.options.events)
        begun = time.perf_counter()
        await self.declare(
            node, self.plugin("all"), *[subscription(type, name=f"s{type[2:]}", plugin="all") for type in types]
        )
        await self._all_derived(node)
        seconds = time.perf_counter() - begun
        return {"seconds": round(seconds, 3), "events_per_second": round(self.options.events / seconds)}

    async def python(self) -> dict[str, float]:
        node = await self.start()
        await self.declare(node, group("bench"))
        await self.fill(node, ["t.0"], self.options.events)
        begun = time.perf_counter()
        await self.declare(node, self.plugin("all"), subscription("t.0", name="s0", plugin="all"))
        await self._all_derived(node)
        seconds = time.perf_counter() - begun
        return {"events_per_second": round(self.options.events / seconds), "seconds": round(seconds, 3)}

    async def _all_derived(self, node: Node) -> None:
        """Wait until every event was in a successful run; each must be in one."""
        sql = "SELECT coalesce(sum(events), 0) FROM plugin_runs WHERE status = 'succeeded'"
        while True:
            found = await node.log.database.read(lambda conn: fetch(conn, sql))
            if found[0][0] >= self.options.events:
                break
            await asyncio.sleep(0.02)
        runs = await node.log.database.read(lambda conn: read_runs(conn, limit=100_000))
        counts = Counter(id for run in runs if run.status is RunStatus.SUCCEEDED for id in run.event_ids)
        assert len(counts) == self.options.events, "each event in a run"
        assert set(counts.values()) == {1}, "in one only"
        snapshot = await node.following.current()
        names = {entry.key.name for entry in snapshot.effective.entries}
        assert sum(name.startswith("r-e") for name in names) == self.options.events, "each resource is there"


def _draft(number: int, type: str, node: Node) -> Draft:
    now = node.log.clock.now()
    event = Event(
        id=f"e{number}",
        group="edge",
        source_node="bench",
        type=type,
        subject=f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}/32",
        dedupe_key=f"e{number}",
        payload={"mac": "aa:bb:cc:dd:ee:ff", "vlan": str(number % 4096)},
        observed_at=from_micros(now),
    )
    return Draft(event.id, "bench", type, None, "", encode(event).decode())


async def _appears(node: Node, name: str) -> None:
    while True:
        snapshot = await node.following.current()
        if any(entry.key.name == name for entry in snapshot.effective.entries):
            return
        await node.following.other_than(snapshot.generation)


def _percentile(values: list[float], percent: int) -> float:
    return round(sorted(values)[min(len(values) - 1, len(values) * percent // 100)], 2)


if __name__ == "__main__":
    main()
