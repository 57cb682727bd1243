"""`routerd-eventd simulate`: its summary, its exit status, and a line for each violation that repeats it."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner, Result

from eventd.cli.program.exits import ExitCode, exit_code
from eventd.cli.routerd_eventd_commands import app
from eventd.cli.simulate import simulate
from eventd.errors import CheckFailed
from tests.support.seeded_bugs import forget_ids


@pytest.fixture(autouse=True)
def any_hash_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not start the tests again with a fixed hash seed."""
    monkeypatch.setattr(simulate, "fix_hash_seed", lambda: None)


def call(*words: str) -> Result:
    return CliRunner().invoke(app, ["simulate", *words])


def test_runs_without_a_violation_end_with_a_summary() -> None:
    done = call("--from", "2", "--seeds", "1")
    assert done.exit_code == ExitCode.OK
    assert done.stdout.startswith("1 runs, 0 with violations, 0 too idle to count; ")


def test_a_violation_is_a_line_with_the_command_that_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_ids(monkeypatch)
    done = call("--from", "2", "--seeds", "1")
    assert isinstance(done.exception, CheckFailed)
    assert exit_code(done.exception) == ExitCode.CHECK_FAILED
    first = done.stderr.splitlines()[0]
    assert first.startswith("seed 2: V5 at ")
    assert first.endswith("; routerd-eventd simulate --seed 2 --trace")


def test_one_seed_shows_its_plan_and_with_trace_each_step() -> None:
    plan = call("--seed", "2").stdout.splitlines()
    trace = call("--seed", "2", "--trace").stdout.splitlines()
    assert plan[0].startswith("seed 2: ")
    assert len(trace) > 1000
    assert set(plan) <= set(trace), "the same plan, and the same verdict with the same sum"


def test_processes_share_the_runs() -> None:
    found = json.loads(call("--from", "2", "--seeds", "2", "--jobs", "2", "-o", "json").stdout)
    assert (found["runs"], found["violations"], sorted(found["sums"])) == (2, [], ["2", "3"])


def test_a_trace_needs_a_seed() -> None:
    done = call("--trace")
    assert done.exit_code == ExitCode.USAGE
    assert "name it with --seed" in done.stderr
