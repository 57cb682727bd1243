"""The benchmarks of growth, small: each completes, finds all that it counted, and its results can be drawn."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.bench import growth, growth_costs, growth_groups, growth_peers
from tests.bench.growth_page import NAMES, markdown, picture

SMALL = 600


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little of everything: it is the measurement that is tried, and not the machine."""
    for module, values in (
        (growth_costs, {"WRITTEN": 512, "PAGE": 100, "CALLS": 2, "LOOK_UPS": 5, "LONGEST_SECONDS": 30}),
        (growth_peers, {"DELIVERIES": 300, "LONE": 2}),
        (growth_groups, {"LARGE_EVENTS": 16, "REMOVED": 3000, "KEPT": 500, "BASE_EVENTS": 1024}),
    ):
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """What a run adds to its results."""
    out = folder / "results.jsonl"
    monkeypatch.setattr(sys, "argv", ["growth", *arguments, "--folder", str(folder), "--out", str(out)])
    assert growth.main() == 0
    return [json.loads(line) for line in out.read_text().splitlines()]


@pytest.mark.usefixtures("small")
def test_each_operation_has_a_cost_and_a_log_that_is_not_as_large_as_it_says_has_no_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = run(monkeypatch, tmp_path, "costs", "--sizes", str(SMALL), "--ids", "node", "random")
    assert [(one["events"], one["ids"]) for one in results] == [(SMALL, "node"), (SMALL, "random")]
    for one in results:
        assert one["costs"].keys() == NAMES.keys()
        assert all(cost["cpu_us"] > 0 and cost["wall_us"] > 0 for cost in one["costs"].values())
        assert all(words in markdown([one]) for words in NAMES.values())
    assert "medians of 2 rounds" in markdown([*results, *results])
    ElementTree.fromstring(picture(results))
    monkeypatch.setattr(growth_costs, "LONGEST_SECONDS", 2)
    monkeypatch.setattr(growth_costs, "WRITTEN", 600)  # no whole number of requests: less is written than is counted
    monkeypatch.setattr(sys, "argv", ["growth", "costs", "--folder", str(tmp_path), "--sizes", str(SMALL)])
    assert growth.main() == 1
    assert "the figures are not valid" in capsys.readouterr().err


@pytest.mark.usefixtures("small")
def test_the_dead_among_many_peers_get_nothing_and_all_others_everything(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rounds = run(monkeypatch, tmp_path, "peers", "--peers", "5", "--dead", "2", "--rounds", "2")
    assert [told["figures"]["events"] for told in rounds] == [100, 100]
    assert all(told["figures"]["batches"] >= 3 for told in rounds)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("case", [("groups", "--groups", "3", "--events", "600"), ("bodies",), ("retention",)])
def test_the_other_cases_verify_what_they_count(
    case: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    [told] = run(monkeypatch, tmp_path, *case)
    assert all(value > 0 for value in told["figures"].values())
    assert case[0] in markdown([told])
