"""A minute of the chaos run that `make chaos` runs for an hour: fixed seeds, whose plans are the same every time."""

from __future__ import annotations

import sys

import pytest

from tests.chaos.link_faults import LINK_FAULTS
from tests.chaos.plan import NODE_FAULTS, draw
from tests.support.processes import Processes
from tests.support.source import ROOT

SHORT = {"rounds": 1, "seconds": 5.0}
SEEDS = (("sqlite", 4), ("postgres", 1))


@pytest.mark.parametrize(
    ("database", "seed"),
    [SEEDS[0], pytest.param(*SEEDS[1], marks=pytest.mark.postgres)],
    ids=[database for database, _ in SEEDS],
)
@pytest.mark.timeout(300)
def test_a_mesh_under_faults_loses_and_doubles_nothing(processes: Processes, database: str, seed: int) -> None:
    options = [f"--{name}={value}" for name, value in {**SHORT, "database": database, "seed": seed}.items()]
    command = [sys.executable, "-m", "tests.chaos", *options]
    done = processes.run(command, env={"PYTHONPATH": str(ROOT)}, seconds=280)
    print(done.stdout)  # noqa: T201
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"seed {seed} on {database}: passed" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_seed_makes_the_same_plan_every_time(database: str) -> None:
    first, again = ([*draw(7, database=database, rounds=3, seconds=8).lines()] for _ in range(2))
    assert first == again
    assert first != [*draw(8, database=database, rounds=3, seconds=8).lines()]


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_every_kind_of_fault_comes_before_one_comes_again(database: str) -> None:
    rounds = draw(7, database=database, rounds=3, seconds=12).rounds
    kinds = [fault.kind for faults in rounds for fault in faults]
    assert {*LINK_FAULTS} | {*NODE_FAULTS[database]} <= {*kinds}
