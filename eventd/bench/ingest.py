"""`ingest`: events over the API, in batches on several connections, or one by one through the client library.

Milliseconds are those of a request, or of a single event.
"""

from __future__ import annotations

from dataclasses import replace

from eventd.bench.emitting import EmitRun
from eventd.bench.messages import MessageRun
from eventd.bench.nodes import group_of
from eventd.bench.pouring import LoadRun
from eventd.bench.result import UnverifiedResult
from eventd.bench.site import BenchPlan, Site
from eventd.bench.targets import GroupTarget, Target, TopicTarget
from eventd.bench.wire import NodeClient
from eventd.runtime.clock import SystemClock

CLASSES = {"full": "fsync", "normal": "disk"}
"""The durability class of a topic by the value of `--durability`. Events of a group are always flushed."""


class Ingest:
    """Writes events to a group of one node, or records to a topic."""

    name = "ingest"
    nodes = 1

    def __init__(self, to: str = "group", *, window: int = 0, websocket: bool = True, under_way: int = 0) -> None:
        """`websocket`: with a window, the client sends over one, and not in requests.

        `under_way`: batches go over one as well, so many without an answer; 0: in requests.
        """
        self._to = to
        self._window = window
        self._websocket = websocket
        self._under_way = under_way
        self._pouring: LoadRun | EmitRun

    def settings(self, site: Site) -> dict[str, object]:
        """Return further settings to show with the result: the kind of target, the way, and the durability."""
        found: dict[str, object] = {"to": self._to, "window": self._window, "durability": site.wanted.durability}
        if self._under_way:
            found["under_way"] = self._under_way
        return found if self._websocket else {**found, "requests": True}

    async def prepare(self, site: Site) -> None:
        """Start the node, create the group or topic, and prepare the requests; none if a window is set."""
        (node,) = site.nodes
        wanted = site.wanted
        await node.start()
        if self._to == "topic":
            await node.declare_topic(site.name, {"durability": CLASSES[wanted.durability]})
            self._pouring = pouring(node.client, TopicTarget(site.name, wanted.size), wanted)
            return
        await node.declare(group_of(node, site.name))
        time = SystemClock().now()
        target = GroupTarget(site.name, node.name, site.run, wanted.size, time, named=not self._window)
        if self._window:
            self._pouring = EmitRun(node.client, target, wanted, self._window, self._websocket)
        elif self._under_way:
            self._pouring = MessageRun(node.client, target, replace(wanted, in_flight=1), under_way=self._under_way)
            self._pouring.prepare()
        else:
            self._pouring = pouring(node.client, target, wanted)

    async def measure(self, site: Site) -> UnverifiedResult:
        """Send the load, and return its counts and times."""
        (node,), run = site.nodes, self._pouring
        before = node.cpu_seconds
        load = await run.pour(site.show, "writing")
        after, count = node.cpu_seconds, run.ledger.count
        figures = {} if self._window else {"requests": float(load.calls)}
        figures["client_cpu_us_per_event"] = round(load.busy * load.seconds / count * 1e6, 2)
        if before is not None and after is not None:
            figures["node_cpu"] = round((after - before) / load.seconds, 2)
            figures["node_cpu_us_per_event"] = round((after - before) / count * 1e6, 2)
        size = count * site.wanted.size
        return UnverifiedResult(count, load.seconds, load.latencies, load.busy, size, figures)

    async def verify(self, site: Site) -> list[str]:
        """Read everything back, and return a message for each way in which it differs from what was sent."""
        (node,), run = site.nodes, self._pouring
        found = await run.read(node.client, site.show, "reading back")
        return run.ledger.problems(one.number for one in found)


def pouring(client: NodeClient, target: Target, wanted: BenchPlan) -> LoadRun:
    """Return a run whose requests are prepared, as far as `LoadRun.prepare` does."""
    made = LoadRun(client, target, wanted)
    made.prepare()
    return made
