"""Both nodes of a pair are restored from copies of different ages: what that takes is what an operator gets back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eventd.simulation import run
from eventd.simulation.faults.fault import Fault, FaultKind
from eventd.simulation.plan import SimulationPlan, draw_plan
from eventd.simulation.run import play
from eventd.simulation.world.world import SimulatedWorld

SEED = 5
"""A short load at both nodes."""


def plan_with_restores() -> SimulationPlan:
    """Return a plan in which the sender also begins a new epoch, and the receiver has to find out that it is older."""
    faults = [
        Fault(1.0, FaultKind.RESTORE, "a", 0.1, mode="by command", amount=1.0),
        Fault(1.5, FaultKind.RESTORE, "b", 0.2, mode="by hand", amount=2.5),
        Fault(2.5, FaultKind.EPOCH, "a", 0.1),
    ]
    return replace(draw_plan(SEED, ["emit"]), faults=faults)


def test_restores_of_both_nodes_take_nothing_that_an_operator_does_not_get_back(tmp_path: Path) -> None:
    result = play(plan_with_restores(), within=tmp_path)
    assert result.violations == []
    assert result.faults == {FaultKind.RESTORE: 2, FaultKind.EPOCH: 1}


def test_events_that_are_not_given_back_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def pull_nothing(_world: SimulatedWorld) -> None:
        """Leave the events at the peers."""

    monkeypatch.setattr(run, "pull_lost", pull_nothing)
    found = play(plan_with_restores(), within=tmp_path).violations
    assert {violation.invariant for violation in found} == {"V38"}
