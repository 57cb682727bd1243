"""`stream`: records over QUIC, from the publish to the delivery at each subscriber.

With one record at a time, a record is published when all subscribers have the previous one: milliseconds then measure
only the passage through the node. Otherwise they include the time in queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from eventd.bench.ledger import differing
from eventd.bench.quic_site import NAMESPACE, TENANT, QuicNode, QuicTimes
from eventd.bench.result import UnverifiedResult
from eventd.bench.site import Site
from eventd.bench.stream_load import Deliveries, StreamLoad, StreamReader
from eventd.bench.wire import nothing_sent, now, percentile
from eventd.errors import EventdError, Unavailable
from eventd.runtime.clock import SystemClock
from eventd.runtime.supervisor import Supervisor
from eventd.streams.names import StreamName

if TYPE_CHECKING:
    from eventd.client import StreamClient

WARM_UP: Final = 200
"""Records that are published before those that are measured."""


@dataclass(frozen=True, slots=True)
class StreamShape:
    """How the load is spread: streams, subscribers of each, batches that a publisher has under way, answers.

    A batch is under way until it is answered; without answers, until it is delivered.
    """

    streams: int = 1
    fanout: int = 1
    window: int = 1
    answered: bool = True
    durability: str = "fsync"


@dataclass(slots=True)
class _Publisher:
    """A publisher with a connection of its own: where it publishes, and the seconds until each answer."""

    line: int
    client: StreamClient
    load: StreamLoad
    answers: list[float] = field(default_factory=list)
    last: list[float] = field(default_factory=list)
    """With one record at a time: for each record, the seconds until the last subscriber had it."""


class StreamMeasurement:
    """Publishers and subscribers, each with a connection of its own. A delivery to a subscriber counts as one event."""

    name = "stream"
    nodes = 1

    def __init__(self, shape: StreamShape) -> None:
        self._shape = shape
        self._deliveries = Deliveries()
        self._loads: Sequence[StreamLoad] = ()
        self._readers: list[list[StreamReader]] = []
        self._publishers: list[_Publisher] = []
        self._stack = AsyncExitStack()
        self._supervisor: Supervisor
        self._node: QuicNode

    def settings(self, site: Site) -> dict[str, object]:
        """Return the settings that the result shows in addition to the common ones."""
        shape = self._shape
        ack = "batch" if shape.answered else "none"
        about = {"streams": shape.streams, "fanout": shape.fanout, "window": shape.window}
        return {**about, "ack": ack, "durability": shape.durability}

    async def prepare(self, site: Site) -> None:
        """Start the node, create the streams, and connect publishers and subscribers."""
        (node,) = site.nodes
        self._node = QuicNode(node)
        await node.start()
        names = [StreamName(TENANT, NAMESPACE, f"{site.name}-{at}") for at in range(self._shape.streams)]
        for name in names:
            await node.declare_topic(name.topic, {"durability": self._shape.durability})
        self._loads = [StreamLoad(name.stream, site.wanted.size) for name in names]
        self._supervisor = Supervisor(SystemClock())
        self._stack.push_async_callback(self._supervisor.stop)
        try:
            for _ in range(self._shape.fanout):
                self._readers.append(await self._subscriber())
            window = self._shape.window * site.wanted.batch
            for line in range(site.wanted.in_flight):
                client = await self._stack.enter_async_context(
                    self._node.client(connections=1, publish_streams=1, window=window)
                )
                self._publishers.append(_Publisher(line, client, self._loads[line % len(self._loads)]))
            await self._publish_all(site, WARM_UP, "warming up")
        except BaseException:
            await self._abandon()
            raise

    async def _subscriber(self) -> list[StreamReader]:
        """Connect a subscriber of all streams."""
        client = await self._stack.enter_async_context(self._node.client(connections=1))
        readers = []
        for load in self._loads:
            subscription = await self._stack.enter_async_context(client.subscribe(_path(load)))
            reader = StreamReader(load, self._deliveries)
            self._supervisor.spawn(reader.run(subscription), f"subscriber of {load.name}")
            readers.append(reader)
        return readers

    async def measure(self, site: Site) -> UnverifiedResult:
        """Publish, and wait until all subscribers have everything."""
        deliveries, size = self._deliveries, site.wanted.size
        for publisher in self._publishers:
            publisher.answers.clear()
            publisher.last.clear()
        before, deliveries.is_timed = deliveries.count, True
        times = QuicTimes(self._node.node)
        try:
            published = await self._publish_all(site, site.wanted.events, "publishing", site.wanted.seconds)
        except BaseException:
            await self._abandon()
            raise
        if not published:
            raise nothing_sent()
        answers = [seconds for publisher in self._publishers for seconds in publisher.answers]
        figures = {"published": float(published)}
        if answers:
            figures |= {"answer_p50_ms": percentile(answers, 50), "answer_p99_ms": percentile(answers, 99)}
        if self._shape.fanout > 1 and (
            last := [seconds for publisher in self._publishers for seconds in publisher.last]
        ):
            figures |= {"last_p50_ms": percentile(last, 50), "last_p99_ms": percentile(last, 99)}
        return times.result(
            deliveries.count - before, size, deliveries.latencies, figures, until=deliveries.last or now()
        )

    async def _abandon(self) -> None:
        await self._supervisor.stop()
        await self._stack.aclose()

    async def _publish_all(self, site: Site, count: int, what: str, seconds: float = 0.0) -> int:
        """Publish `count` records, or for the given seconds, and wait for the deliveries.

        Returns the number of records published.
        """
        before, deadline = self._published, now() + seconds if seconds else 0.0
        at_a_time = self._shape.window if self._shape.answered else 1
        lines = [publisher for publisher in self._publishers for _ in range(at_a_time)]
        tasks = [
            self._supervisor.spawn(
                self._publish(site, publisher, before + count, deadline, what), "publisher", expects=EventdError
            )
            for publisher in lines
        ]
        for task in tasks:
            await task
        await self._deliveries.reach(self._published * self._shape.fanout)
        return self._published - before

    @property
    def _published(self) -> int:
        return sum(load.ledger.count for load in self._loads)

    async def _publish(self, site: Site, publisher: _Publisher, until: int, deadline: float, what: str) -> None:
        """Publish batches one after the other, until the given number of records is published, or until the
        deadline."""
        load, batch, fanout = publisher.load, site.wanted.batch, self._shape.fanout
        under_way = batch * site.wanted.in_flight * self._shape.window
        is_alone = under_way == 1
        while now() < deadline if deadline else self._published < until:
            count = batch if deadline else min(batch, until - self._published)
            payloads = load.make(load.ledger.take(publisher.line, count))
            begun = now()
            await publisher.client.publish_batch(_path(load), payloads, ack=self._shape.answered)
            if self._shape.answered:
                publisher.answers.append(now() - begun)
            wanted = 0 if self._shape.answered else self._published - under_way
            if not await self._deliveries.reach((self._published if is_alone else wanted) * fanout):
                raise Unavailable(f"{self._missing:,} records did not arrive")
            if is_alone:
                publisher.last.append(max(self._deliveries.latencies[-fanout:], default=0.0))
            site.show(what, self._published, 0 if deadline else until)

    @property
    def _missing(self) -> int:
        return self._published * self._shape.fanout - self._deliveries.count

    async def verify(self, site: Site) -> list[str]:
        """Return problems unless each subscriber has received each record once, in the order of the log."""
        (node,) = site.nodes
        await self._stack.aclose()
        problems: list[str] = []
        for at, load in enumerate(self._loads):
            name = StreamName(TENANT, NAMESPACE, load.name)
            stored = (await node.client.call("GET", f"/v0/topics/{name.topic}"))["count"]
            if stored != load.ledger.count:
                problems.append(f"stream {load.name} holds {stored:,} records of {load.ledger.count:,}")
            first = self._readers[0][at]
            problems += first.problems + load.ledger.problems(first.numbers)
            for number, readers in enumerate(self._readers[1:], 2):
                what = f"what subscriber {number} of {load.name} received", "what the first one did"
                problems += readers[at].problems + differing(readers[at].numbers, first.numbers, what)
        return problems


def _path(load: StreamLoad) -> str:
    return f"{NAMESPACE}/{load.name}"
