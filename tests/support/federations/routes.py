"""Deliveries with selections, backfills, retries and relays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from eventd.audit.generate.delivery_simulator import DeliverySimulator
from eventd.audit.generate.flows import DELIVERED, IN_PATH, Flow, LinkTiming, PendingBatches, last_of
from eventd.audit.generate.pseudo_random import Ints, Mask, random_of
from eventd.audit.generate.world import Link, SelectionTerms
from eventd.runtime.clock import SECOND
from federation.selector import Selector
from tests.support.federations.world import FullWorld, alive, types_of

SOME: Final = {"types": ["routerd.bgp.*", "routerd.client.*"]}
"""The selection of a peer that does not receive all events. It includes the most frequent type."""
EVERYTHING: Final[dict[str, Any]] = {}
RELAYED: Final = {"relay": True}
_BACKFILL: Final = 1_000
"""Events in one batch of a backfill."""


class FullDeliverySimulator(DeliverySimulator):
    """The routes of a full world."""

    world: FullWorld

    def __init__(self, world: FullWorld) -> None:
        super().__init__(world)
        self._late: Ints = np.zeros(0, np.int64)

    def connect(self) -> None:
        super().connect()
        for group in range(len(self.world.groups) if self.world.settings.in_path else 0):
            self._relay(group)

    def terms(self, sender: int, peer: int, group: int) -> tuple[SelectionTerms, ...]:
        settings = self.world.settings
        through = settings.in_path and settings.nodes - 1 in (sender, peer)
        if settings.in_path and (sender, peer) == (0, settings.nodes - 1):
            return (SelectionTerms(settings.start, RELAYED),)
        begun = SelectionTerms(settings.start, EVERYTHING)
        if not settings.selectors or through:
            return (begun,)
        middle = settings.start + settings.span // 2
        less = SelectionTerms(settings.start, SOME)
        kinds = ((begun,), (less,), (begun, SelectionTerms(middle, SOME)), (less, SelectionTerms(middle, EVERYTHING)))
        return kinds[(sender + 2 * peer + group) % 4]

    def send(self, link: Link) -> LinkTiming:
        timing, late = super().send(link), self._late
        if len(late):
            steps = np.append(late[::_BACKFILL], late[-1] + 1)
            ready = link.terms[-1].since + 10 * SECOND + 50_000 * np.arange(len(steps) - 1)
            pending = PendingBatches(ready, steps, np.ones_like(ready))
            self.deliver(link, late, pending, timing, np.full_like(ready, 2), repair=True)
        return timing

    def select(self, link: Link, pending: PendingBatches, numbers: Ints) -> Ints:
        """Return the events that the link selects; those that only its latest selection matches are backfilled."""
        rows, self._late = self._selected(link, pending, numbers)
        # Nothing is sent where no event matches: the next range begins where the last one ended.
        full = np.diff(np.searchsorted(rows, pending.edges)) > 0
        pending.edges = np.append(pending.edges[:-1][full], pending.edges[-1])
        pending.ready, pending.attempts = pending.ready[full], pending.attempts[full]
        return rows

    def _selected(self, link: Link, pending: PendingBatches, numbers: Ints) -> tuple[Ints, Ints]:
        none = numbers[:0]
        if len(link.terms) == 1 and not link.terms[0].selection:
            return numbers, none
        emitter = self.world.emitters[link.sender]
        types = types_of(emitter, numbers)
        wanted = [takes(self.world, terms.selection)[types] for terms in link.terms]
        if len(link.terms) == 1:
            return numbers[wanted[0]], none
        begun = numbers < pending.edges[np.searchsorted(pending.ready, link.terms[1].since)]
        late = numbers[begun & ~wanted[0] & wanted[1]]
        return numbers[np.where(begun, *wanted)], late[alive(emitter, late, link.terms[1].since)]

    def delay(self, link: Link, pending: PendingBatches, numbers: Ints, random: np.random.Generator) -> None:
        super().delay(link, pending, numbers, random)
        share, rest = divmod(self.world.settings.retry, len(self.world.pairs) * len(self.world.groups))
        share += len(self.world.links) <= rest
        if share:
            chosen = np.sort(random.choice(len(pending.ready), min(share, len(pending.ready)), replace=False))
            tries = random.integers(1, 4, len(chosen))
            pending.attempts[chosen] += tries
            pending.ready[chosen] += SECOND * tries
            pending.ready = np.maximum.accumulate(pending.ready)

    def _relay(self, group: int) -> None:
        """Let the first node relay all events to the last one, which thereby receives its own events again."""
        world, leaf = self.world, self.world.settings.nodes - 1
        shared = [flow for flow in world.flows if (flow.sender, flow.peer, flow.group) == (0, leaf, group)]
        for feed in [flow for flow in world.flows if flow.peer == 0 and flow.group == group]:
            full = np.diff(np.searchsorted(feed.held, feed.edges)) > 0
            if not full.any():
                continue
            edges = np.append(feed.edges[:-1][full], feed.edges[-1])
            back = feed.source == leaf
            flow = world.add_flow(
                group=group,
                sender=0,
                source=feed.source,
                peer=leaf,
                rows=feed.held,
                held=feed.held[:0] if back else feed.held,
                edges=edges,
                last=last_of(feed.held, edges),
                sent=feed.recorded[full],
                recorded=feed.recorded[full],
                acked=feed.recorded[full],
                attempts=np.ones_like(feed.attempts[full]),
                version=np.ones_like(feed.version[full]),
                feed=feed,
                outcome=IN_PATH if back else DELIVERED,
            )
            shared.append(flow)
        _share_link(shared, LinkTiming(random_of(world.settings.seed, "relay", group)))


def takes(world: FullWorld, selection: dict[str, Any]) -> Mask:
    """Return for each type whether a selection matches it."""
    selector = Selector.of(types=selection.get("types", ()))
    return np.array([selector.takes_type(name) for name in world.types])


def _share_link(flows: Sequence[Flow], timing: LinkTiming) -> None:
    """Schedule several flows on one link, in the order of their `sent`, which says when each batch is ready."""
    ready = np.concatenate([flow.sent for flow in flows])
    order = np.argsort(ready, kind="stable")
    sent, recorded, acked = timing.schedule(ready[order])
    back = np.argsort(order, kind="stable")
    edges = np.cumsum([flow.batches for flow in flows])[:-1]
    parts = (np.split(times[back], edges) for times in (sent, recorded, acked))
    for flow, *times in zip(flows, *parts, strict=True):
        flow.sent, flow.recorded, flow.acked = times
