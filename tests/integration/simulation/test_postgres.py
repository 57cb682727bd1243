"""Nodes on a real Postgres server, on virtual time: nothing is lost when statements, sessions and processes fail."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventd.cli.simulate.postgres import PURPOSE
from eventd.runtime.chance import SYSTEM
from eventd.simulation.faults.fault import LACKING, POSTGRES, SQLITE
from eventd.simulation.plan import draw_plan
from eventd.simulation.run import play
from eventd.store.schema.scratch_databases import ScratchDatabases
from tests.seeded_bugs.bug import planted
from tests.seeded_bugs.log_bugs import commit_without_flushing
from tests.support.postgres import PostgresServer

SEEDS = (2, 22, 23)
"""Short runs of pairs that together have every fault that only Postgres has."""


@pytest.fixture(scope="module")
def url(postgres_server: PostgresServer) -> str:
    return f"postgresql://postgres@127.0.0.1:{postgres_server.port}/postgres"


@pytest.fixture(scope="module")
def databases(url: str) -> Iterator[ScratchDatabases]:
    made = ScratchDatabases(url, PURPOSE, SYSTEM.token(4).hex())
    try:
        made.make_template()
        yield made
    finally:
        made.drop_all()
        made.close()


def test_the_runs_have_every_fault_of_postgres() -> None:
    kinds = {fault.kind for seed in SEEDS for fault in draw_plan(seed, store=POSTGRES).faults}
    assert kinds >= set(LACKING[SQLITE])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_on_postgres_violates_nothing(seed: int, databases: ScratchDatabases, tmp_path: Path) -> None:
    result = play(draw_plan(seed, store=POSTGRES), within=tmp_path, server=databases)
    assert result.violations == []
    assert result.counts
    assert result.acknowledged > 0
    assert result.power_losses >= result.faults.get("power", 0), "also those without a fault of a disk"


def test_commits_that_do_not_wait_for_the_disk_are_found(databases: ScratchDatabases, tmp_path: Path) -> None:
    with planted(commit_without_flushing):
        found = play(draw_plan(SEEDS[0], store=POSTGRES), within=tmp_path, server=databases).violations
    assert {each.invariant for each in found} == {"V3"}
    assert "was acknowledged before it was flushed" in found[0].detail


def test_a_seed_has_the_same_steps_in_two_processes_and_no_database_is_left(
    url: str, postgres_server: PostgresServer
) -> None:
    def sums(*words: str) -> dict[str, str]:
        command = [
            sys.executable,
            "-m",
            "eventd.cli.routerd_eventd",
            "simulate",
            "--postgres",
            url,
            "-o",
            "json",
            *words,
        ]
        found: dict[str, str] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["sums"]
        return found

    with postgres_server.connect(url) as session:
        question = "SELECT datname FROM pg_database ORDER BY datname"
        before = session.execute(question).fetchall()
        assert sums("--from", "22", "--seeds", "2", "--jobs", "2")["23"] == sums("--from", "23", "--seeds", "1")["23"]
        session.commit()
        assert session.execute(question).fetchall() == before
