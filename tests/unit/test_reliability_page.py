"""The page on reliability is what its generator writes, and each guarantee of the README leads to its part of it."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eventd.simulation.campaign import CampaignResult, FoundViolation
from eventd.simulation.checks.branches import RARE
from eventd.simulation.faults.fault import FaultKind
from eventd.simulation.load.kinds import ALWAYS, KINDS
from eventd.simulation.load.step import UNIT
from eventd.simulation.plan import draw_plan
from eventd.simulation.report import CampaignReport, present_origin
from tests.chaos import report as chaos
from tests.fuzz.campaign import FuzzRun, add_run
from tests.fuzz.corpus import CorpusInput
from tests.reliability import parts
from tests.reliability.guarantees import GUARANTEES, Guarantee
from tests.reliability.occasions import OCCASIONS, UNITS
from tests.reliability.page import KEPT, PAGE, build_page, read_kept
from tests.seeded_bugs.__main__ import row_of
from tests.seeded_bugs.bug import ByModel
from tests.seeded_bugs.hunt import Catch
from tests.seeded_bugs.table import TABLE
from tests.support.source import ROOT

README = (ROOT / "README.md").read_text()


def run_git(*arguments: str) -> str:
    """Return what a command of git prints; nothing if it fails, or there is no git."""
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def test_the_page_is_what_the_generator_writes() -> None:
    assert PAGE.read_text() == build_page(read_kept()), "run `python -m tests.reliability`"


@pytest.mark.parametrize("guarantee", GUARANTEES, ids=lambda guarantee: anchor(guarantee.title))
def test_a_guarantee_of_the_readme_leads_to_what_shows_it(guarantee: Guarantee) -> None:
    assert f"[{guarantee.title}](docs/operations/reliability.md#{anchor(guarantee.title)})" in README
    assert f"\n### {guarantee.title}\n" in PAGE.read_text()
    assert [path for path in guarantee.tests if not (ROOT / path).exists()] == []


def test_each_guarantee_of_the_readme_is_on_the_page() -> None:
    guaranteed = README.partition("## What it guarantees\n")[2].partition("\n## ")[0]
    assert len(re.findall(r"^\* \*\*", guaranteed, re.MULTILINE)) == len(GUARANTEES)


def test_each_violation_names_the_commit_that_fixed_it() -> None:
    if run_git("rev-parse", "--is-shallow-repository") != "false\n":
        pytest.skip("test_each_violation_names_the_commit_that_fixed_it needs a clone with the whole history")
    titles = {*run_git("log", "--format=%s").splitlines()}
    violations = json.loads((KEPT / "violations.json").read_text())
    assert [each["fixedBy"] for each in violations if each["fixedBy"] not in titles] == []


@pytest.mark.parametrize(
    ("runs", "violations", "stated"),
    [
        (10_000, [], True),
        (10_000, [FoundViolation(1, "V3", "a", 1.0, "lost")], False),
        (50, [], False),
    ],
)
def test_only_many_runs_without_a_violation_bound_the_chance_of_one(
    runs: int, violations: list[FoundViolation], stated: bool
) -> None:
    result = CampaignResult(runs=runs, counted_runs=runs, violations=violations)
    found = CampaignReport(present_origin(), "0123456789abcdef", ["a machine"], result).to_object()
    assert ("below 3 × 10⁻⁴ at 95 %" in "\n".join(parts.simulation(found, None))) is stated


def campaign(**figures: Any) -> dict[str, Any]:
    result = CampaignResult(seeds=[(1, 40), (99, 99)], runs=41, counted_runs=40, sum="0badcafe", **figures)
    return CampaignReport(present_origin(), "0123456789abcdef", ["a machine"], result).to_object()


def test_an_invariant_of_a_load_or_fault_is_shown_with_how_often_a_campaign_had_it() -> None:
    found = campaign(acknowledged_units={"route": 1700}, faults={"restore": 3, "new epoch": 2}, branches={})
    text = build_page({**read_kept(), "simulation": found})
    routers = text.partition("### A router duplicates no record\n")[2]
    assert routers.startswith(f"\n- [Simulation](#simulation): V12 with 1,700 {UNITS['route']}.\n")
    on_disk, losses = (
        text.partition(f"### {title}\n")[2] for title in ("Acknowledged means on the disk", "A loss is reported")
    )
    assert on_disk.startswith("\n- [Simulation](#simulation): V3 in each of 40 runs that count.\n")
    assert "; V10 with 0 reported gaps and readers of another epoch; V16 with 5 new epochs and restores.\n" in losses
    assert f"| {UNITS['route']} | 1,700 |" in text


def test_the_part_on_the_simulation_names_seeds_and_the_sum_of_the_campaign() -> None:
    text = "\n".join(parts.simulation(campaign(), None))
    assert "Seeds 1 to 40, 99, campaign sum `0badcafe`." in text


def test_occasions_are_what_a_campaign_counts() -> None:
    names = {"faults": {*FaultKind}, "branches": {*RARE}, "acknowledgedUnits": {*UNITS}}
    for occasion in OCCASIONS.values():
        assert {*occasion.names} <= names[occasion.member]
    assert {*OCCASIONS} <= parts.SIMULATED
    load = draw_plan(1, tuple(KINDS)).load
    assert {*UNITS} == {ALWAYS.name, *(step.kind for step in load if UNIT in step.data)}


def test_figures_of_real_processes_name_what_was_skipped_and_what_failed(tmp_path: Path) -> None:
    file = tmp_path / "chaos.json"
    report = chaos.CampaignReport(file)
    report.add("faults", {"kill": 3})
    report.skip({"clock step": "libfaketime is not installed"})
    report.blame(["lost"], command="make chaos SEED=1")
    report.write()
    found = json.loads(file.read_text())
    text = "\n".join(parts.chaos(found, None))
    assert "| kill | 3 |" in text
    assert "Skipped: clock step, because libfaketime is not installed." in text
    assert f"**1 runs with violations.** {parts.ran(found)}" in text


def test_random_walks_are_no_spaces_that_were_left_unfinished() -> None:
    title = "a link: 4 events, 2 crashes, every fault once"
    assert re.search(rf"^\| random walks: {title} \|.*\| a sample \| none \|$", PAGE.read_text(), re.MULTILINE)


def test_inputs_of_the_fuzzer_are_shown_with_their_run_and_others_as_of_no_known_one() -> None:
    before = {"inputs": 700, "edges": 24, "seconds": 9, "corpus": 1, "findings": []}
    text = "\n".join(parts.fuzzing({"ranges": before}))
    assert "- 700 inputs: no date, commit or machine is recorded." in text
    found = add_run(before, FuzzRun("ranges", 300, 20, 4.2), [CorpusInput(b"1")])
    assert (found["inputs"], found["edges"]) == (1000, 24)
    text = "\n".join(parts.fuzzing({"ranges": found, "paths": add_run(None, FuzzRun("paths", 50, 8, 1.0), [])}))
    assert f"- 350 inputs: {parts.ran({'run': found['runs'][0]})}\n- 700 inputs: no date, commit" in text


def test_a_bug_that_stands_is_shown_with_the_reason() -> None:
    bug = replace(TABLE[0], ways=(), stands="the product looks twice")
    text = "\n".join(parts.seeded_bugs({"bugs": [row_of(bug, [])]}))
    assert "| stands: the product looks twice |" in text
    assert "0 of 1 are found in the product, 0 in a model only." in text


def test_a_bug_of_a_model_does_not_count_as_found_in_the_product() -> None:
    rows = [
        row_of(TABLE[0], [Catch("model", "V8", "5 states", states=5)]),
        row_of(TABLE[1], [Catch("test", "V4", "t")]),
    ]
    text = "\n".join(parts.seeded_bugs({"bugs": rows}))
    assert "| model only |" in text
    assert "1 of 2 are found in the product, 1 in a model only." in text


def test_each_row_of_the_seeded_bugs_names_its_own_run() -> None:
    rows = [row_of(bug, []) for bug in TABLE[:2]]
    rows[1]["run"] = rows[1]["run"] | {"commit": "0123456789"}
    text = "\n".join(parts.seeded_bugs({"bugs": rows}))
    assert re.findall(r"^- (\d+): .*commit (\S+),", text, re.MULTILINE) == [
        ("1", rows[0]["run"]["commit"]),
        ("2", "0123456789"),
    ]


def test_each_bug_that_breaks_a_guarantee_is_named_by_one_of_its_invariants() -> None:
    bugs = {bug.number: bug for bug in TABLE}
    for guarantee in GUARANTEES:
        for number in guarantee.bugs:
            ways = [way for way in bugs[number].ways if not isinstance(way, ByModel)]
            names = {name for way in ways for name in way.invariants} & parts.SIMULATED
            assert not names or names & {*guarantee.invariants}, f"{guarantee.title}: {number}"


def test_a_guarantee_without_checks_says_so() -> None:
    alone = PAGE.read_text().partition("### No peer delays another\n")[2].partition("###")[0]
    assert "- No check of the simulation, no model and no seeded bug is about it.\n" in alone
