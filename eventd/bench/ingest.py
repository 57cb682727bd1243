"""`ingest`: batches of events over the API, on several connections; milliseconds are those of a request."""

from __future__ import annotations

from eventd.bench.nodes import group_of
from eventd.bench.pouring import Pouring
from eventd.bench.result import Measured
from eventd.bench.site import Site
from eventd.bench.targets import GroupTarget, Target, TopicTarget
from eventd.clock import SystemClock

CLASSES = {"full": "fsync", "normal": "disk"}
"""What the durability of a measurement is for a topic. Events of a group are always flushed."""


class Ingest:
    """Events poured into a group of one node, or into a topic."""

    name = "ingest"
    nodes = 1

    def __init__(self, to: str = "group") -> None:
        self._to = to
        self._pouring: Pouring

    def settings(self, site: Site) -> dict[str, object]:
        """What was asked for beside what every measurement may be asked for."""
        return {"to": self._to, "durability": site.wanted.durability}

    async def prepare(self, site: Site) -> None:
        """One group or topic, and the requests."""
        (node,) = site.nodes
        wanted = site.wanted
        target: Target
        if self._to == "topic":
            target = TopicTarget(site.name, wanted.size)
            await node.start()
            await node.declare_topic(site.name, {"durability": CLASSES[wanted.durability]})
        else:
            target = GroupTarget(site.name, node.name, site.run, wanted.size, SystemClock().now())
            await node.start()
            await node.declare(group_of(node, site.name))
        self._pouring = Pouring(node.door, target, wanted)
        self._pouring.prepare()

    async def measure(self, site: Site) -> Measured:
        """Pour."""
        (node,), pouring = site.nodes, self._pouring
        before = node.cpu_seconds
        load = await pouring.pour(site.show, "writing")
        after, count = node.cpu_seconds, pouring.ledger.count
        figures = {"requests": float(load.calls)}
        if before is not None and after is not None:
            figures["node_cpu"] = round((after - before) / load.seconds, 2)
            figures["node_cpu_us_per_event"] = round((after - before) / count * 1e6, 2)
        size = count * site.wanted.size
        return Measured(count, load.seconds, load.latencies, load.busy, size, figures)

    async def verify(self, site: Site) -> list[str]:
        """Read all of it back."""
        (node,), pouring = site.nodes, self._pouring
        return pouring.problems(await pouring.read(node.door, site.show, "reading back"))
