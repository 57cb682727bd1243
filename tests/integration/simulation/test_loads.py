"""Loads beside emits: runs with each of them violate nothing, and bugs in what they use are found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eventd.simulation.faults.fault import Fault, FaultKind
from eventd.simulation.plan import SimulationPlan, draw_plan
from eventd.simulation.run import play
from tests.support.seeded_load_bugs import LOAD_BUGS

SEEDS = {"write": (1, 6), "write follow": (15,), "queue": (5, 14)}
"""Seeds of short runs, by the kinds of load."""
FOUND_BY = {
    "keep_epochs": ("write", 1, "V3"),
    "forget_keys": ("write", 20, "V5"),
    "trust_failed_syncs": ("write", 1, "V3"),
    "end_leases_late": ("queue", 2, "V15"),
    "pass_over_records": ("write follow", 2, "V14"),
}
"""The kinds of load and the seed that find each seeded bug, and the invariant that they must name."""


def with_power_losses(plan: SimulationPlan) -> SimulationPlan:
    """Return a plan whose machines lose their power again and again, each time at an answer."""
    times = [0.5 + number for number in range(5)]
    nodes = plan.topology.nodes
    losses = [Fault(at, FaultKind.AT_ANSWER, node, 0.1, mode="power", number=3) for at in times for node in nodes]
    return replace(plan, faults=losses)


def with_failed_syncs(plan: SimulationPlan) -> SimulationPlan:
    """Return a plan in which the disks fail to sync, are sound again, and then the machines lose their power."""
    faults = [Fault(1.0, FaultKind.DISK, node, 0.6, mode="sync") for node in plan.topology.nodes]
    return replace(plan, faults=[*faults, *(Fault(3.0, FaultKind.POWER, node, 0.2) for node in plan.topology.nodes)])


CHANGED = {"keep_epochs": with_power_losses, "trust_failed_syncs": with_failed_syncs}
"""The faults that a seeded bug needs, if they are not those of its seed."""


@pytest.mark.parametrize("seed", [1, 10])
def test_what_is_acknowledged_after_a_failed_sync_outlives_a_power_loss(seed: int, tmp_path: Path) -> None:
    result = play(with_failed_syncs(draw_plan(seed, ["write"])), within=tmp_path)
    assert result.violations == []
    assert result.power_losses > 0


@pytest.mark.parametrize(("kinds", "seed"), [(kinds, seed) for kinds, seeds in SEEDS.items() for seed in seeds])
def test_a_run_with_a_kind_of_load_violates_nothing(kinds: str, seed: int, tmp_path: Path) -> None:
    result = play(with_power_losses(draw_plan(seed, kinds.split())), within=tmp_path)
    assert result.violations == []
    assert result.power_losses > 0


@pytest.mark.parametrize("bug", LOAD_BUGS)
def test_a_seeded_bug_is_found_by_its_load(bug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds, seed, invariant = FOUND_BY[bug]
    plan = CHANGED.get(bug, lambda unchanged: unchanged)(draw_plan(seed, kinds.split()))
    LOAD_BUGS[bug](monkeypatch)
    assert invariant in {violation.invariant for violation in play(plan, within=tmp_path).violations}
