"""A minute of the chaos run that `make chaos` runs for an hour: fixed seeds, whose plans are the same every time."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace

import pytest

from tests.chaos.kinds import NODE_FAULTS
from tests.chaos.link_faults import LINK_FAULTS
from tests.chaos.plan import PLAIN, QUIET, Axes, Plan, draw
from tests.chaos.run import run
from tests.support.postgres import PostgresServer
from tests.support.processes import Processes
from tests.support.source import ROOT

PAUSE_SECONDS = 0.5
"""The mean pause of an emitter: the nodes' work for the events of a run is most of what the run costs."""


@pytest.mark.timeout(300)
def test_a_mesh_under_faults_loses_and_doubles_nothing_on_sqlite() -> None:
    """A star of four nodes: one speaks v1, one gets only one type of events. Kills, and writes that fail."""
    axes = replace(PLAIN, only=("kill", "writes fail"))
    assert run(draw(4, database="sqlite", rounds=1, seconds=5, axes=axes), None, pause=PAUSE_SECONDS)


@pytest.mark.postgres
@pytest.mark.timeout(300)
def test_a_mesh_under_faults_loses_and_doubles_nothing_on_postgres(postgres_server: PostgresServer) -> None:
    """A triangle whose events are relayed to a v1 receiver. A restore, a kill, and a node that hangs."""
    axes = replace(PLAIN, only=("restore", "kill", "freeze"))
    assert run(draw(1600, database="postgres", rounds=1, seconds=5, axes=axes), postgres_server, pause=PAUSE_SECONDS)


def test_a_seed_makes_the_same_plan_every_time(processes: Processes) -> None:
    """In every process: the command prints the plan that this one draws."""
    options = ["--plan", "--seed=7", "--database=sqlite", "--rounds=3", "--seconds=8"]
    done = processes.run([sys.executable, "-m", "tests.chaos", *options], env={"PYTHONPATH": str(ROOT)})
    plan, another = ([*draw(seed, database="sqlite", rounds=3, seconds=8, axes=Axes()).lines()] for seed in (7, 8))
    assert done.stdout.splitlines() == plan, done.stderr
    assert plan != another


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_every_kind_of_fault_comes_before_one_comes_again(database: str) -> None:
    axes = Axes(workers=2, standby=True, loads=("derive",))
    seed = next(seed for seed in range(100) if database == "sqlite" or QUIET in _draw(seed, database, axes).pairs)
    plan = _draw(seed, database, axes)
    possible = {kind for kind, fault in NODE_FAULTS.items() if database in fault.databases}
    for kinds in (possible, {*LINK_FAULTS}):
        counts = Counter(dict.fromkeys(kinds, 0))
        for faults in plan.rounds:  # the faults of one are in the order of time, and not as they were drawn
            counts.update(fault.kind for fault in faults if fault.kind in kinds)
            assert max(counts.values()) <= min(counts.values()) + 1
        assert min(counts.values()) > 0


def _draw(seed: int, database: str, axes: Axes) -> Plan:
    return draw(seed, database=database, rounds=6, seconds=12, axes=axes)
