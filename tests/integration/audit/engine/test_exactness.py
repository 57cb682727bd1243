"""The audit finds exactly the faults that are injected into generated ledgers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from eventd.audit.engine.request import AuditRequest
from eventd.audit.generate import Truth
from eventd.audit.report.findings import Finding, Kind
from eventd.audit.report.report import Report
from eventd.runtime.clock import SECOND
from tests.support.federations import FullSettings, generate
from tests.support.local_spark import run_audit

HOUR = 3600 * SECOND
SMALL = FullSettings(nodes=4, events=500, span=3 * HOUR, skew=40 * SECOND)
HARMLESS: dict[str, Any] = {"expire": 9, "dead_letter": 9, "retry": 20, "pending": 5}
EVERY_FAULT = {"lose": 12, "duplicate": 7, "forge": 6, "loop": 6, "disagree": 6, "corrupt": 5, "epoch": 2}
OF_TREES = {Kind.REWRITTEN, Kind.FORK, Kind.SQUATTED, Kind.UNSEALED, Kind.LAKE_REWRITTEN}
GENERATED = set(Kind) - {Kind.ERASED, Kind.ALTERED, Kind.ROLLED_BACK} - OF_TREES
INVOLVED = {"nodes": 6, "silent": 1, "groups": 2, "in_path": True, "selectors": True}
MANY = {"events": 1300, "span": 6 * HOUR}


def audited(folder: Path, settings: FullSettings) -> tuple[Report, Truth]:
    truth = generate(settings, str(folder / "lake"))
    asked = AuditRequest(lake=str(folder / "lake"), out=str(folder / "out"))
    return run_audit(asked, cores=2), truth


def what(finding: Finding) -> tuple[object, ...]:
    """Return a finding without its text, which describes damage in more detail than the generator knows."""
    return (finding.kind, finding.group, finding.source, finding.peer, finding.first, finding.last, finding.ids)


def require_exact(report: Report, truth: Truth) -> None:
    assert Counter(map(what, report.findings)) == Counter(map(what, truth.findings))
    if not truth.settings.corrupt:
        assert (report.totals.events, report.totals.deliveries) == (truth.totals["events"], truth.totals["deliveries"])


@pytest.mark.parametrize("options", [HARMLESS | INVOLVED, HARMLESS | {"peers": 2}], ids=["involved", "ring"])
def test_in_books_that_are_in_order_nothing_is_found(tmp_path: Path, options: dict[str, Any]) -> None:
    report, truth = audited(tmp_path, replace(SMALL, **options))
    require_exact(report, truth)
    assert report.findings == ()
    assert report.totals.missing == 0
    if not truth.settings.silent:
        assert (report.verdict, report.totals.completeness, report.totals.unproven) == ("complete", 100.0, 0)


def test_faults_of_every_kind_are_told_apart(tmp_path: Path) -> None:
    # Other seeds may forge a receipt in the last hour, which an audit cannot judge yet.
    report, truth = audited(tmp_path, replace(SMALL, **(HARMLESS | INVOLVED | EVERY_FAULT | MANY), seed=2))
    require_exact(report, truth)
    assert report.totals.by_kind.keys() == GENERATED
    assert report.totals.completeness is None, "what the damaged books would say is not known"
    for cores in (1, 3):
        asked = AuditRequest(lake=str(tmp_path / "lake"), out=str(tmp_path / f"by-{cores}"))
        other = run_audit(asked, cores=cores)
        assert (other.verdict, other.totals, other.findings) == (report.verdict, report.totals, report.findings)
        assert (other.pairs, other.hours, other.troubles) == (report.pairs, report.hours, report.troubles)


def test_what_is_no_fault_is_counted_as_what_it_is(tmp_path: Path) -> None:
    report, truth = audited(tmp_path, replace(SMALL, **HARMLESS, lose=4))
    require_exact(report, truth)
    assert (report.verdict, report.totals.by_kind) == ("incomplete", {"missing": 4})
    peers = SMALL.nodes - 1
    told = msgspec.structs.asdict(report.totals)
    assert {name: told[name] for name in ("missing", "expired", "dead_lettered", "pending", "expected")} == {
        "missing": 4,
        "expired": 9 * peers,
        "dead_lettered": 9,
        "pending": 5 * peers,
        "expected": SMALL.events * peers,
    }
