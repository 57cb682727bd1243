"""The regular deliveries: each event of a node is sent to each of its peers."""

from __future__ import annotations

import numpy as np

from eventd.audit.generate.flows import LinkTiming, PendingBatches, last_of, without
from eventd.audit.generate.pseudo_random import Ints, random_of
from eventd.audit.generate.world import Link, SelectionTerms, World


class DeliverySimulator:
    """Links the nodes and simulates the delivery of their events."""

    def __init__(self, world: World) -> None:
        self.world = world

    def connect(self) -> None:
        """Add the links of every group to the world, and deliver the events over them."""
        for group in range(len(self.world.groups)):
            for sender, peer in self.world.pairs:
                link = Link(group, sender, peer, self.terms(sender, peer, group))
                self.world.links.append(link)
                if len(self.world.numbers(sender, group)):
                    self.send(link)

    def terms(self, sender: int, peer: int, group: int) -> tuple[SelectionTerms, ...]:
        """Return the selections of a link over time: a single one, which selects every event."""
        return (SelectionTerms(self.world.settings.start, {}),)

    def send(self, link: Link) -> LinkTiming:
        """Deliver the sender's events of the link's group to the peer, and return the timing of the link."""
        world = self.world
        numbers = world.numbers(link.sender, link.group)
        random = random_of(world.settings.seed, "link", link.sender, link.peer, link.group)
        pending = self._pending_batches(link, numbers)
        self.delay(link, pending, numbers, random)
        rows = self.select(link, pending, numbers)
        timing = LinkTiming(random, base=float(random.lognormal(np.log(15_000), 0.6)))
        if len(rows):
            version = np.searchsorted([terms.since for terms in link.terms], pending.ready, "right")
            self.deliver(link, rows, pending, timing, version)
        return timing

    def select(self, link: Link, pending: PendingBatches, numbers: Ints) -> Ints:
        """Return the numbers of the events that the link's terms select: all of them."""
        return numbers

    def delay(self, link: Link, pending: PendingBatches, numbers: Ints, random: np.random.Generator) -> None:
        """Merge the pending batches that get ready during an outage of the peer, and make them ready after its end."""
        for begin, end in reversed(self.world.outages[link.peer]):
            pending.hold_back(numbers, begin, end)
        pending.ready = np.maximum.accumulate(pending.ready)

    def deliver(
        self,
        link: Link,
        rows: Ints,
        pending: PendingBatches,
        timing: LinkTiming,
        version: Ints,
        *,
        repair: bool = False,
    ) -> None:
        """Schedule the pending batches, which carry the events `rows`, and add them to the world as a flow."""
        sent, recorded, acked = timing.schedule(pending.ready)
        self.world.add_flow(
            group=link.group,
            sender=link.sender,
            source=link.sender,
            peer=link.peer,
            rows=rows,
            held=without(rows, self.world.emitters[link.sender].expiring),
            edges=pending.edges,
            last=last_of(rows, pending.edges),
            sent=sent,
            recorded=recorded,
            acked=acked,
            attempts=pending.attempts,
            version=version,
            repair=repair,
        )

    def _pending_batches(self, link: Link, numbers: Ints) -> PendingBatches:
        """Return a pending batch for each commit of the sender to the link's group, ready at its time.

        `numbers`: of all events of the sender in the group. Commits after the end of the simulated period are left out.
        """
        emitter = self.world.emitters[link.sender]
        commits = np.flatnonzero((emitter.group == link.group) & (emitter.at < self.world.settings.end))
        edges = np.append(emitter.first[commits], numbers[-1] + 1)
        return PendingBatches(emitter.at[commits], edges, np.ones_like(commits))
