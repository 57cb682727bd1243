"""`latency`: one event at a time, from the request at A that writes the event to its arrival at a watcher at B.

Both times are on the clock of this process, so the nodes' clocks need not agree. Two HTTP transfers are included.
"""

from __future__ import annotations

import asyncio

from eventd.bench.ledger import differing
from eventd.bench.links import PATIENCE_SECONDS, join
from eventd.bench.nodes import group_of, pause
from eventd.bench.pouring import LoadRun, arrive
from eventd.bench.result import UnverifiedResult
from eventd.bench.site import Site
from eventd.bench.streams import WatcherStream, WriteProgress, open_streams
from eventd.bench.targets import GroupTarget
from eventd.bench.wire import HttpConnection, cpu_now, now, percentile, read_answer
from eventd.errors import Unavailable
from eventd.runtime.clock import SystemClock

WARM_UP = 20
"""Events before those that count, to open connections and load code."""
PAUSE_SECONDS = 0.005
"""Seconds between two events, so that a node idles as it does when events are rare."""


class Latency:
    """Measures single events: the latency is that at B's watcher; the time until A's answer is a further figure."""

    name = "latency"
    nodes = 2

    def __init__(self) -> None:
        self._pouring: LoadRun
        self._target: GroupTarget
        self._turn: WriteProgress
        self._stream: WatcherStream

    def settings(self, site: Site) -> dict[str, object]:
        """Return a further setting to show with the result: the pause between two events."""
        return {"pause_ms": PAUSE_SECONDS * 1000}

    async def prepare(self, site: Site) -> None:
        """Create the group on both nodes, a link from A to B, and a watcher at B, and send the uncounted events."""
        a, b = site.nodes
        self._target = GroupTarget(site.name, a.name, site.run, site.wanted.size, SystemClock().now())
        await site.start()
        await b.declare(group_of(b, site.name, listens=True))
        await b.listening(site.name)
        await join(a, [b], site.name)
        self._pouring = LoadRun(a.client, self._target, site.wanted)
        self._turn = WriteProgress()
        line = await a.client.open(HttpConnection)
        try:
            read_answer(await line.ask(self._next())).json()
            await arrive(b.client, site.name, 1, site.show, "the first event", longest=PATIENCE_SECONDS)
            (self._stream,) = await open_streams(b.client, [f"group:{site.name}"], self._turn, from_seq=0)
            for _ in range(WARM_UP):
                await self._one(line)
        finally:
            line.close()

    def _next(self) -> bytes:
        """Return the request for one more event, which counts as sent from now on."""
        numbers = self._pouring.ledger.take(0, 1)
        return self._pouring.client.request("POST", self._target.path, self._target.batch(numbers))

    async def _one(self, line: HttpConnection) -> tuple[float, float]:
        """Write one event. Returns the seconds from the request to A's answer, and to the arrival at B's watcher."""
        number = self._pouring.ledger.count
        asked = self._next()
        await pause(PAUSE_SECONDS)
        received = self._turn.begin(b'"number":"%010d"' % number, 1)
        begun = now()
        answered = line.ask(asked)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                raw = await answered
                acknowledged = now()
                read_answer(raw).json()
                await received
        except TimeoutError:
            raise Unavailable(
                f"event {number} was not acknowledged by the first node and received at the second within"
                f" {PATIENCE_SECONDS:g} s"
            ) from None
        return acknowledged - begun, self._turn.times[0] - begun

    async def measure(self, site: Site) -> UnverifiedResult:
        """Write one event after the other; return how soon each reached the watcher, and A's answer."""
        a = site.nodes[0]
        wanted, taken = site.wanted, list[tuple[float, float]]()
        line = await a.client.open(HttpConnection)
        begun, cpu = now(), cpu_now()
        try:
            while now() - begun < wanted.seconds if wanted.seconds else len(taken) < wanted.events:
                taken.append(await self._one(line))
                site.show("one at a time", len(taken), wanted.events)
        finally:
            line.close()
        seconds, busy = now() - begun, cpu_now() - cpu
        acknowledged = [one for one, _ in taken]
        figures = {
            "acknowledged_p50_ms": percentile(acknowledged, 50),
            "acknowledged_p99_ms": percentile(acknowledged, 99),
        }
        size = len(taken) * wanted.size
        return UnverifiedResult(len(taken), seconds, [heard for _, heard in taken], busy / seconds, size, figures)

    async def verify(self, site: Site) -> list[str]:
        """Return problems unless both nodes hold all events in one order, and the watcher received each once."""
        a, b = site.nodes
        self._stream.close()
        sent = await self._pouring.read(a.client, site.show, "reading the first node")
        held = await self._pouring.read(b.client, site.show, "reading the second node")
        problems = [f"at the receiver {words}" for words in self._pouring.problems(held)]
        problems += differing(held, sent, ("the second node", "the first"))
        numbers = [int(one["data"]["number"]) for batch in self._stream.data_of("record") for one in batch["records"]]
        return problems + differing(
            numbers, [one.number for one in sent], ("what the watcher received", "what was sent")
        )
