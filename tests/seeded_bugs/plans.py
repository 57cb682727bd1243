"""Faults that some seeded bugs need, as changes of a plan."""

from __future__ import annotations

from dataclasses import replace

from eventd.simulation.faults.fault import Fault, FaultKind
from eventd.simulation.plan import SimulationPlan


def with_power_losses(plan: SimulationPlan) -> SimulationPlan:
    """Return a plan whose machines lose their power again and again, each time at an answer."""
    times = [0.5 + number for number in range(5)]
    nodes = plan.topology.nodes
    losses = [Fault(at, FaultKind.AT_ANSWER, node, 0.1, mode="power", number=3) for at in times for node in nodes]
    return replace(plan, faults=losses)


def with_power_losses_after_failed_syncs(plan: SimulationPlan) -> SimulationPlan:
    """Return a plan in which the disks fail to sync, are sound again, and then the machines lose their power."""
    faults = [Fault(1.0, FaultKind.DISK, node, 0.6, mode="sync") for node in plan.topology.nodes]
    return replace(plan, faults=[*faults, *(Fault(3.0, FaultKind.POWER, node, 0.2) for node in plan.topology.nodes)])


def with_kills_between_jobs(plan: SimulationPlan) -> SimulationPlan:
    """Return a plan whose processes are killed again and again, each time between a job and its answer."""
    kills = [(0.3 + 0.4 * number, 5 + number) for number in range(16)]
    nodes = plan.topology.nodes
    faults = [Fault(at, FaultKind.AT_JOB, node, 0.1, mode="kill", number=job) for at, job in kills for node in nodes]
    return replace(plan, faults=faults)
