"""A node without ledgers that others have events from: its ledgers may have been removed, unless an operator knows it.

The lakes are those of generated federations; all files of a node are deleted.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from eventd.audit.engine.request import AuditRequest
from eventd.audit.generate import GeneratorSettings, generate
from eventd.audit.report.objectives import read_conditions
from eventd.audit.report.report import Report
from eventd.runtime.clock import SECOND
from tests.support.local_spark import run_audit

HOUR = 3600 * SECOND
LEDGERS = GeneratorSettings(nodes=3, events=600, span=2 * HOUR)
A, B, C = "site-01", "site-02", "site-03"
WHY = f"{C} has no readable state in this lake: its events are known from other nodes only"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake without the files of the third of three nodes."""
    made = tmp_path_factory.mktemp("federation") / "lake"
    generate(LEDGERS, str(made))
    for folder in [*made.glob(f"landing/*/dt=*/node={C}-*"), *made.glob(f"nodes/{C}-*")]:
        shutil.rmtree(folder)
    return made


def audit(lake: Path, out: Path, **options: object) -> Report:
    conditions = read_conditions(["unproven"])
    return run_audit(AuditRequest(str(lake), str(out), conditions=conditions, **options))  # type: ignore[arg-type]


def test_the_audit_is_unproven_and_names_the_node_its_pairs_and_the_option(lake: Path, tmp_path: Path) -> None:
    report = audit(lake, tmp_path / "out")
    assert (report.verdict, report.failed, report.totals.completeness) == ("unproven", ("unproven",), None)
    assert not report.findings
    pairs = {(pair.source, pair.peer): pair for pair in report.pairs}
    assert {way: pair.notes for way, pair in pairs.items() if pair.completeness is None} == {
        (C, A): (WHY,),
        (C, B): (WHY,),
    }
    assert (A, C) in pairs
    assert (pairs[C, A].expected, pairs[C, A].delivered) == (0, 0), "nothing shows what it should have sent"
    told = f"Not proven: {C} has no ledgers in this lake, and others have events or batches from it."
    assert told in report.headline
    assert {one.hint for one in report.troubles} == {
        f"let it ship its ledgers to the lake; if it cannot, audit with --without-ledgers {C}"
    }
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert f"--without-ledgers {C}" in page


def test_an_operator_declares_that_the_node_ships_no_ledgers(lake: Path, tmp_path: Path) -> None:
    report = audit(lake, tmp_path / "out", without_ledgers=(C,))
    assert (report.verdict, report.failed, report.totals.completeness) == ("complete", (), 100.0)
    assert report.settings.without_ledgers == (C,)
    assert {one.kind for one in report.troubles} == {"no books"}, "the report still says so"
    assert all(pair.completeness == 100.0 for pair in report.pairs)
    of_another = audit(lake, tmp_path / "out", without_ledgers=(A,))
    assert of_another.verdict == "unproven"


def test_hours_in_which_no_node_has_anything_from_it_leave_its_pairs_out(lake: Path, tmp_path: Path) -> None:
    assert audit(lake, tmp_path / "out", since=LEDGERS.end - HOUR).verdict == "unproven"
    later = audit(lake, tmp_path / "later", since=LEDGERS.end + HOUR)
    assert not any(pair.source == C for pair in later.pairs)
