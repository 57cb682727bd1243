"""`federation`: node A is filled while its link to node B is paused; then how fast B catches up.

Milliseconds are those of a batch between the nodes, from sending to the receipt.
"""

from __future__ import annotations

from eventd.bench.ledger import differing
from eventd.bench.links import PATIENCE_SECONDS, join, last_receipt, resume, seconds_of_batches, settle, troubles
from eventd.bench.nodes import OwnNode, group_of
from eventd.bench.pouring import LoadRun, arrive
from eventd.bench.result import UnverifiedResult
from eventd.bench.site import Site
from eventd.bench.targets import GroupTarget
from eventd.runtime.clock import SystemClock


class Federation:
    """Measures events per second at B, from the last poll that finds no event there to the first that finds all."""

    name = "federation"
    nodes = 2

    def __init__(self) -> None:
        self._pouring: LoadRun

    def settings(self, site: Site) -> dict[str, object]:
        """Return an empty dict: the result shows only the common settings."""
        return {}

    async def prepare(self, site: Site) -> None:
        """Fill A while its link to B is paused. If B is a child process, it is started only afterwards."""
        a, b = site.nodes
        target = GroupTarget(site.name, a.name, site.run, site.wanted.size, SystemClock().now())
        await a.start()
        if not isinstance(b, OwnNode):
            await b.start()
            await b.declare(group_of(b, site.name, listens=True))
            await b.listening(site.name)
        await join(a, [b], site.name, paused=True)
        self._pouring = LoadRun(a.client, target, site.wanted)
        await self._pouring.pour(site.show, "filling the first node")
        if isinstance(b, OwnNode):
            await b.start()
            await b.declare(group_of(b, site.name, listens=True))
            await b.listening(site.name)

    async def measure(self, site: Site) -> UnverifiedResult:
        """Resume the link, and time how B catches up; the latencies are those of the batches."""
        a, b = site.nodes
        count = self._pouring.ledger.count
        before = [node.cpu_seconds for node in site.nodes]
        last = await last_receipt(a.client)
        await resume(a, b, site.name)
        came = await arrive(b.client, site.name, count, site.show, "catching up", longest=PATIENCE_SECONDS)
        figures = {}
        for node, cpu, word in zip(site.nodes, before, ("sender", "receiver"), strict=True):
            after = node.cpu_seconds
            if cpu is not None and after is not None:
                figures[f"{word}_cpu_us_per_event"] = round((after - cpu) / count * 1e6, 2)
        await settle(a, site.name, [b])
        batches = await seconds_of_batches(a.client, site.name, last)
        figures["batches"] = float(len(batches))
        return UnverifiedResult(count, came.seconds, batches, came.busy, count * site.wanted.size, figures)

    async def verify(self, site: Site) -> list[str]:
        """Return problems unless A holds what was sent, and B the same in the order of A."""
        a, b = site.nodes
        sent = await self._pouring.read(a.client, site.show, "reading the first node")
        held = await self._pouring.read(b.client, site.show, "reading the second node")
        problems = [f"at the sender {words}" for words in self._pouring.problems(sent)]
        problems += [f"at the receiver {words}" for words in self._pouring.problems(held)]
        problems += await troubles(a, site.name) if problems else []
        if not problems:
            problems += differing(held, sent, ("the receiver", "the sender"))
        return problems
