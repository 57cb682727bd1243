"""`watch`: many watchers of one topic; from the request that writes a record to its arrival at each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from eventd.bench.ingest import CLASSES
from eventd.bench.ledger import differing
from eventd.bench.nodes import pause
from eventd.bench.pouring import LoadRun
from eventd.bench.result import UnverifiedResult
from eventd.bench.site import Site
from eventd.bench.streams import WatcherStream, WriteProgress, mark_of, open_streams
from eventd.bench.targets import TopicTarget
from eventd.bench.wire import HttpConnection, NodeClient, cpu_now, now, percentile, read_answer
from eventd.errors import Unavailable

REST_SECONDS = 0.01
REST_SECONDS_PER_WATCHER = 0.0003
"""Pause before each write: seconds, and seconds per watcher, until all watchers wait again."""
LONGEST = 60.0


class WatchMeasurement:
    """A write is sent when all watchers have received the one before. Each arrival at a watcher counts as one event."""

    name = "watch"
    nodes = 1

    def __init__(self, watchers: int) -> None:
        self._watchers = watchers
        self._writes = WatchedWrites(watchers)
        self._pouring: LoadRun
        self._streams: Sequence[WatcherStream] = ()

    def settings(self, site: Site) -> dict[str, object]:
        """Return further settings to show with the result: the number of watchers, and the topic's durability."""
        return {"watchers": self._watchers, "durability": site.wanted.durability}

    async def prepare(self, site: Site) -> None:
        """Create a topic with one record, and watchers that have read it."""
        (node,) = site.nodes
        target = TopicTarget(site.name, site.wanted.size)
        await node.start()
        await node.declare_topic(site.name, {"durability": CLASSES[site.wanted.durability]})
        self._pouring = LoadRun(node.client, target, site.wanted)
        await node.client.call("POST", target.path, target.batch(self._pouring.ledger.take(0, 1)))
        site.show("opening the streams", 0, 0)
        turn = self._writes.turn = WriteProgress()
        self._streams = await open_streams(node.client, [site.name] * self._watchers, turn, from_seq=0)

    async def measure(self, site: Site) -> UnverifiedResult:
        """Write one record after the other; return how soon each reached every watcher."""
        (node,), wanted, writes = site.nodes, site.wanted, self._writes
        before, cpu, begun = node.cpu_seconds, cpu_now(), now()
        line = await node.client.open(HttpConnection)
        try:
            while now() - begun < wanted.seconds if wanted.seconds else len(writes.last) < wanted.events:
                await writes.one(node.client, line, self._pouring)
                site.show("writing", len(writes.last), wanted.events)
        finally:
            line.close()
        seconds, busy, after = now() - begun, cpu_now() - cpu, node.cpu_seconds
        figures = {"writes": float(len(writes.last)), "last_p50_ms": percentile(writes.last, 50)}
        figures["last_p99_ms"] = percentile(writes.last, 99)
        heard = len(writes.each)
        if before is not None and after is not None:
            figures["node_cpu_us_per_event"] = round((after - before) / heard * 1e6, 2)
        return UnverifiedResult(heard, seconds, writes.each, busy / seconds, heard * wanted.size, figures)

    async def verify(self, site: Site) -> list[str]:
        """Return problems unless the topic holds each write once, in order, and each watcher received the same."""
        (node,) = site.nodes
        found = await self._pouring.read(node.client, site.show, "reading back")
        problems = self._pouring.problems(found)
        return problems + heard_wrongly(self._streams, [one.number for one in found])


class WatchedWrites:
    """Writes one record at a time, and keeps how long the watchers wait.

    `each` has the seconds of every watcher and write, `last` those of the last watcher of every write.
    """

    def __init__(self, watchers: int) -> None:
        self.turn: WriteProgress
        self.each: list[float] = []
        self.last: list[float] = []
        self._watchers = watchers

    async def one(self, client: NodeClient, line: HttpConnection, pouring: LoadRun) -> None:
        """Pause, write one record, wait until all watchers have received it, and note the times."""
        (number,) = numbers = pouring.ledger.take(0, 1)
        asked = client.request("POST", pouring.target.path, pouring.target.batch(numbers))
        await pause(REST_SECONDS + self._watchers * REST_SECONDS_PER_WATCHER)
        received = self.turn.begin(mark_of(number), self._watchers)
        begun = now()
        answered = line.ask(asked)
        try:
            async with asyncio.timeout(LONGEST):
                read_answer(await answered).json()
                await received
        except TimeoutError:
            some = f"{len(self.turn.times)} of {self._watchers} watchers"
            raise Unavailable(
                f"write {number} was not answered and received by all watchers within {LONGEST:g} s: {some} received it"
            ) from None
        self.each += [at - begun for at in self.turn.times]
        self.last.append(max(self.turn.times) - begun)


def heard_wrongly(streams: Sequence[WatcherStream], numbers: Sequence[int | str]) -> list[str]:
    """Close the watchers. Returns a message on each of the first 3 that received wrong records, and one on the rest."""
    problems: list[str] = []
    for at, stream in enumerate(streams, 1):
        stream.close()
        problems += differing(stream.numbers(), numbers, (f"what watcher {at} received", "the topic"))
    return (
        problems
        if len(problems) <= 3
        else [*problems[:3], f"and {len(problems) - 3} more watchers received wrong records"]
    )
