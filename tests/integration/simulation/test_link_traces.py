"""What simulated nodes do under faults is a path of the model of a link, so what the model shows holds for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eventd.log.core import commit as commits
from eventd.log.core import writer
from eventd.simulation.plan import SimulationPlan, draw_plan
from eventd.simulation.run import SimulationRun, play
from eventd.simulation.world.life import required_life
from eventd.simulation.world.machine import Machine
from tests.models.recorder import LinkRecorder, replace_function
from tests.models.traces import check_link_trace

SEEDS = (2, 17, 20, 36)  # 20 gives a receipt again; in 36 the receiver asks for its own mark
KINDS = ("kill", "power", "freeze", "wall", "cut", "slow", "slow disk", "new epoch", "restore", "at job", "at answer")
"""The kinds of faults that the model knows: a disk that fails undoes steps that were noted."""
SIDES = {"a": "sender", "b": "receiver"}


def plan_of(seed: int) -> SimulationPlan:
    """Return the plan of a pair of which only `a` emits events."""
    plan = draw_plan(seed)
    assert (plan.topology.shape, plan.topology.speaks_v1) == ("pair", False)
    faults = [fault for fault in plan.faults if fault.kind in KINDS]
    return replace(plan, load=[step for step in plan.load if (step.kind, step.host) == ("emit", "a")], faults=faults)


class SimulatedTrace(LinkRecorder):
    """The trace of the link from `a` to `b` in a run."""

    def __init__(self, patch: pytest.MonkeyPatch, run: SimulationRun) -> None:
        super().__init__(patch, "a", "b")
        self._begun = 0  # where the notes of the present transaction begin
        replace_function(patch, writer, "commit", self._commit)
        replace_function(patch, commits, "begin_anew", self._begin_anew)
        for machine in run.world.machines.values():
            self._watch(machine)

    def _commit(self, inner: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self._begun = len(self.labels)
        done = inner(*args, **options)
        if required_life().host == "a":
            records = sum(block.records for block in done.blocks)
            self.labels[self._begun : self._begun] = [("emit",)] * records
        return done

    def _begin_anew(self, inner: Callable[..., Any], conn: Any) -> None:
        del self.labels[self._begun :]
        inner(conn)

    def _watch(self, machine: Machine) -> None:
        side, change, copy = SIDES[machine.name], machine.on_change, machine.disk.copy
        replaces = False

        def changed(what: str, of: Machine) -> None:
            nonlocal replaces
            change(what, of)
            if what in ("kill", "power"):
                self.note(f"crash the {side}")
            elif what.startswith("restore"):
                replaces = True
                self.note(f"restore the {side}")
            elif what == "epoch" and machine.name == "a" and not replaces:
                self.note("begin a new epoch")
            replaces = replaces and what != "epoch"

        def copied() -> dict[str, bytes]:
            self.note(f"back up the {side}")
            return copy()

        machine.on_change = changed
        machine.disk.copy = copied  # type: ignore[method-assign]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_under_faults_takes_a_path_of_the_model(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces: list[SimulatedTrace] = []
    result = play(plan_of(seed), within=tmp_path, watch=lambda run: traces.append(SimulatedTrace(monkeypatch, run)))
    [trace] = traces
    assert result.violations == []
    assert {"send", "store", "settle"} <= {name for name, *_ in trace.labels}
    assert check_link_trace(trace.text) == "", trace.text
