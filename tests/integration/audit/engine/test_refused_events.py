"""An event counts as refused only if the peer's answer to its batch counts as many refused events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eventd.audit.engine.request import AuditRequest
from eventd.audit.report.findings import NOT_REFUSED, Kind
from eventd.audit.report.report import Report
from eventd.lake.schema import Ledger
from eventd.lake.segment_reader import read_segment
from eventd.lake.storage import Storage, connect
from eventd.runtime.clock import SECOND
from tests.support.federations import FullSettings, copy_generated
from tests.support.local_spark import run_audit
from tests.support.tampering import edit, segments_of

SETTINGS = FullSettings(nodes=3, events=300, span=3600 * SECOND, dead_letter=6)
A = "site-01"


@pytest.fixture
def lake(tmp_path: Path) -> Storage:
    copy_generated(SETTINGS, str(tmp_path / "lake"))
    return connect(str(tmp_path / "lake"))


def audit(lake: Storage) -> Report:
    return run_audit(AuditRequest(lake.url, f"{lake.url}-out"))


def refused(lake: Storage) -> list[dict[str, Any]]:
    rows = (row for one in segments_of(lake, A, Ledger.DELIVERIES) for row in read_segment(lake, one).to_pylist())
    return [row for row in rows if row["outcome"] == "refused"]


def test_refusals_that_the_receipts_count_are_in_order(lake: Storage) -> None:
    report = audit(lake)
    assert refused(lake)
    assert (report.verdict, report.totals.dead_lettered, report.work.rows_compared) == ("complete", 6, 0)


def test_a_refusal_that_the_receipt_does_not_count_is_in_dispute(lake: Storage) -> None:
    row = refused(lake)[0]
    edit(lake, A, Ledger.RECEIPTS, lambda one: one["number"] == row["number"], refused=0)
    report = audit(lake)
    found = [one for one in report.findings if one.kind is Kind.DISAGREEMENT]
    assert [(one.source, one.peer, one.ids, one.detail) for one in found] == [
        (A, row["peer"], (row["id"],), NOT_REFUSED)
    ]
    assert (report.totals.dead_lettered, report.totals.disputed) == (5, 1)


def test_a_refusal_in_a_batch_that_was_never_sent_is_in_dispute(lake: Storage) -> None:
    row = refused(lake)[0]
    nothing = {"status": 0, "sent": 0, "accepted": None, "duplicates": None, "refused": None, "receipt": ""}
    edit(lake, A, Ledger.RECEIPTS, lambda one: one["number"] == row["number"], **nothing)
    assert (row["id"],) in [one.ids for one in audit(lake).findings if one.detail == NOT_REFUSED]


@pytest.mark.parametrize("protocol", ["v1", "v2"])
def test_a_refusal_is_known_by_the_sender_alone_if_its_answer_counts_none(lake: Storage, protocol: str) -> None:
    """The older protocol counts no refusals, and the receipt of a batch without an event too large for it is empty."""
    row = refused(lake)[0]
    changes = {"sent": 0, "refused": 0} if protocol == "v2" else {"protocol": "v1", "refused": None}
    edit(lake, A, Ledger.RECEIPTS, lambda one: one["number"] == row["number"], **changes)
    edit(lake, A, Ledger.DELIVERIES, lambda one: one["number"] == row["number"], protocol=protocol)
    assert [one for one in audit(lake).findings if one.detail == NOT_REFUSED] == []
