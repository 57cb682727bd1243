"""A campaign adds up its runs, says why it failed, and continues from its file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from eventd.errors import Conflict, Invalid
from eventd.simulation import report
from eventd.simulation.campaign import RARE_RUNS, CampaignResult, result_from_json, result_to_json
from eventd.simulation.checks.violation import Violation
from eventd.simulation.report import CampaignOrigin, CampaignReport, code_folders, digest_of
from eventd.simulation.run import SimulationResult
from eventd.store.schema.migrations import NEWEST, SQLITE_SCHEMA

ORIGIN = CampaignOrigin("0.1.0", "abc", "CPython 3.11.7", "3.40.1")


@pytest.fixture(autouse=True)
def origin(monkeypatch: pytest.MonkeyPatch) -> Callable[[CampaignOrigin], None]:
    """Let the present origin be `ORIGIN`, or the one that is passed to this function."""

    def put(present: CampaignOrigin) -> None:
        monkeypatch.setattr(report, "present_origin", lambda: present)

    put(ORIGIN)
    return put


def run_of(
    seed: int, *, idle: bool = False, violations: tuple[Violation, ...] = (), rewinds: int = 0
) -> SimulationResult:
    found = SimulationResult(seed, list(violations), acknowledged=10, units=4, units_acknowledged=0 if idle else 4)
    found.delivered, found.batches, found.shape, found.cpu_seconds = 1, 3, "pair", 0.5
    found.faults, found.pairs, found.branches = {"kill": 2, "wall": 1}, ["kill + wall"], {"rewind": rewinds}
    found.work = {"emit": (4, found.units_acknowledged)}
    found.sum = 1000 + seed
    return found


def campaign(*runs: SimulationResult) -> CampaignResult:
    found = CampaignResult()
    for each in runs:
        found.add(each)
    return found


def test_runs_are_added_up() -> None:
    found = campaign(run_of(1), run_of(2, rewinds=1), run_of(3, idle=True)).to_object()
    assert (found["seeds"], found["runs"], found["countedRuns"], found["idleRuns"]) == ([(1, 3)], 3, 2, 1)
    assert (found["acknowledgedEvents"], found["batches"], found["shapes"]) == (30, 9, {"pair": 3})
    assert (found["faults"], found["branches"]) == ({"kill": 6, "wall": 3}, {"rewind": 1})
    assert found["faultPairs"]["kill + wall"] == 3
    assert found["faultPairs"]["clock + kill"] == 0
    assert found["cpuMinutes"] == pytest.approx(0.025)


def test_seeds_are_ranges_and_the_sum_does_not_depend_on_their_order() -> None:
    runs = [run_of(seed) for seed in (5, 1, 2, 7, 3, 6)]
    found, other = campaign(*runs), campaign(*reversed(runs))
    assert found.seeds == other.seeds == [(1, 3), (5, 7)]
    assert found.sum == other.sum != campaign(*runs[1:]).sum
    assert [seed for seed in range(9) if not found.has(seed)] == [0, 4, 8]


def test_a_violation_fails_a_campaign() -> None:
    found = campaign(
        run_of(1), run_of(2, violations=(Violation("V3", "a", "lost", 1.0), Violation("V4", "b", "", 2.0)))
    )
    assert found.failure == "1 of 2 runs failed"
    assert [(each.seed, each.invariant, each.node) for each in found.violations] == [(2, "V3", "a"), (2, "V4", "b")]


def test_runs_that_are_all_idle_fail_a_campaign() -> None:
    assert "too idle to count" in campaign(run_of(1, idle=True)).failure
    assert campaign(run_of(1, idle=True), run_of(2)).failure == ""


def test_a_branch_that_was_never_taken_fails_a_long_campaign() -> None:
    found = campaign(*map(run_of, range(RARE_RUNS - 1)))
    assert found.failure == ""
    found.add(run_of(RARE_RUNS))
    assert found.failure == f"{RARE_RUNS} runs have never taken: rewind"
    found.add(run_of(RARE_RUNS + 1, rewinds=1))
    assert found.failure == ""


def test_a_run_counts_if_enough_of_each_kind_was_acknowledged() -> None:
    found = run_of(1)
    found.work = {"emit": (20, 20), "watch": (10, 8)}
    assert found.counts
    found.work["watch"] = (10, 7)
    assert not found.counts


def test_a_kind_of_load_that_was_never_acknowledged_fails_a_long_campaign() -> None:
    found = campaign(*map(run_of, range(RARE_RUNS - 1)))
    last = run_of(RARE_RUNS, rewinds=1)
    last.work["route"] = (1, 0)
    found.add(last)
    assert found.failure == f"{RARE_RUNS} runs have never had an acknowledgement of: route"


def test_a_result_is_the_same_in_another_process() -> None:
    found = run_of(1, violations=(Violation("V3", "a", "lost", 1.0),))
    assert result_from_json(result_to_json(found)) == found


def test_a_report_grows_and_is_continued(tmp_path: Path) -> None:
    file = tmp_path / "campaign.json"
    first = CampaignReport.open(file)
    first.add(run_of(1))
    assert json.loads(file.read_bytes())["result"]["runs"] == 1
    second = CampaignReport.open(file)
    second.add(run_of(3, violations=(Violation("V3", "a", "lost", 1.0),)))
    again = CampaignReport.open(file)
    assert again.result == second.result
    assert again.result.seeds == [(1, 1), (3, 3)]
    assert again.to_object()["origin"] == {name: getattr(ORIGIN, name) for name in CampaignOrigin.__struct_fields__}
    assert [each.name for each in tmp_path.iterdir()] == ["campaign.json"]


def test_a_report_that_is_continued_on_another_machine_names_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "campaign.json"
    for seed, machine in ((1, "first"), (2, "first"), (3, "second")):
        monkeypatch.setattr(report, "present_machine", lambda machine=machine: machine)
        CampaignReport.open(file).add(run_of(seed))
    found = CampaignReport.open(file).to_object()
    assert (found["machines"], found["result"]["runs"]) == (["first", "second"], 3)


@pytest.mark.parametrize("name", CampaignOrigin.__struct_fields__)
def test_a_report_of_another_origin_is_not_continued(
    name: str, tmp_path: Path, origin: Callable[[CampaignOrigin], None]
) -> None:
    file = tmp_path / "campaign.json"
    CampaignReport.open(file).add(run_of(1))
    before = file.read_bytes()
    fields = {each: getattr(ORIGIN, each) for each in CampaignOrigin.__struct_fields__}
    origin(CampaignOrigin(**fields | {name: "another"}))
    with pytest.raises(Conflict, match=f"{name} was {getattr(ORIGIN, name)}, and is another"):
        CampaignReport.open(file)
    assert file.read_bytes() == before


def test_a_report_of_runs_on_sqlite_takes_none_on_postgres(tmp_path: Path) -> None:
    file = tmp_path / "campaign.json"
    CampaignReport.open(file).add(run_of(1))
    with pytest.raises(Conflict, match=r"store was sqlite, and is postgresql 18\.4"):
        CampaignReport.open(file, "18.4")


def test_a_campaign_on_postgres_counts_the_pairs_of_its_faults(tmp_path: Path) -> None:
    found = CampaignReport.open(tmp_path / "campaign.json", "18.4").to_object()
    assert found["origin"]["store"] == "postgresql 18.4"
    assert "kill + statement" in found["result"]["faultPairs"]
    assert "disk + kill" not in found["result"]["faultPairs"]


def test_a_file_that_is_no_report_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes.json"
    file.write_text("[]")
    with pytest.raises(Invalid, match="is not the report of a campaign"):
        CampaignReport.open(file)
    assert file.read_text() == "[]"


def test_the_code_of_a_campaign_includes_the_migrations() -> None:
    names = {file.name for folder in code_folders() for file in folder.rglob("*")}
    assert {"report.py", "event.py", SQLITE_SCHEMA.name} <= names
    assert any(name.startswith(f"{NEWEST}_") for name in names)


@pytest.mark.parametrize("name", ["0024_more.py", "sqlite.sql"])
def test_another_migration_or_schema_is_another_code(name: str, tmp_path: Path) -> None:
    before = digest_of([tmp_path])
    (tmp_path / name).write_text("CREATE TABLE more (id INTEGER)")
    assert digest_of([tmp_path]) != before
