"""`subscriptions`: from an event to the effective configuration, through a plugin of a few lines.

First many events wait for all subscriptions, and are processed. Then single events: milliseconds from the request that
writes one to the arrival of its resource at a follower of the effective configuration.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from eventd.bench.links import PATIENCE_SECONDS
from eventd.bench.nodes import API, group_of, pause
from eventd.bench.pouring import LoadRun
from eventd.bench.result import UnverifiedResult
from eventd.bench.site import Site
from eventd.bench.streams import WatcherStream, WriteProgress, open_stream
from eventd.bench.targets import GroupTarget
from eventd.bench.wire import HttpConnection, cpu_now, now, read_answer
from eventd.errors import Unavailable
from eventd.runtime.clock import SystemClock

ONES = 50
"""The number of single events that are measured."""
WARM_UP = 5
PAUSE_SECONDS = 0.01
RUNS = 1000
SHOWN = 3
_NAME = b'"name":"r-bench-'
CODE = """
from eventd.plugins import Resource

def routes(events):
    for event in events:
        yield Resource("net.routerd.net/v1alpha1", "IPv4Route", "r-" + event.id, spec={"destination": event.subject})
"""


class Subscriptions:
    """Measures plugin runs: an event counts when its resource is in the effective configuration."""

    name = "subscriptions"
    nodes = 1

    def __init__(self, subscriptions: int) -> None:
        self._subscriptions = subscriptions
        self._pouring: LoadRun
        self._target: GroupTarget
        self._turn: WriteProgress
        self._stream: WatcherStream

    def settings(self, site: Site) -> dict[str, object]:
        """Return a further setting to show with the result: how many subscriptions share the events."""
        return {"subscriptions": self._subscriptions}

    async def prepare(self, site: Site) -> None:
        """Fill the group's log, and open a follower of the effective configuration."""
        (node,) = site.nodes
        now_ = SystemClock().now()
        types = self._subscriptions
        self._target = GroupTarget(site.name, node.name, site.run, site.wanted.size, now_, types=types)
        await node.start()
        await node.declare(group_of(node, site.name), _plugin(site.folder))
        self._pouring = LoadRun(node.client, self._target, site.wanted)
        await self._pouring.pour(site.show, "filling the log")
        self._turn = WriteProgress()
        self._stream = await open_stream(node.client, "/api/v1/effective/stream", self._turn, b"event: state")
        await self._stream.begun

    async def measure(self, site: Site) -> UnverifiedResult:
        """Subscribe, time until the backlog is processed, and then time single events."""
        (node,), count = site.nodes, self._pouring.ledger.count
        before, begun, cpu = node.cpu_seconds, now(), cpu_now()
        declared = [_subscription(site.name, type) for type in self._target.types]
        await node.declare(*declared)
        await self._all_there(site, count)
        seconds, busy, after = now() - begun, cpu_now() - cpu, node.cpu_seconds
        figures = {}
        if before is not None and after is not None:
            figures["node_cpu_us_per_event"] = round((after - before) / count * 1e6, 2)
        line = await node.client.open(HttpConnection)
        try:
            taken = [await self._one(site, line) for _ in range(ONES + WARM_UP)][WARM_UP:]
        finally:
            line.close()
        return UnverifiedResult(count, seconds, taken, busy / seconds, count * site.wanted.size, figures)

    async def _all_there(self, site: Site, count: int) -> None:
        """Wait until the follower has received `count` resources, or none for `PATIENCE_SECONDS`.

        The verification reports missing ones."""
        have, looked, rest, news = 0, 0, b"", now()
        while have < count and now() - news < PATIENCE_SECONDS:
            window = rest + b"".join(self._stream.received[looked:])
            found, looked = window.count(_NAME), len(self._stream.received)
            rest = window[window.rfind(_NAME) + len(_NAME) :][-len(_NAME) + 1 :] if found else window[-len(_NAME) + 1 :]
            have, news = have + found, now() if found else news
            site.show("deriving", have, count)
            await pause(0.01)

    async def _one(self, site: Site, line: HttpConnection) -> float:
        """Write one event. Returns the seconds from the request until the follower received its resource."""
        (number,) = numbers = self._pouring.ledger.take(0, 1)
        asked = self._pouring.client.request("POST", self._target.path, self._target.batch(numbers))
        await pause(PAUSE_SECONDS)
        received = self._turn.begin(f'"name":"r-{self._target.id_of(number)}"'.encode(), 1)
        begun = now()
        answered = line.ask(asked)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                read_answer(await answered).json()
                await received
        except TimeoutError:
            raise Unavailable(f"no resource was received for event {number} within {PATIENCE_SECONDS:g} s") from None
        site.show("one by one", number, self._pouring.ledger.count)
        return self._turn.times[0] - begun

    async def verify(self, site: Site) -> list[str]:
        """Return problems unless the log has each event, each is in one successful run, and its resource exists."""
        (node,), pouring = site.nodes, self._pouring
        self._stream.close()
        problems = pouring.problems(await pouring.read(node.client, site.show, "reading the log"))
        succeeded: list[int | str] = []
        for type in self._target.types:
            before = 0
            while True:
                path = f"/api/v1/subscriptions/{_name(site.name, type)}/runs?limit={RUNS}&status=succeeded"
                page = await node.client.call("GET", path + (f"&before={before}" if before else ""))
                succeeded += [self._target.number_of(run["eventId"]) for run in page["runs"]]
                if not (before := page["next"] or 0):
                    break
        # The newest run comes first, and events of one page in any order: only presence is checked.
        ordered = sorted(succeeded, key=lambda number: (isinstance(number, str), number))
        problems += [f"in runs {words}" for words in pouring.ledger.problems(ordered)]
        answer = await node.client.call("GET", "/api/v1/effective")
        names = {one["metadata"]["name"] for one in answer["resources"]}
        lacking = [n for n in range(pouring.ledger.count) if f"r-{self._target.id_of(n)}" not in names]
        if lacking:
            some = ", ".join(map(str, lacking[:SHOWN])) + (", …" if len(lacking) > SHOWN else "")
            problems.append(f"the effective configuration lacks the resources of {len(lacking)} events: number {some}")
        return problems


def _plugin(folder: Path) -> dict[str, Any]:
    """Write a package with a Python function, and return the Plugin that finds it through its environment."""
    package = folder / "plugin"
    metadata = package / "bench_plugin-1.0.dist-info"
    metadata.mkdir(parents=True)
    (package / "bench_plugin.py").write_text(CODE)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: bench-plugin\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[eventd.plugins]\nbench = bench_plugin:routes\n")
    spec = {
        "entryPoint": "bench",
        "capabilities": ["propose.dynamicConfig"],
        "timeout": "30s",
        "ttl": "24h",
        "env": {"PYTHONPATH": os.pathsep.join([str(package), *map(os.path.abspath, sys.path)])},
    }
    return {"apiVersion": "plugin.routerd.net/v1alpha1", "kind": "Plugin", "metadata": {"name": "bench"}, "spec": spec}


def _subscription(group: str, type: str) -> dict[str, Any]:
    spec = {"groupRef": group, "match": {"types": [type]}, "trigger": {"pluginRef": "bench"}}
    return {"apiVersion": API, "kind": "EventSubscription", "metadata": {"name": _name(group, type)}, "spec": spec}


def _name(group: str, type: str) -> str:
    return f"{group}-{type.rpartition('.')[2]}"
