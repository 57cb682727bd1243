"""The ordinary deliveries: each event of a node goes to each of its peers."""

from __future__ import annotations

import numpy as np

from eventd.audit.generate.flows import Load, Traffic, last_of, without
from eventd.audit.generate.pseudo_random import Ints, random_of
from eventd.audit.generate.world import Link, SelectionTerms, World


class Routes:
    """Links the nodes, and delivers what each of them emits."""

    def __init__(self, world: World) -> None:
        self.world = world

    def connect(self) -> None:
        """Link the nodes of every group."""
        for group in range(len(self.world.groups)):
            for sender, peer in self.world.pairs:
                link = Link(group, sender, peer, self.terms(sender, peer, group))
                self.world.links.append(link)
                if len(self.world.numbers(sender, group)):
                    self.send(link)

    def terms(self, sender: int, peer: int, group: int) -> tuple[SelectionTerms, ...]:
        """The selections of a link: one, of every event."""
        return (SelectionTerms(self.world.settings.start, {}),)

    def send(self, link: Link) -> Traffic:
        """Deliver the events of a link's sender."""
        world = self.world
        numbers = world.numbers(link.sender, link.group)
        random = random_of(world.settings.seed, "link", link.sender, link.peer, link.group)
        load = self._load(link, numbers)
        self.delay(link, load, numbers, random)
        rows = self.select(link, load, numbers)
        traffic = Traffic(random, base=float(random.lognormal(np.log(15_000), 0.6)))
        if len(rows):
            version = np.searchsorted([terms.since for terms in link.terms], load.ready, "right")
            self.carry(link, rows, load, traffic, version)
        return traffic

    def select(self, link: Link, load: Load, numbers: Ints) -> Ints:
        """The events that the link's terms select."""
        return numbers

    def delay(self, link: Link, load: Load, numbers: Ints, random: np.random.Generator) -> None:
        """Hold batches back while the peer is away."""
        for begin, end in reversed(self.world.outages[link.peer]):
            load.hold_back(numbers, begin, end)
        load.ready = np.maximum.accumulate(load.ready)

    def carry(
        self, link: Link, rows: Ints, load: Load, traffic: Traffic, version: Ints, *, repair: bool = False
    ) -> None:
        """Send the batches of a load."""
        sent, recorded, acked = traffic.carry(load.ready)
        self.world.add(
            group=link.group,
            sender=link.sender,
            source=link.sender,
            peer=link.peer,
            rows=rows,
            held=without(rows, self.world.histories[link.sender].expiring),
            edges=load.edges,
            last=last_of(rows, load.edges),
            sent=sent,
            recorded=recorded,
            acked=acked,
            attempts=load.attempts,
            version=version,
            repair=repair,
        )

    def _load(self, link: Link, numbers: Ints) -> Load:
        """What was committed together is sent together."""
        history = self.world.histories[link.sender]
        commits = np.flatnonzero((history.group == link.group) & (history.at < self.world.settings.end))
        edges = np.append(history.first[commits], numbers[-1] + 1)
        return Load(history.at[commits], edges, np.ones_like(commits))
