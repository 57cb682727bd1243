"""The tools of the tests refuse a name that matches nothing, with what there is, before anything runs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.chaos import __main__ as chaos
from tests.chaos import restores
from tests.chaos.plan import Axes, FaultWithoutTarget, draw
from tests.models import __main__ as models
from tests.mutation import __main__ as mutation
from tests.seeded_bugs import __main__ as seeded_bugs
from tests.support.source import ROOT


@pytest.mark.parametrize(
    ("tool", "arguments", "refused", "known"),
    [
        (seeded_bugs.read_options, ["--only", "99"], "99", "59"),
        (seeded_bugs.read_options, ["--only", "8", "--trace"], "--trace", "28"),
        (seeded_bugs.read_options, ["--only", "28", "--only", "3", "--trace"], "one --only", "28"),
        (seeded_bugs.read_options, ["--trace"], "one --only", "28"),
        (models.main, ["--only", "nonsense"], "nonsense", "wake-ups: 3 records, a poll of the file"),
        (restores.main, ["--only", "nonsense"], "nonsense", "both; idle; command"),
        (restores.main, ["--moments", "0"], "'0'", "from 1 on"),
        (chaos.read_options, ["--only", "kill,nonsense"], "'nonsense'", "plugin killed"),
        (chaos.read_options, ["--loads", "nonsense"], "'nonsense'", "callback"),
        (mutation.read_options, ["--target", "eventd/nonsense=tests/unit"], "'eventd/nonsense'", "eventd/log/core"),
    ],
)
def test_a_name_that_matches_nothing_ends_a_tool_with_status_2_and_what_there_is(
    tool: Callable[[list[str]], Any],
    arguments: list[str],
    refused: str,
    known: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as end:
        tool(arguments)
    told = capsys.readouterr()
    assert end.value.code == 2
    assert refused in told.err
    assert known in told.err
    assert told.out == ""


def test_faults_and_loads_that_exist_are_read_as_they_are_written() -> None:
    options = chaos.read_options(["--only", "kill,disk full", "--loads", "none"])
    assert options.axes == Axes(loads=(), only=("kill", "disk full"))


def test_a_fault_that_no_node_of_a_plan_can_have_is_refused_with_those_that_they_can() -> None:
    with pytest.raises(FaultWithoutTarget, match=r"on sqlite: no node can have database sessions ended.*: kill, "):
        draw(3, database="sqlite", rounds=1, seconds=5, axes=Axes(only=("database sessions ended",)))


@pytest.mark.parametrize(
    ("arguments", "seeds"),
    [((), True), (("ARGS=--report r.json",), True), (("ARGS=--seed 3",), False), (("ARGS=--plan p.json",), False)],
)
def test_make_simulate_adds_a_number_of_seeds_only_to_a_campaign(arguments: Sequence[str], seeds: bool) -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    command = ["make", "--dry-run", "--no-print-directory", "simulate", *arguments]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    [line] = [line for line in told.splitlines() if "routerd-eventd simulate" in line]
    assert ("--seeds 50 --from 1" in line) is seeds
