"""Findings that are acknowledged or in a baseline: what `audit run` reports of them, and on what it fails."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from eventd.audit.engine import run
from eventd.audit.generate import GeneratorSettings, generate
from eventd.runtime.clock import SECOND
from tests.integration.cli.conftest import Control
from tests.support.local_spark import LocalSpark

LOSSY = GeneratorSettings(nodes=3, events=300, span=3 * 3600 * SECOND, lose=2, duplicate=2, seed=1)
KINDS = ("--fail-on", "missing,duplicate")
OPERATOR = ("--by", "ann", "--reason", "the peer was replaced")


@pytest.fixture(scope="module")
def lossy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("lossy") / "lake"
    generate(LOSSY, str(lake))
    return lake


class Auditor:
    """Runs the commands of the audit on a copy of a lake."""

    def __init__(self, control: Control, lake: Path, folder: Path) -> None:
        self._control = control
        self._folder = folder
        self.lake = lake
        self.out = folder / "out"

    def run(self, *options: str, out: str = "out", code: int = 0) -> dict[str, Any]:
        """Audit the lake, and return the report."""
        place = self._folder / out
        self._control("audit", "run", "--lake", str(self.lake), "--out", str(place), *options, code=code)
        report: dict[str, Any] = json.loads((place / "report.json").read_text())
        return report

    def acknowledge(self, *words: str, code: int = 0) -> Any:
        """Return the result of a command of `audit acknowledge` on the lake."""
        return self._control("audit", "acknowledge", *words, "--lake", str(self.lake), code=code)


@pytest.fixture
def auditor(control: Control, lossy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Auditor:
    monkeypatch.setattr(run, "open_session", lambda *_, **__: nullcontext(LocalSpark()))
    monkeypatch.setattr(run, "quiet", nullcontext)
    lake = tmp_path / "lake"
    lake.mkdir()
    for part in lossy.iterdir():
        (lake / part.name).symlink_to(part)
    return Auditor(control, lake, tmp_path)


def ids(report: dict[str, Any], kind: str) -> Sequence[str]:
    return [id for one in report["findings"] if one["kind"] == kind for id in one["ids"]]


def test_an_acknowledged_finding_stays_in_the_report_and_fails_no_run(auditor: Auditor) -> None:
    first = auditor.run(*KINDS, code=4)
    assert (first["failed"], first["totals"]["acknowledged"]) == (["missing", "duplicate"], 0)
    done = auditor.acknowledge("add", str(auditor.out), "--kind", "missing", *OPERATOR, "-o", "json")
    assert (done.json["by"], done.json["ids"]) == ("ann", 2)
    second = auditor.run(*KINDS, code=4)
    assert (second["failed"], second["verdict"], second["totals"]["acknowledged"]) == (["duplicate"], "incomplete", 2)
    assert ids(second, "missing") == ids(first, "missing")
    missing = [one for one in second["findings"] if one["kind"] == "missing"]
    assert all(one["acknowledged"] == len(one["ids"]) for one in missing)
    assert second["acknowledgements"] == [
        {"id": done.json["id"], "by": "ann", "reason": "the peer was replaced", "at": done.json["at"], "ids": 2}
    ]
    assert f"Acknowledged: {len(missing)} of {len(second['findings'])} findings." in second["headline"]
    assert second["totals"]["completeness"] == first["totals"]["completeness"] < 100
    both = auditor.run(*KINDS, "--count-acknowledged", code=4)
    assert (both["failed"], both["settings"]["count_acknowledged"]) == (["missing", "duplicate"], True)
    auditor.acknowledge("remove", done.json["id"], "--by", "bob", "--reason", "a mistake")
    assert auditor.run(*KINDS, code=4)["failed"] == ["missing", "duplicate"]
    assert auditor.acknowledge("list", "-o", "json").json == []
    (ended,) = auditor.acknowledge("list", "--all", "-o", "json").json
    assert (ended["id"], ended["withdrawnBy"], ended["withdrawalReason"]) == (done.json["id"], "bob", "a mistake")


def test_a_run_fails_on_new_findings_only(auditor: Auditor) -> None:
    first = auditor.run()
    lost, twice = ids(first, "missing"), ids(first, "duplicate")
    same = auditor.run("--baseline", str(auditor.out), "--fail-on", "new", out="same")
    figures = {name: same["baseline"][name] for name in ("new", "known", "gone", "gone_findings")}
    assert figures == {"new": 0, "known": len(lost) + len(twice), "gone": 0, "gone_findings": []}
    assert (same["baseline"]["made_at"], same["settings"]["baseline"]) == (first["made_at"], str(auditor.out))
    text = json.loads((auditor.out / "report.json").read_text())
    text["findings"] = [one for one in text["findings"] if one["kind"] == "duplicate"]
    invented = {"kind": "loop", "group": "edge", "source": "a", "peer": "b", "first": 1, "last": 1, "ids": ["x"]}
    text["findings"].append(invented)
    (auditor.out / "report.json").write_text(json.dumps(text))
    new = auditor.run("--baseline", str(auditor.out / "report.json"), "--fail-on", "new", out="same", code=4)
    assert (new["failed"], new["baseline"]["new"], new["baseline"]["known"]) == (["new"], len(lost), len(twice))
    assert [one["ids"] for one in new["baseline"]["gone_findings"]] == [["x"]]
    assert [one["new"] for one in new["findings"]] == [
        len(one["ids"]) if one["kind"] == "missing" else 0 for one in new["findings"]
    ]
    auditor.acknowledge("add", str(auditor.out.parent / "same"), "--kind", "missing", *OPERATOR)
    auditor.run("--baseline", str(auditor.out), "--fail-on", "new", out="same")


def test_only_findings_that_exist_can_be_acknowledged(auditor: Auditor) -> None:
    report = auditor.run()
    place, first = str(auditor.out), ids(report, "missing")[0]
    for words, code, told in [
        ((), 2, "no findings are chosen: add --kind, "),
        (("--all", "--kind", "missing"), 2, "error: --all excludes --kind: leave one of them out"),
        (("--all", "--peer", "b", "--id", first), 2, "error: --all excludes --peer and --id: leave one of them out"),
        (("--kind", "lost"), 2, "'--kind': 'lost' is not a kind of finding; write one of missing, "),
        (("--kind", "loop"), 3, "no finding of the report in"),
        (("--id", first, "--id", "e0"), 3, "no chosen finding has the id e0"),
    ]:
        assert told in auditor.acknowledge("add", place, *words, *OPERATOR, code=code).err
    assert not (auditor.lake / "acknowledgements").exists()
    done = auditor.acknowledge("add", place, "--id", first, *OPERATOR)
    assert done.out.endswith(": 1 finding, 1 event\n")
    shown = auditor.acknowledge("list").out.splitlines()
    assert shown[0].split() == ["ID", "AT", "BY", "FINDINGS", "EVENTS", "REASON"]
    assert shown[1].split()[2:] == ["ann", "1", "1", "the", "peer", "was", "replaced"]


def test_new_findings_need_a_baseline_of_the_same_lake(auditor: Auditor, control: Control, tmp_path: Path) -> None:
    lake = ("--lake", str(auditor.lake), "--out", str(auditor.out))
    alone = control("audit", "run", *lake, "--fail-on", "new", code=2)
    assert "error: --fail-on new needs an earlier report: add --baseline REPORT" in alone.err
    auditor.run()
    other = tmp_path / "other"
    generate(GeneratorSettings(nodes=2, events=40, span=3600 * SECOND, seed=2), str(other))
    asked = ("audit", "run", "--lake", str(other), "--out", str(tmp_path / "o"), "--baseline", str(auditor.out))
    assert "is about another lake" in control(*asked, code=1).err
    add = ("audit", "acknowledge", "add", str(auditor.out), "--all", *OPERATOR, "--lake", str(other))
    assert "is about another lake" in control(*add, code=1).err
