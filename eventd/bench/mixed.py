"""`mixed`: events are written to A and sent to B, while records are written to a topic at A that has watchers.

Milliseconds are those of a request with events; how long the watchers wait is among the further figures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from eventd.bench.ledger import differing
from eventd.bench.links import PATIENCE_SECONDS, join
from eventd.bench.nodes import group_of
from eventd.bench.pouring import LoadRun, arrive
from eventd.bench.result import Show, UnverifiedResult
from eventd.bench.site import Site
from eventd.bench.streams import WatcherStream, WriteProgress, open_streams
from eventd.bench.targets import GroupTarget, TopicTarget
from eventd.bench.watch import WatchedWrites, heard_wrongly
from eventd.bench.wire import HttpConnection, LoadResult, now, percentile
from eventd.runtime.clock import SystemClock
from eventd.runtime.supervisor import Supervisor


class Mixed:
    """Measures events of a group over a link from A to B, together with writes to a watched topic at A.

    The events written to A count, and the time lasts until all are at B.
    """

    name = "mixed"
    nodes = 2

    def __init__(self, watchers: int) -> None:
        self._watchers = watchers
        self._writes = WatchedWrites(watchers)
        self._pouring: LoadRun
        self._pulse: LoadRun
        self._streams: Sequence[WatcherStream] = ()
        self._is_over = False

    def settings(self, site: Site) -> dict[str, object]:
        """Return a further setting to show with the result: the number of watchers of the topic."""
        return {"watchers": self._watchers}

    async def prepare(self, site: Site) -> None:
        """Create the group with a link from A to B, and a topic at A with its watchers."""
        a, b = site.nodes
        wanted = site.wanted
        target = GroupTarget(site.name, a.name, site.run, wanted.size, SystemClock().now())
        await site.start()
        await b.declare(group_of(b, site.name, listens=True))
        await b.listening(site.name)
        await join(a, [b], site.name)
        await a.declare_topic(site.name, {"durability": "fsync"})
        self._pouring = LoadRun(a.client, target, wanted)
        self._pulse = LoadRun(a.client, TopicTarget(site.name, wanted.size), wanted)
        await a.client.call("POST", self._pulse.target.path, self._pulse.target.batch(self._pulse.ledger.take(0, 1)))
        turn = self._writes.turn = WriteProgress()
        self._streams = await open_streams(a.client, [site.name] * self._watchers, turn, from_seq=0)

    async def measure(self, site: Site) -> UnverifiedResult:
        """Write until the plan is done, then wait for the events in flight to B."""
        supervisor, (_, b) = Supervisor(SystemClock()), site.nodes
        begun = now()
        try:
            beat = supervisor.spawn(self._beat(site), "pulse", expects=Exception)
            load = await self._pour(site.show, beat)
            poured = now()
            self._is_over = True
            await beat
            count = self._pouring.ledger.count
            await arrive(b.client, site.name, count, site.show, "catching up", longest=PATIENCE_SECONDS)
        finally:
            await supervisor.stop()
        seconds = now() - begun
        figures = {
            "ingest_events_per_second": round(count / load.seconds),
            "behind_at_the_end_seconds": round(now() - poured, 3),
            "watched_writes": float(len(self._writes.last)),
            "watch_p50_ms": percentile(self._writes.each, 50),
            "watch_p99_ms": percentile(self._writes.each, 99),
        }
        return UnverifiedResult(count, seconds, load.latencies, load.busy, count * site.wanted.size, figures)

    async def _pour(self, show: Show, beat: asyncio.Task[None]) -> LoadResult:
        """Send the events to A. Raises the error of `beat`, the writes to the topic, at the next report of progress."""

        def progress(words: str, done: int, of: int) -> None:
            show(words, done, of)
            if beat.done():
                beat.result()

        return await self._pouring.pour(progress, "all at once")

    async def _beat(self, site: Site) -> None:
        """Write to the topic, one record after the other, until the events are written."""
        client = site.nodes[0].client
        line = await client.open(HttpConnection)
        try:
            while not self._is_over:
                await self._writes.one(client, line, self._pulse)
        finally:
            line.close()

    async def verify(self, site: Site) -> list[str]:
        """Return problems unless A and B hold all sent events in one order, and topic and watchers all records once."""
        a, b = site.nodes
        sent = await self._pouring.read(a.client, site.show, "reading the first node")
        held = await self._pouring.read(b.client, site.show, "reading the second node")
        problems = [f"at the sender {words}" for words in self._pouring.problems(sent)]
        problems += [f"at the receiver {words}" for words in self._pouring.problems(held)]
        problems += [] if problems else differing(held, sent, ("the second node", "the first"))
        beats = await self._pulse.read(a.client, site.show, "reading the topic")
        problems += [f"in the topic {words}" for words in self._pulse.problems(beats)]
        return problems + heard_wrongly(self._streams, [one.number for one in beats])
