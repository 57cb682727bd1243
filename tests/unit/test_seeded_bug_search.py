"""A search for a seeded bug counts only if each part of it finds the bug."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from eventd.simulation.checks.violation import Violation
from eventd.simulation.plan import SimulationPlan
from eventd.simulation.run import SimulationResult
from tests.reliability import parts
from tests.seeded_bugs import __main__ as command
from tests.seeded_bugs import hunt as hunting
from tests.seeded_bugs.bug import ByModel, BySimulation, ProductBug, Way
from tests.seeded_bugs.link_bugs import count_too_few
from tests.seeded_bugs.plans import with_power_losses
from tests.seeded_bugs.table import TABLE

BUG = TABLE[3]
MODEL = ByModel(("link: a time-out counts as an answer",))


def find_below(most: int, patch: pytest.MonkeyPatch) -> None:
    def violated(bug: ProductBug, way: BySimulation, seed: int, folder: Path | None) -> list[str]:
        return ["V4 b misses an event"] if seed < most else []

    patch.setattr(hunting, "violated", violated)


@pytest.mark.parametrize(("most", "catches"), [(3000, 3), (2000, 0)])
def test_a_bug_that_one_of_the_searches_misses_is_not_found(
    most: int, catches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_below(most, monkeypatch)
    way = BySimulation(("V4",), known=1, most=5)
    [(_, found)] = hunting.hunt(replace(BUG, ways=(way,)), None, known=False)
    assert len(found) == catches


@pytest.mark.parametrize(("most", "status"), [(3000, 0), (1, 1)])
def test_the_search_fails_for_a_way_that_finds_nothing_although_another_finds_the_bug(
    most: int, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_below(most, monkeypatch)
    ways: tuple[Way, ...] = (BySimulation(("V4",), known=1, most=5), MODEL)
    assert search(ways, tmp_path / "found.json", monkeypatch) == status


def test_a_replay_of_known_seeds_writes_no_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_below(3000, monkeypatch)
    file = tmp_path / "found.json"
    ways = (BySimulation(("V4",), known=1),)
    assert search(ways, file, monkeypatch, "--known") == 0
    assert not file.exists()
    assert search(ways, file, monkeypatch) == 0
    assert json.loads(file.read_text())["bugs"][0]["run"]["date"]


def test_the_figures_of_a_search_say_what_its_runs_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_below(3000, monkeypatch)
    file = tmp_path / "found.json"
    way = BySimulation(("V4",), known=1, kinds=("write", "follow"), change=with_power_losses, also=count_too_few)
    assert search((way,), file, monkeypatch) == 0
    row = json.loads(file.read_text())["bugs"][0]
    assert row["searchedWith"] == "write, follow; no faults but power losses; a peer that lies"
    assert f"| simulation | 1 | {row['searchedWith']} |" in "\n".join(parts.seeded_bugs({"bugs": [row]}))


@pytest.mark.parametrize(("invariant", "status"), [("V4", 0), ("V1", 1)])
def test_a_trace_of_a_bug_is_that_of_the_run_that_is_known_to_find_it(
    invariant: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def play(plan: SimulationPlan, write: Callable[[str], None], folder: Path | None) -> SimulationResult:
        write(plan.lines()[0])
        return SimulationResult(plan.seed, [Violation(invariant, "b", "misses an event", 3.0)])

    monkeypatch.setattr(hunting, "trace_plan", play)
    assert command.trace(command.read_options(["--only", "4", "--trace"]), None) == status
    lines = capsys.readouterr().out.splitlines()
    [way] = [way for way in BUG.ways if isinstance(way, BySimulation)]
    assert lines[0].startswith(f"seed {way.known}: ")
    assert lines[1:] == [f"{invariant} at b, 3.000 s: misses an event"]


def search(ways: tuple[Way, ...], file: Path, patch: pytest.MonkeyPatch, *options: str) -> int:
    patch.setattr(command, "TABLE", (replace(BUG, ways=ways),))
    return command.search(command.read_options(["--output", str(file), *options]), None)
