"""`routers`: one topic with many routers, each to its own topic; copies per second, and the latency of a copy.

First everything is written at once, and the copies are counted until the last is stored. Then single writes go to
an idle node: milliseconds from the write to the arrival of each copy at a watcher.
"""

from __future__ import annotations

from collections.abc import Sequence

from eventd.bench.ingest import CLASSES
from eventd.bench.ledger import differing
from eventd.bench.links import PATIENCE_SECONDS
from eventd.bench.nodes import pause
from eventd.bench.pouring import LoadRun
from eventd.bench.result import UnverifiedResult
from eventd.bench.site import Site
from eventd.bench.streams import WatcherStream, WriteProgress, open_streams
from eventd.bench.targets import TopicTarget
from eventd.bench.watch import WatchedWrites, heard_wrongly
from eventd.bench.wire import HttpConnection, NodeClient, cpu_now, now

ONES = 20
"""The number of single writes."""
PAGE = 1000
LOOK_SECONDS = 0.02


class Routers:
    """Measures the copies of many routers; each copy counts as one event."""

    name = "routers"
    nodes = 1

    def __init__(self, routers: int) -> None:
        self._routers = routers
        self._topics: list[str] = []
        self._pouring: LoadRun
        self._streams: Sequence[WatcherStream] = ()

    def settings(self, site: Site) -> dict[str, object]:
        """Return further settings to show with the result: the number of routers, and the durability of the topics."""
        return {"routers": self._routers, "durability": site.wanted.durability}

    async def prepare(self, site: Site) -> None:
        """Create the source topic and each router with its destination, and prepare the requests."""
        (node,) = site.nodes
        config = {"durability": CLASSES[site.wanted.durability]}
        source = f"{site.name}-source"
        await node.start()
        await node.declare_topic(source, config)
        self._topics = [f"{site.name}-copy-{at}" for at in range(self._routers)]
        for at, topic in enumerate(self._topics):
            site.show("declaring", at, self._routers)
            await node.declare_topic(topic, config)
            await node.client.call("PUT", f"/v0/routers/{topic}", {"source": source, "dest": topic})
        self._pouring = LoadRun(node.client, TopicTarget(source, site.wanted.size), site.wanted)
        self._pouring.prepare()

    async def measure(self, site: Site) -> UnverifiedResult:
        """Measure the copies of many records per second, and then how soon watchers receive those of single ones."""
        (node,), pouring = site.nodes, self._pouring
        before, begun, cpu = node.cpu_seconds, now(), cpu_now()
        await pouring.pour(site.show, "writing")
        written, count = now(), pouring.ledger.count
        await self._all_copied(site, count)
        seconds, busy, after = now() - begun, cpu_now() - cpu, node.cpu_seconds
        copies = count * self._routers
        figures = {"writes": float(count), "after_last_write_ms": round((now() - written) * 1000, 1)}
        if before is not None and after is not None:
            figures["node_cpu_us_per_copy"] = round((after - before) / copies * 1e6, 2)
        each = await self._one_by_one(site, node.client, count)
        return UnverifiedResult(copies, seconds, each, busy / seconds, copies * site.wanted.size, figures)

    async def _all_copied(self, site: Site, count: int) -> None:
        """Wait until the destinations have all copies of `count` records.

        Without a new copy for `PATIENCE_SECONDS` the wait ends: the verification reports what is missing."""
        have, news = 0, now()
        while have < count * self._routers and now() - news < PATIENCE_SECONDS:
            found = await self._copies(site)
            if found > have:
                have, news = found, now()
            site.show("copying", have, count * self._routers)
            await pause(LOOK_SECONDS)

    async def _copies(self, site: Site) -> int:
        found, cursor = 0, ""
        while True:
            path = f"/v0/topics?prefix={site.name}-copy-&page_size={PAGE}&cursor={cursor}"
            page = await site.nodes[0].client.call("GET", path)
            found += sum(int(one["head_seq"]) for one in page["topics"])
            if not (cursor := page.get("next_cursor") or ""):
                return found

    async def _one_by_one(self, site: Site, client: NodeClient, count: int) -> list[float]:
        writes = WatchedWrites(self._routers)
        writes.turn = WriteProgress()
        self._streams = await open_streams(client, self._topics, writes.turn, from_seq=count - 1)
        line = await client.open(HttpConnection)
        try:
            for at in range(ONES):
                await writes.one(client, line, self._pouring)
                site.show("one by one", at, ONES)
        finally:
            line.close()
        return writes.each

    async def verify(self, site: Site) -> list[str]:
        """Return problems unless the source has what was written, each destination the same in the same order, and each
        watcher the last records.
        """
        (node,), pouring = site.nodes, self._pouring
        sent = await pouring.read(node.client, site.show, "reading the source")
        problems = [f"in the source {words}" for words in pouring.problems(sent)]
        for at, topic in enumerate(self._topics):
            site.show("reading the copies", at, self._routers)
            found = [one async for page in TopicTarget(topic, site.wanted.size).read(node.client) for one in page]
            problems += differing(found, sent, (topic, "the source"))
        heard = [one.number for one in sent][-ONES - 1 :]
        return problems + heard_wrongly(self._streams, heard)
