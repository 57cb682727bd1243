"""A lake that is wrong in very many rows: some are named, all are counted, and every figure is exact."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from eventd.audit.engine.request import AuditRequest
from eventd.audit.report.findings import Kind
from eventd.audit.report.report import Report
from eventd.audit.verdicts import pair_figures
from eventd.runtime.clock import SECOND
from tests.support.federations import FullSettings, generate
from tests.support.local_spark import run_audit

SETTINGS = FullSettings(nodes=3, events=3000, span=6 * 3600 * SECOND, lose=100, duplicate=20, forge=20)
NAMED = 4


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("many") / "lake"
    generate(SETTINGS, str(lake))
    return lake


def audited(lake: Path, out: Path) -> Report:
    return run_audit(AuditRequest(lake=str(lake), out=str(out)))


def test_findings_beyond_those_that_are_named_are_counted(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = audited(lake, tmp_path / "whole")
    monkeypatch.setattr(pair_figures, "MOST_NAMED", NAMED)
    short = audited(lake, tmp_path / "short")

    assert short.totals.by_kind == whole.totals.by_kind
    for name in ("totals", "pairs", "hours", "gaps"):
        one, other = (getattr(report, name) for report in (short, whole))
        if name == "totals":
            one.findings = other.findings
        assert one == other, name
    named: Counter[tuple[str, ...]] = Counter()
    for finding in short.findings:
        if finding.kind is not Kind.ERASED:
            named[finding.kind, finding.group, finding.source, finding.peer, finding.detail] += len(finding.ids)
    parts = 2  # of the stand-in
    assert max(named.values()) <= NAMED * parts
    counted = [one for one in short.findings if one.detail.endswith("; more than are listed")]
    assert {one.kind for one in counted} >= {Kind.MISSING}
    assert all(not one.ids and one.count for one in counted)


def test_the_same_events_are_named_in_each_run(lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_figures, "MOST_NAMED", NAMED)
    first, second = audited(lake, tmp_path / "first"), audited(lake, tmp_path / "second")
    assert first.findings == second.findings
