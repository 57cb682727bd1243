"""`fanout`: one node with many peers, some of them dead; how fast each live peer receives the waiting events.

Milliseconds are the times of single batches to the live peers, from sending to the receipt.
"""

from __future__ import annotations

from eventd.bench.children import free_ports
from eventd.bench.ledger import differing
from eventd.bench.links import PATIENCE_SECONDS, links_of, seconds_of_batches, settle
from eventd.bench.nodes import Node, group_of, pause, peer_of
from eventd.bench.pouring import LOOK_SECONDS, LoadRun, held
from eventd.bench.result import UnverifiedResult
from eventd.bench.site import Site
from eventd.bench.targets import GroupTarget
from eventd.bench.wire import cpu_now, now
from eventd.runtime.clock import SystemClock


class Fanout:
    """Fills the first node before it has peers, then declares all peers together."""

    name = "fanout"

    def __init__(self, peers: int, dead: int) -> None:
        self._peers = peers
        self._dead = dead
        self._pouring: LoadRun

    @property
    def nodes(self) -> int:
        """Return the number of nodes: the sender and the live peers."""
        return 1 + self._peers - self._dead

    def settings(self, site: Site) -> dict[str, object]:
        """Return the settings that the result shows in addition to the common ones: the numbers of peers and of dead
        peers."""
        return {"peers": self._peers, "dead": self._dead}

    async def prepare(self, site: Site) -> None:
        """Start the nodes, have the live peers listen, and fill the sender, which has no peers yet."""
        sender, *live = site.nodes
        target = GroupTarget(site.name, sender.name, site.run, site.wanted.size, SystemClock().now())
        await site.start()
        for node in live:
            await node.declare(group_of(node, site.name, listens=True))
            await node.listening(site.name)
        await sender.declare(group_of(sender, site.name))
        self._pouring = LoadRun(sender.client, target, site.wanted)
        await self._pouring.pour(site.show, "filling the sender")

    async def measure(self, site: Site) -> UnverifiedResult:
        """Declare the peers, and time until each live one holds everything; an event counts once for each live peer."""
        sender, *live = site.nodes
        count, before = self._pouring.ledger.count, sender.cpu_seconds
        places = [(node.name, *node.listen) for node in live if node.listen is not None]
        places += [
            (f"dead-{at}", "127.0.0.1", port) for at, port in enumerate(free_ports(self._dead) if self._dead else [])
        ]
        begun, cpu = now(), cpu_now()
        await sender.declare(*[peer_of(site.name, *place) for place in places])
        taken = await self._until_all_have(site, live, begun)
        seconds, busy = now() - begun, cpu_now() - cpu
        await settle(sender, site.name, live)
        batches = await seconds_of_batches(sender.client, site.name, 0)
        rates = [count / one for one in taken]
        figures = {
            "each_events_per_second_least": round(min(rates)),
            "each_events_per_second_most": round(max(rates)),
            "batches": float(len(batches)),
        }
        after = sender.cpu_seconds
        events = count * len(live)
        if before is not None and after is not None:
            figures["sender_cpu_us_per_event_and_peer"] = round((after - before) / events * 1e6, 2)
        return UnverifiedResult(events, seconds, batches, busy / seconds, events * site.wanted.size, figures)

    async def _until_all_have(self, site: Site, live: list[Node], begun: float) -> list[float]:
        """Return the seconds until each live peer held every event; for one that did not, until the wait ended.

        Without progress at any of them for `PATIENCE_SECONDS` the wait ends: the verification reports what is missing.
        """
        count = self._pouring.ledger.count
        taken: dict[str, float] = {}
        have = dict.fromkeys((node.name for node in live), 0)
        news = now()
        while len(taken) < len(live) and now() - news < PATIENCE_SECONDS:
            for node in live:
                if node.name in taken:
                    continue
                found = await held(node.client, site.name)
                if found > have[node.name]:
                    have[node.name], news = found, now()
                if found >= count:
                    taken[node.name] = now() - begun
            site.show("sending to all", sum(have.values()), count * len(live))
            await pause(LOOK_SECONDS)
        return [taken.get(node.name, now() - begun) for node in live]

    async def verify(self, site: Site) -> list[str]:
        """Return problems unless each live peer holds the same as the sender in the same order, and all events wait for
        each dead peer.
        """
        sender, *live = site.nodes
        sent = await self._pouring.read(sender.client, site.show, "reading the sender")
        problems = [f"at the sender {words}" for words in self._pouring.problems(sent)]
        for node in live:
            found = await self._pouring.read(node.client, site.show, f"reading {node.name}")
            words = self._pouring.problems(found) or differing(found, sent, (node.name, "the sender"))
            problems += [f"at {node.name}: {one}" for one in words]
        waiting = await links_of(sender, site.name)
        for name, link in waiting.items():
            if name.startswith("dead-") and link["lagEvents"] != len(sent):
                problems.append(
                    f"{link['lagEvents']} events wait for {name}, which does not listen, instead of all {len(sent)}"
                )
        return problems
