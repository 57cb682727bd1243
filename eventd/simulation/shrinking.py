"""Makes a plan that fails smaller: what is left out of it was not needed for the failure.

Each link, machine and kind has a stream of chance of its own, so that what stays in a plan happens as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from eventd.simulation.load.step import LoadStep
from eventd.simulation.plan import SimulationPlan
from eventd.simulation.run import play

if TYPE_CHECKING:
    from eventd.store.schema.scratch_databases import ScratchDatabases

_T = TypeVar("_T")

MOST_RUNS: Final = 400
"""Maximum number of runs of one search."""
EVENTS: Final = "events"
"""The list in the data of a step that may be halved."""


class PlanShrinker:
    """Searches for a smaller plan. `fails` plays a plan, and says whether it still fails in the same way."""

    def __init__(self, fails: Callable[[SimulationPlan], bool], most: int = MOST_RUNS) -> None:
        self._fails = fails
        self._left = most

    def shrink(self, plan: SimulationPlan) -> SimulationPlan:
        """Return the smallest plan found: without hosts, kinds, faults, steps and events that are not needed."""
        before = None
        while plan != before and self._left:
            before = plan
            for smaller in (_without_kinds, _without_hosts):
                plan = self._first_of(plan, smaller)
            plan = self._halved(plan, plan.faults, lambda kept, plan: replace(plan, faults=kept))
            plan = self._halved(plan, plan.load, lambda kept, plan: replace(plan, load=kept))
            plan = self._with_fewer_events(plan)
        return plan

    def _try(self, plan: SimulationPlan) -> bool:
        if not self._left:
            return False
        self._left -= 1
        return self._fails(plan)

    def _first_of(
        self, plan: SimulationPlan, smaller: Callable[[SimulationPlan], Iterator[SimulationPlan]]
    ) -> SimulationPlan:
        """Take smaller plans as long as one of them fails."""
        while (found := next(filter(self._try, smaller(plan)), None)) is not None:
            plan = found
        return plan

    def _halved(
        self, plan: SimulationPlan, items: list[_T], put: Callable[[list[_T], SimulationPlan], SimulationPlan]
    ) -> SimulationPlan:
        """Leave out halves of a list, then quarters, down to single items."""
        size = len(items)
        while size and items:
            at = 0
            while at < len(items):
                kept = items[:at] + items[at + size :]
                if self._try(put(kept, plan)):
                    items, plan = kept, put(kept, plan)
                else:
                    at += size
            size //= 2
        return plan

    def _with_fewer_events(self, plan: SimulationPlan) -> SimulationPlan:
        for index, step in enumerate(plan.load):
            events = step.data.get(EVENTS)
            while isinstance(events, list) and len(events) > 1:
                half = events[: len(events) // 2]
                smaller = replace(plan, load=_put(plan.load, index, replace(step, data={**step.data, EVENTS: half})))
                if not self._try(smaller):
                    break
                plan, events = smaller, half
        return plan


def _put(steps: Sequence[LoadStep], index: int, step: LoadStep) -> list[LoadStep]:
    return [*steps[:index], step, *steps[index + 1 :]]


def _without_kinds(plan: SimulationPlan) -> Iterator[SimulationPlan]:
    """Yield the plan without each kind of faults and of load."""
    for kind in sorted({fault.kind for fault in plan.faults}):
        yield replace(plan, faults=[fault for fault in plan.faults if fault.kind != kind])
    for kind in sorted({step.kind for step in plan.load}):
        yield replace(plan, load=[step for step in plan.load if step.kind != kind])


def _without_hosts(plan: SimulationPlan) -> Iterator[SimulationPlan]:
    """Yield the plan without each node, with its links, its load and its faults."""
    topology = plan.topology
    for host in topology.nodes if len(topology.nodes) > 2 else ():
        links = [link for link in topology.links if host not in (link.source, link.dest)]
        if not links:
            continue
        nodes = [name for name in topology.nodes if name != host]
        faults = [each for each in plan.faults if host != each.target and host not in each.other.split()]
        load = [step for step in plan.load if host not in (step.host, step.data.get("peer"))]
        yield replace(plan, topology=replace(topology, nodes=nodes, links=links), faults=faults, load=load)


def shrink_failure(
    plan: SimulationPlan,
    invariant: str,
    within: Path | None = None,
    report: Callable[[SimulationPlan], None] = lambda _: None,
    server: ScratchDatabases | None = None,
) -> SimulationPlan:
    """Return the smallest plan found that violates the same invariant; `report` is called with each smaller one."""

    def fails(smaller: SimulationPlan) -> bool:
        found = any(each.invariant == invariant for each in play(smaller, within=within, server=server).violations)
        if found:
            report(smaller)
        return found

    return PlanShrinker(fails).shrink(plan)
