"""`routerctl audit run` as a user's command: what a second run reads, spans, objectives, conditions, and bad input.

The lakes have a few thousand rows, and a stand-in takes the place of Spark: see `test_spark` for the command on Spark.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import subprocess
import sys
from base64 import b64encode
from contextlib import nullcontext
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest

from eventd.audit.engine import run
from eventd.audit.engine.request import AuditRequest
from eventd.audit.generate import GeneratorSettings, generate
from eventd.audit.report.findings import Kind
from eventd.lake.storage import connect, make_lake
from eventd.runtime.chance import SYSTEM
from eventd.runtime.clock import SECOND
from eventd.streams.key_pairs import make_key, pem_of
from tests.integration.cli.conftest import Control, Result
from tests.support.audit_reports import flaws_of
from tests.support.local_spark import LocalSpark

HOUR = 3600 * SECOND
LOSSY = GeneratorSettings(nodes=3, events=600, span=3 * HOUR, lose=2, duplicate=2, seed=1)
"""From midnight to three; two events are lost, two deliveries made twice."""
SOUND = GeneratorSettings(nodes=2, events=200, span=HOUR, seed=2)
WIDE = GeneratorSettings(nodes=3, events=300, span=HOUR, seed=3)
SLO = """
apiVersion: federation.routerd.net/v1alpha1
kind: FederationSLO
metadata: {{name: {name}-slo}}
spec: {{groupRef: {name}, delivery: {{lagWarnSeconds: 1, lagFailSeconds: {fail}}}}}
---"""
EVERYTHING = [*Kind, "unproven", "completeness<100"]
LATER = ("--from", "2026-01-05T04:00:00Z")
"""A period after the end of the ledgers."""


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the lakes `lossy`, `sound`, `wide`, `spoilt` and `empty`, for reading only."""
    folder = tmp_path_factory.mktemp("lakes")
    generate(LOSSY, str(folder / "lossy"))
    generate(SOUND, str(folder / "sound"))
    generate(WIDE, str(folder / "wide"))
    shutil.copytree(folder / "sound", folder / "spoilt")
    next((folder / "spoilt").glob("landing/events/*/*/*.parquet")).write_bytes(b"")
    make_lake(connect(str(folder / "empty")), 0, SYSTEM)
    return folder


class Audit:
    """Runs the command on a lake, and reads what it left in `out`."""

    def __init__(self, control: Control, folder: Path) -> None:
        self._control = control
        self.folder = folder
        self.out = folder / "report"

    def __call__(self, lake: Path, *options: str, code: int = 0) -> dict[str, Any]:
        """The report of a run that ends with this code."""
        self.ends(lake, *options, code=code)
        report: dict[str, Any] = json.loads((self.out / "report.json").read_text())
        assert flaws_of(report) == [], "every report matches the published schema"
        return report

    def ends(self, lake: Path | str, *options: str, code: int) -> Result:
        """What a run said."""
        return self._control("audit", "run", "--lake", str(lake), "--out", str(self.out), *options, code=code)

    def refuses(self, lake: Path | str, *options: str, code: int = 1) -> str:
        """The one line that a run ends with that shows nothing else."""
        ended = self.ends(lake, *options, code=code)
        (told,) = ended.err.splitlines()
        assert ended.out == ""
        assert told.startswith("error: ")
        return told

    def file(self, text: str) -> str:
        """A file with this text; its path."""
        path = self.folder / "slo.yaml"
        path.write_text(text)
        return str(path)


@pytest.fixture
def audit(control: Control, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Audit:
    monkeypatch.setattr(run, "open_session", lambda *_, **__: nullcontext(LocalSpark()))
    monkeypatch.setattr(run, "quiet", nullcontext)
    return Audit(control, tmp_path)


@pytest.fixture
def unstarted(control: Control, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Audit:
    """For options that are refused before Spark starts: a typing error must not cost ten seconds."""

    def start(*_: object, **__: object) -> NoReturn:
        pytest.fail("Spark is started")

    monkeypatch.setattr(run, "open_session", start)
    return Audit(control, tmp_path)


def work(report: dict[str, Any]) -> tuple[int, int]:
    """Segments that were read, and those that were known."""
    return report["work"]["segments_read"], report["work"]["segments_known"]


def figures(report: dict[str, Any]) -> dict[str, Any]:
    """All of a report but when and how it was made, and what is measured with two clocks.

    A correction that new books allow as well as before is kept, where a run that reads everything takes their middle.
    """
    told = {name: value for name, value in report.items() if name not in ("made_at", "settings", "work")}
    told["pairs"] = [{**pair, "latencies": sorted(pair["latencies"])} for pair in report["pairs"]]
    told["hours"] = [
        {name: value for name, value in hour.items() if not name.startswith(("peer_recorded", "whole"))}
        for hour in report["hours"]
    ]
    return told


def verdicts(report: dict[str, Any]) -> set[str]:
    """What became of the objectives of all pairs."""
    return {pair["slo"]["verdict"] for pair in report["pairs"]}


def test_nodes_that_ship_no_ledgers_are_named_by_an_option(audit: Audit, lakes: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    shutil.copytree(lakes / "wide", lake)
    for folder in [*lake.glob("landing/*/dt=*/node=site-03-*"), *lake.glob("nodes/site-03-*")]:
        shutil.rmtree(folder)
    unknown = audit(lake, "--fail-on", "unproven", code=4)
    assert (unknown["verdict"], unknown["settings"].get("without_ledgers", [])) == ("unproven", [])
    options = ("--without-ledgers", "site-03", "--without-ledgers", "site-01")
    report = audit(lake, "--fail-on", "unproven", *options)
    assert (report["verdict"], report["settings"]["without_ledgers"]) == ("complete", ["site-01", "site-03"])


def test_the_option_changes_nothing_for_a_node_that_ships_ledgers(audit: Audit, lakes: Path) -> None:
    without = audit(lakes / "wide")
    assert figures(audit(lakes / "wide", "--without-ledgers", "site-01")) == figures(without)


def test_a_second_run_reads_only_what_is_new_and_says_the_same(audit: Audit, lakes: Path, tmp_path: Path) -> None:
    lake, late = tmp_path / "lake", "*site-03-*"
    shutil.copytree(lakes / "lossy", lake, ignore=shutil.ignore_patterns(late))
    first = audit(lake)
    assert work(first) == (12, 0)
    assert first["troubles"][0]["where"] == "site-03"
    shutil.copytree(lakes / "lossy", lake, dirs_exist_ok=True)
    second = audit(lake)
    assert work(second) == (6, 12)
    assert second["settings"]["incremental"]
    anew = audit(lake, "--full")
    assert work(anew) == (18, 0)
    assert not anew["settings"]["incremental"]
    assert ([one["kind"] for one in anew.pop("troubles")], second.pop("troubles")) == (["history"], [])
    assert figures(anew) == figures(second)
    hour = audit(lake, "--from", "2026-01-05T01:20:00Z", "--to", "2026-01-05T01:40:00Z")
    assert work(hour) == (0, 18)
    assert hour["period"] == {"first": "2026-01-05T01:00:00Z", "last": "2026-01-05T02:00:00Z"}
    assert hour["hours"] == [one for one in anew["hours"] if one["hour"] == "2026-01-05T01:00:00Z"]
    assert hour["totals"]["expected"] == sum(one["expected"] for one in hour["hours"]) > 0


def test_a_report_states_which_lake_it_is_about_and_all_settings(audit: Audit, lakes: Path) -> None:
    report = audit(lakes / "sound", "--recheck", "7", "--memory", "1GiB")
    inventory = (audit.out / "lake.sha256").read_bytes()
    assert report["lake"]["state"] == hashlib.sha256(inventory).hexdigest()
    assert report["lake"]["id"] == json.loads((lakes / "sound" / "eventd-lake.json").read_text())["id"]
    assert report["lake"]["signatures"] == "none"
    asked = {field.name for field in dataclasses.fields(AuditRequest)} - {"lake"}
    renamed = {"objectives": "slo", "conditions": "fail_on", "full": "incremental"}
    assert {renamed.get(name, name) for name in asked} == set(report["settings"])
    assert report["settings"]["recheck"] == 7
    assert report["settings"]["memory"] == "1024m"
    assert report["settings"]["out"] == str(audit.out)


def test_it_fails_on_what_is_found_and_on_nothing_else(audit: Audit, lakes: Path) -> None:
    asked = ["--fail-on", "missing, forged", "--fail-on", "completeness<99.99", "--fail-on", ",".join(EVERYTHING)]
    ended = audit.ends(lakes / "lossy", *asked, "-o", "json", code=4)
    found = ["missing", "completeness<99.99", "missing", "duplicate", "completeness<100"]
    told = ended.json
    assert told["failed"] == found
    assert told["totals"]["by_kind"] == {"missing": 2, "duplicate": 2}
    assert [one["kind"] for one in told["findings"]] == ["missing", "missing", "duplicate", "duplicate"]
    assert f"error: the audit fails on {', '.join(found)} (see report.html in {audit.out})" in ended.err
    assert json.loads((audit.out / "report.json").read_text())["settings"]["fail_on"][:2] == ["missing", "forged"]


def test_books_in_order_keep_to_an_objective_or_not_and_fail_on_nothing(audit: Audit, lakes: Path) -> None:
    asked = ["--fail-on", ",".join(EVERYTHING)]
    loose = audit(lakes / "sound", *asked, "--slo", audit.file(SLO.format(name="edge", fail=3600)))
    assert (loose["verdict"], loose["failed"], verdicts(loose)) == ("complete", [], {"met"})
    tight = audit(lakes / "sound", "--slo", audit.file(SLO.format(name="edge", fail=2)))
    assert tight["settings"]["slo"]["edge"] == {"warn": 1, "fail": 2}
    assert verdicts(tight) == {"met", "missed"}
    assert sum(pair["slo"]["late"] for pair in tight["pairs"]) == 2
    other = audit(lakes / "sound", "--slo", audit.file(SLO.format(name="other", fail=2)))
    assert verdicts(other) == {"met"}, "the objective is another group's"


@pytest.mark.parametrize(
    ("lake", "options", "verdict"),
    [("empty", (), "unproven"), ("sound", LATER, "unproven"), ("spoilt", (), "incomplete")],
    ids=["no books", "books that end before", "books that cannot be read"],
)
def test_books_that_do_not_reach_are_not_called_complete(
    audit: Audit, lakes: Path, lake: str, options: tuple[str, ...], verdict: str
) -> None:
    asked = [*options, "--fail-on", "missing", "--fail-on", "unproven"]
    report = audit(lakes / lake, *asked, code=4)
    assert (report["verdict"], report["failed"]) == (verdict, ["unproven"])
    assert report["totals"]["completeness"] is None
    assert "met" not in verdicts(report)


@pytest.mark.parametrize("period", [("--to", "2020-01-01T00:00:00Z"), LATER], ids=["before", "after"])
def test_a_period_without_any_delivery_proves_nothing(audit: Audit, lakes: Path, period: tuple[str, str]) -> None:
    report = audit(lakes / "sound", *period, "--fail-on", "completeness<99", code=4)
    assert (report["verdict"], report["totals"]["completeness"]) == ("unproven", None)
    assert report["headline"][0].startswith("Nothing to reconcile: ")


@pytest.mark.parametrize("asked", ["lost", "Missing", " ,", "missing,lost", "completeness>99"])
def test_what_is_no_condition_is_refused_with_what_is_one(unstarted: Audit, lakes: Path, asked: str) -> None:
    told = unstarted.refuses(lakes / "sound", "--fail-on", asked, code=2)
    assert "is not a condition; write one of missing, erased, " in told
    assert "new, unproven, stale, or completeness<" in told


def test_a_completeness_that_each_audit_is_below_is_refused(unstarted: Audit, lakes: Path) -> None:
    told = unstarted.refuses(lakes / "sound", "--fail-on", "completeness<101", code=2)
    assert "'completeness<101' is above 100 %; write a share from 0 to 100: completeness<99.99" in told


def test_a_time_zone_that_does_not_exist_is_refused_before_the_audit_begins(unstarted: Audit, lakes: Path) -> None:
    told = unstarted.refuses(lakes / "sound", "--time-zone", "Mars/Olympus", code=2)
    assert "'--time-zone': 'Mars/Olympus' is not a time zone of this machine" in told
    assert "write a name such as Europe/Berlin" in told


def test_memory_with_which_spark_does_not_start_is_refused(unstarted: Audit, lakes: Path) -> None:
    told = unstarted.refuses(lakes / "sound", "--memory", "511MiB", code=2)
    assert "invalid value for '--memory': must be at least 512MiB, not '511MiB'" in told


def test_a_wrong_option_is_refused_before_libraries_are_loaded() -> None:
    """They take seconds to load; each wrong value of an option ends the command with the same status."""
    options = ["--from", "--to", "--time-zone", "--fail-on", "--master", "--memory"]
    code = (
        "import sys; from eventd.cli.routerctl import main\n"
        "for option in sys.argv[1:]:\n"
        "    sys.argv = ['routerctl', 'audit', 'run', '--lake', 'l', '--out', 'o', option, '?']\n"
        "    try: main()\n"
        "    except SystemExit as end: print(end.code, 'pyarrow' in sys.modules, 'pyspark' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code, *options], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == ["2 False False"] * len(options), ended.stderr
    assert [one for one in options if f"invalid value for '{one}': '?'" not in ended.stderr] == []


def test_the_page_and_the_summary_have_the_time_zone_and_report_json_has_utc(audit: Audit, lakes: Path) -> None:
    shown = audit.ends(lakes / "sound", "--time-zone", "Asia/Tokyo", code=0).out
    report = json.loads((audit.out / "report.json").read_text())
    assert report["settings"]["time_zone"] == "Asia/Tokyo"
    until = datetime.fromisoformat(report["proven_until"])
    assert until.utcoffset() == timedelta()
    tokyo = f"{until + timedelta(hours=9):%Y-%m-%d %H:%M:%S} JST"
    assert f"The ledgers of all nodes are complete until {tokyo}." in shown
    assert tokyo in (audit.out / "report.html").read_text()


def test_files_without_keys_are_refused_before_the_audit_begins(unstarted: Audit, lakes: Path, tmp_path: Path) -> None:
    (tmp_path / "keys.yaml").write_text(SLO.format(name="edge", fail=120))
    told = unstarted.refuses(lakes / "sound", "--keys", str(tmp_path / "keys.yaml"))
    assert "keys.yaml: no EventGroup with a key" in told
    told = unstarted.refuses(lakes / "sound", "--keys", str(tmp_path / "none.yaml"))
    assert "none.yaml: cannot be read: no such file or directory (name a file, " in told


def test_a_key_is_not_taken_for_the_document_that_names_it(unstarted: Audit, lakes: Path, tmp_path: Path) -> None:
    private = make_key(bytes(32))
    public = b64encode(private.public_key().public_bytes_raw())
    for content in (pem_of(private), public, public + b"\n"):
        (tmp_path / "b-1.pub").write_bytes(content)
        told = unstarted.refuses(lakes / "sound", "--keys", str(tmp_path / "b-1.pub"))
        assert f"{tmp_path / 'b-1.pub'} holds a key, and not an EventGroup" in told
        assert f"publicKeyFile: {tmp_path / 'b-1.pub'} under spec.auth.keys" in told
        assert not any(line in told for line in content.decode().splitlines())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind: [", "slo.yaml:2: is not valid YAML"),
        ("", "slo.yaml holds no FederationSLO"),
        (SLO.format(name="edge", fail=1), "slo.yaml:5: spec.delivery.lagWarnSeconds: lagWarnSeconds must be less than"),
        (SLO.format(name="edge", fail=5) * 2, "slo.yaml:10: spec.groupRef: group edge has two FederationSLOs"),
    ],
    ids=["no YAML", "nothing", "bounds the wrong way round", "two for a group"],
)
def test_a_bad_objective_is_named_with_its_line(unstarted: Audit, lakes: Path, text: str, problem: str) -> None:
    assert problem in unstarted.refuses(lakes / "sound", "--slo", unstarted.file(text))


def test_objectives_that_are_not_there_are_named(unstarted: Audit, lakes: Path) -> None:
    assert "none.yaml: cannot be read: no such file" in unstarted.refuses(lakes / "sound", "--slo", "none.yaml")


def test_a_span_that_is_none_is_refused(unstarted: Audit, lakes: Path) -> None:
    assert "'--to': 'noon' is not a time" in unstarted.refuses(lakes / "sound", "--to", "noon", code=2)
    assert "'--from': 'yesterday' is not a time" in unstarted.refuses(lakes / "sound", "--from", "yesterday", code=2)
    backwards = ("--from", "2026-01-05T02:00:00Z", "--to", "2026-01-05T01:00:00Z")
    assert "--to (2026-01-05T01:00:00Z) is before --from" in unstarted.refuses(lakes / "sound", *backwards, code=2)


def test_a_lake_that_is_none_is_refused(unstarted: Audit, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no lake")
    (tmp_path / "folder").mkdir()
    for place in (tmp_path / "nowhere", tmp_path / "file", tmp_path / "folder"):
        assert f"there is no lake at {place}: " in unstarted.refuses(place, code=3)
    assert "invalid value for '--lake': must not be empty" in unstarted.refuses("", code=2)
    assert "no installed package can access the lake at s4://audit" in unstarted.refuses("s4://audit")
    assert not unstarted.out.exists()


@pytest.mark.parametrize(
    ("head", "problem"),
    [('{"schema": 99, "id": "a", "made_at": 0}', "is of schema version 99"), ("{", "is not JSON")],
    ids=["another version", "no JSON"],
)
def test_a_lake_of_another_schema_is_refused(unstarted: Audit, tmp_path: Path, head: str, problem: str) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    (lake / "eventd-lake.json").write_text(head)
    assert f"the lake at {lake} cannot be read: eventd-lake.json {problem}" in unstarted.refuses(lake)


@pytest.mark.parametrize("place", ["file", "file/report", "/proc/report"])
def test_a_place_that_cannot_be_written_is_named(unstarted: Audit, lakes: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("no folder")
    unstarted.out = tmp_path / place
    told = unstarted.refuses(lakes / "sound")
    assert f"in the output folder at {tmp_path / place}: " in told
    assert told.endswith(" (choose another --out)")


def test_an_output_in_the_lake_is_refused(unstarted: Audit, lakes: Path) -> None:
    unstarted.out = lakes / "sound" / "report"
    told = unstarted.refuses(lakes / "sound")
    assert f"the output folder {unstarted.out} is, contains or lies in the lake {lakes / 'sound'}" in told
    assert not unstarted.out.exists()


def test_the_report_of_one_lake_is_not_mixed_with_that_of_another(
    audit: Audit, lakes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit(lakes / "empty", code=0)
    before = (audit.out / "report.json").read_bytes()
    told = audit.refuses(lakes / "sound")
    assert told == (
        f"error: {audit.out} holds an audit of another lake"
        " (choose another --out, or start over with --full, and without --from and --to)"
    )
    assert (audit.out / "report.json").read_bytes() == before
    assert audit(lakes / "sound", "--full")["lake"]["url"] == str(lakes / "sound")
