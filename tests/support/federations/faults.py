"""Faults and refusals besides those that users practise on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from eventd.audit.generate.faults import Fault, FaultInjector, Target, event_fault
from eventd.audit.generate.pseudo_random import Mask
from eventd.audit.report.findings import NOT_HELD, NOT_SENT, OTHER_RECEIPT, Kind
from tests.support.federations.routes import takes
from tests.support.federations.world import FullWorld, types_of


class FullFaultInjector(FaultInjector):
    """Plants the faults of a full world."""

    world: FullWorld

    def __init__(self, world: FullWorld) -> None:
        super().__init__(world)
        self._wanted: dict[int, Mask] = {}

    def nodes(self) -> set[int]:
        """Return nodes where a fault counts once: a loss at a relay would count twice, and silent nodes have no
        findings."""
        settings = self.world.settings
        nodes = range(1, settings.nodes - 1) if settings.in_path else range(settings.nodes)
        return set(nodes) - self.world.silent

    def kinds(self) -> list[tuple[int, Callable[[int], Iterator[Fault]]]]:
        settings = self.world.settings
        return [*super().kinds(), (settings.disagree, self._disagree), (settings.dead_letter, self._refuse)]

    def free(self, target: Target, number: int) -> bool:
        """Return whether an event has no fault, does not expire, and was always selected for the peer."""
        flow = target.flow
        emitter = self.world.emitters[flow.source]
        at = np.searchsorted(emitter.expiring, number)
        if number in emitter.expiring[at : at + 1] or not super().free(target, number):
            return False
        if flow.uid not in self._wanted:
            terms = self.links[flow.sender, flow.peer, flow.group].terms
            self._wanted[flow.uid] = np.logical_and.reduce([takes(self.world, one.selection) for one in terms])
        kind = int(types_of(emitter, np.array([number]))[0])
        return bool(self._wanted[flow.uid][kind])

    def _disagree(self, count: int) -> Iterator[Fault]:
        for at in range(count):
            target = self.pick()
            if at % 3 == 2:
                yield self._alter(target)
                continue
            missed, detail = ((self.unheld, NOT_HELD), (self.unsent, NOT_SENT))[at % 3]
            missed.setdefault(target.flow.uid, set()).add(target.number)
            yield event_fault(Kind.DISAGREEMENT, target.flow, target.number, detail)

    def _alter(self, target: Target) -> Fault:
        """Replace a receipt at the sender by one that the peer did not give."""
        flow, batch = target.flow, target.batch
        flow.altered |= {batch}
        low, high = np.searchsorted(flow.rows, flow.edges[batch : batch + 2])
        self.used |= {(flow.source, number) for number in flow.rows[low:high].tolist()}
        nodes = (flow.sender, flow.peer)
        detail = OTHER_RECEIPT
        return Fault(Kind.DISAGREEMENT, flow.group, flow.source, flow.peer, None, detail, nodes, flow, batch)

    def _refuse(self, count: int) -> Iterator[Fault]:
        """Let a peer refuse events for good, which is not a fault."""
        for _ in range(count):
            target = self.pick()
            refused = np.append(target.flow.refused, target.number)
            target.flow.refused = np.sort(refused)
            self.unheld.setdefault(target.flow.uid, set()).add(target.number)
        yield from ()
