"""Faults in the ledgers, as the audit defines them. No event has more than one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from eventd.audit.generate.emitters import make_ghost
from eventd.audit.generate.flows import Flow, without
from eventd.audit.generate.pseudo_random import Ints, random_of
from eventd.audit.generate.settings import MINUTE
from eventd.audit.generate.world import Link, World
from eventd.audit.report.findings import (
    NO_BATCH,
    NO_ORIGIN,
    TO_SOURCE,
    TWO_SENDERS,
    Kind,
)
from eventd.errors import Invalid
from eventd.runtime.clock import SECOND

_ATTEMPTS = 10_000
"""Maximum number of attempts to draw an event that has no fault yet."""
_MOST_NEIGHBOURS = 3
"""Maximum number of adjacent events that are lost together."""


class Fault(NamedTuple):
    """A fault in event `number` of the emitter with index `source`, or, if `number` is None, in `batch` of `flow`.

    `peer` is the receiving node; `nodes` are all nodes whose ledgers tell of the fault.
    """

    kind: Kind
    group: int
    source: int
    peer: int
    number: int | None
    detail: str
    nodes: tuple[int, ...]
    flow: Flow
    batch: int = 0


class Target(NamedTuple):
    """A delivered event, and the index of the batch of `flow` that carried it."""

    flow: Flow
    number: int
    batch: int


class FaultInjector:
    """Injects faults into events that would otherwise be delivered once."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = random_of(world.settings.seed, "faults")
        self.used: set[tuple[int, int]] = set()
        self.unsent: dict[int, set[int]] = {}
        self.unheld: dict[int, set[int]] = {}
        self.links = {(link.sender, link.peer, link.group): link for link in world.links}
        nodes = self.nodes()
        ordinary = [one for one in world.flows if one.sender in nodes and not (one.feed or one.repair)]
        self.flows = [one for one in ordinary if one.peer in nodes]
        self.sent = [one for one in ordinary if one.peer in nodes or one.peer in world.silent]
        self.by_link = {(c.sender, c.peer, c.group): c for c in self.flows}

    def nodes(self) -> set[int]:
        """Return the nodes between which faults are injected."""
        return set(range(self.world.settings.nodes))

    def kinds(self) -> list[tuple[int, Callable[[int], Iterator[Fault]]]]:
        """Return, for each kind, the number of faults, and the function that injects and yields that many."""
        settings = self.world.settings
        return [
            (settings.lose, self._lose),
            (settings.duplicate, self._duplicate),
            (settings.forge, self._forge),
            (settings.loop, self._loop),
        ]

    def inject(self) -> list[Fault]:
        """Inject all faults into the world, and return them. Raises Invalid if there are too few events or links."""
        faults = [fault for count, make in self.kinds() for fault in islice(make(count), count)]
        for flow in self.sent:
            flow.rows = without(flow.rows, self.unsent.get(flow.uid, ()))
            flow.held = without(flow.held, self.unheld.get(flow.uid, ()))
        return faults

    # --- kinds of faults
    # ------------------------------------------------------------------------------------------------

    def _lose(self, count: int) -> Iterator[Fault]:
        """Yield faults for `count` events, each missing at one peer, in runs of up to 3; `inject` drops them."""
        left = count
        while left:
            target = self.pick(among=self.sent)
            for number in self._neighbours(target, min(left, int(self.random.integers(1, _MOST_NEIGHBOURS + 1)))):
                self.unsent.setdefault(target.flow.uid, set()).add(number)
                self.unheld.setdefault(target.flow.uid, set()).add(number)
                yield event_fault(Kind.MISSING, target.flow, number, "")
                left -= 1

    def _neighbours(self, target: Target, most: int) -> Iterator[int]:
        """Yield the number of the target's event, and the numbers of up to `most` - 1 events that directly follow it.

        They are in the same batch and have no fault; the events that follow are marked as used.
        """
        rows = target.flow.rows
        at = int(np.searchsorted(rows, target.number))
        yield target.number
        for number in range(target.number + 1, target.number + most):
            at += 1
            if number not in rows[at : at + 1] or not self.free(target, number):
                return
            self.used.add((target.flow.source, number))
            yield number

    def _duplicate(self, count: int) -> Iterator[Fault]:
        """Send `count` events once more, each in a batch of its own, and yield a fault for each."""
        for _ in range(count):
            target = self.pick(among=self.sent)
            self._send_again(target.flow, target.flow, target, int(target.flow.acked[target.batch]), repair=False)
            yield event_fault(Kind.DUPLICATE, target.flow, target.number, "")

    def _forge(self, count: int) -> Iterator[Fault]:
        for at in range(count):
            target = self.pick()
            yield self._forge_receipt(target) if at % 2 else self._forge_event(target)

    def _forge_event(self, target: Target) -> Fault:
        """Add an event that the peer accepts although its source never emitted it, and return the fault."""
        world, flow = self.world, target.flow
        at = np.array([self.time_after(int(flow.acked[target.batch]))])
        serial = len(world.emitters)
        world.emitters.append(make_ghost(world.settings, world.emitters[flow.source], serial, at, flow.group))
        only = np.zeros(1, np.int64)
        forged = self._add_batch(flow, at + 20_000, source=serial, held=only, number=0, kept=False, repair=True)
        nodes = (flow.sender, flow.peer)
        return Fault(Kind.FORGED, flow.group, serial, flow.peer, 0, NO_ORIGIN, nodes, forged)

    def _forge_receipt(self, target: Target) -> Fault:
        """Add a receipt that the sender holds although the peer never gave it, and return the fault."""
        at = np.array([self.time_after(int(target.flow.acked[target.batch]))])
        batch = self._add_batch(target.flow, at, number=target.number, given=False, probe=True)
        nodes = (batch.sender, batch.peer)
        return Fault(Kind.FORGED, batch.group, batch.source, batch.peer, None, NO_BATCH, nodes, batch)

    def _loop(self, count: int) -> Iterator[Fault]:
        kinds = [
            kind for kind, ways in ((TO_SOURCE, self._back_links()), (TWO_SENDERS, self._onward_links())) if any(ways)
        ]
        if count and not kinds:
            raise Invalid("--loop needs links that form a loop between the nodes", hint="raise --nodes")
        for at in range(count):
            kind = kinds[at % len(kinds)]
            target, over = self._pick_loop(kind)
            begun = int(target.flow.recorded[target.batch])
            if kind == TWO_SENDERS:
                direct = self.by_link[target.flow.sender, over.peer, target.flow.group]
                begun = max(begun, int(direct.acked[direct.batch_of(target.number)]))
            self._send_again(over, target.flow, target, begun, repair=False)
            nodes = (target.flow.source, over.sender, over.peer)
            yield Fault(Kind.LOOP, over.group, target.flow.source, over.peer, target.number, kind, nodes, over)

    def _back_links(self) -> Iterator[bool]:
        """Yield, for each link, whether its peer also sends to its sender."""
        yield from ((peer, sender, group) in self.by_link for sender, peer, group in self.by_link)

    def _onward_links(self) -> Iterator[bool]:
        """Yield, for each link A to B and each link B to C, whether A also sends to C."""
        for sender, peer, group in self.by_link:
            yield from ((sender, one.peer, group) in self.by_link for one in self._flows_from(peer, group))

    def _flows_from(self, node: int, group: int) -> list[Flow]:
        return [one for (sender, _, within), one in self.by_link.items() if (sender, within) == (node, group)]

    def _pick_loop(self, kind: str) -> tuple[Target, Flow]:
        """Return a delivered event, marked as used, and a flow over which it can be sent once more.

        The flow leads from the event's peer back to its source (for TO_SOURCE), or on to another peer of the source.
        """
        for _ in range(_ATTEMPTS):
            target = self.pick(claim=False)
            flow = target.flow
            onward = self._flows_from(flow.peer, flow.group)
            if kind == TO_SOURCE:
                ways = [one for one in onward if one.peer == flow.sender]
            else:
                ways = [one for one in onward if self._sends_to(flow, one.peer, target.number)]
            if ways:
                self.used.add((flow.source, target.number))
                return target, ways[int(self.random.integers(len(ways)))]
        raise Invalid("the ledgers have too few events for these faults", hint="raise --events or --nodes")

    def _sends_to(self, flow: Flow, peer: int, number: int) -> bool:
        """Return whether the flow's sender also sends event `number` to `peer`."""
        direct = self.by_link.get((flow.sender, peer, flow.group))
        return direct is not None and number in direct.rows[np.searchsorted(direct.rows, number) :][:1]

    # --- selection of events
    # --------------------------------------------------------------------------------------------

    def pick(self, *, among: Sequence[Flow] = (), claim: bool = True) -> Target:
        """Return a random delivered event without a fault; `claim` marks it as used.

        It is from `among`, by default from the flows between `nodes()`. Raises Invalid if none is found.
        """
        flows = among or self.flows
        for _ in range(_ATTEMPTS if flows else 0):
            flow = flows[int(self.random.integers(len(flows)))]
            number = int(flow.rows[int(self.random.integers(len(flow.rows)))])
            target = Target(flow, number, flow.batch_of(number))
            if self.free(target, number):
                if claim:
                    self.used.add((flow.source, number))
                return target
        raise Invalid("the ledgers have too few events for these faults", hint="raise --events or --nodes")

    def free(self, target: Target, number: int) -> bool:
        """Return whether an event is in the target's batch and has no fault."""
        return (target.flow.source, number) not in self.used and target.flow.batch_of(number) == target.batch

    def time_after(self, at: int) -> int:
        """Return a random time from a second to a minute after `at` (microseconds)."""
        return at + int(self.random.integers(SECOND, MINUTE))

    def _send_again(self, back: Flow, feed: Flow, target: Target, begun: int, *, repair: bool) -> None:
        """Send the target's event over the link of the flow `back`, whose peer already holds it."""
        only = np.array([target.number])
        again = None if feed is back else feed
        at = np.array([self.time_after(begun)])
        self._add_batch(
            back, at, source=feed.source, rows=only, number=target.number, feed=again, known=1, repair=repair
        )

    def _add_batch(self, like: Flow, at: Ints, *, number: int, source: int | None = None, **parts: object) -> Flow:
        none = np.zeros(0, np.int64)
        link: Link = self.links[like.sender, like.peer, like.group]
        fields = {"rows": none, "held": none} | parts
        return self.world.add_flow(
            group=like.group,
            sender=like.sender,
            source=like.source if source is None else source,
            peer=like.peer,
            edges=np.array([number, number + 1]),
            last=np.array([number]),
            sent=at,
            recorded=at + 20_000,
            acked=at + 31_000,
            attempts=np.ones(1, np.int64),
            version=np.array([link.version_at(int(at[0]))]),
            alone=True,
            **fields,
        )


def event_fault(kind: Kind, flow: Flow, number: int, detail: str) -> Fault:
    """Return a fault of one event of a flow; its `nodes` are the flow's sender and peer."""
    nodes = (flow.sender, flow.peer)
    return Fault(kind, flow.group, flow.source, flow.peer, number, detail, nodes, flow)
