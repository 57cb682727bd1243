"""Rows that were taken out of `events`, with manifests that fit, are found by the seqs that no row has."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from eventd.audit.engine.request import AuditRequest
from eventd.audit.generate import GeneratorSettings, generate
from eventd.audit.report.findings import NO_DELIVERIES, NO_INBOUND, NO_RECEIPT, Finding, Kind
from eventd.audit.report.report import Pair, Report
from eventd.audit.review.acknowledgements import acknowledge
from eventd.lake.layout import LARGEST
from eventd.lake.schema import Ledger
from eventd.lake.segment_reader import read_segment
from eventd.lake.storage import Storage, connect
from eventd.runtime.chance import SYSTEM
from eventd.runtime.clock import SECOND
from federation.event import micros
from tests.support.local_spark import run_audit
from tests.support.tampering import erase, segments_of

HOUR = 3600 * SECOND
BOOKS = GeneratorSettings(nodes=3, events=600, span=2 * HOUR)
A, B, C = "site-01", "site-02", "site-03"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ledgers of three nodes that send all events to each other."""
    made = tmp_path_factory.mktemp("whole") / "lake"
    generate(BOOKS, str(made))
    return made


@pytest.fixture
def lake(whole: Path, tmp_path: Path) -> Storage:
    shutil.copytree(whole, tmp_path / "lake")
    return connect(str(tmp_path / "lake"))


def audit(lake: Storage) -> Report:
    return run_audit(AuditRequest(lake.url, f"{lake.url}-out"))


def pairs_of(report: Report) -> dict[tuple[str, str], Pair]:
    return {(pair.source, pair.peer): pair for pair in report.pairs}


def own_of(lake: Storage, node: str, *, own: bool = True) -> list[dict[str, Any]]:
    """Return the node's own events, or those of others, in order."""
    rows = [row for one in segments_of(lake, node, Ledger.EVENTS) for row in read_segment(lake, one).to_pylist()]
    return [row for row in rows if row["own"] == own]


def adjacent(rows: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """Return rows from the middle whose seqs follow each other."""
    for at in range(len(rows) // 2, len(rows) - count):
        some = rows[at : at + count]
        if some[-1]["seq"] - some[0]["seq"] == count - 1:
            return some
    raise AssertionError("no rows follow each other")


def test_a_lake_from_which_nothing_was_erased_has_no_hole(lake: Storage) -> None:
    report = audit(lake)
    assert (report.verdict, report.findings) == ("complete", ())


def test_rows_that_the_source_has_lost_are_named_by_its_deliveries(lake: Storage) -> None:
    lost = adjacent(own_of(lake, A), 3)
    ids = {row["id"] for row in lost}
    erase(lake, A, Ledger.EVENTS, lambda row: row["id"] in ids)
    report = audit(lake)
    (found,) = report.findings
    assert (found.kind, found.group, found.source, found.peer) == (Kind.ERASED, "edge", A, "")
    assert (found.first, found.last, found.events) == (lost[0]["seq"], lost[-1]["seq"], 3)
    assert list(found.ids) == [row["id"] for row in lost]
    assert report.verdict == "incomplete"
    # Both peers were sent the events, as deliveries show: nothing is open.
    assert {(pair.unproven, pair.missing, pair.disputed) for pair in report.pairs} == {(0, 0, 0)}
    assert report.totals.expected == 600 * 2


def test_a_row_that_the_peer_has_lost_is_named_by_the_delivery_to_it(lake: Storage) -> None:
    lost = own_of(lake, B, own=False)[40]
    erase(lake, B, Ledger.EVENTS, lambda row: row["id"] == lost["id"])
    report = audit(lake)
    (found,) = report.findings
    assert (found.kind, found.source, found.peer, found.ids) == (Kind.ERASED, B, "", (lost["id"],))
    assert (found.first, found.last, found.events) == (lost["seq"], lost["seq"], 1)
    pair = pairs_of(report)[lost["source"], B]
    assert (pair.unproven, pair.missing, pair.disputed, pair.completeness) == (1, 0, 0, None)


def test_an_event_that_no_ledger_names_any_more_leaves_its_holes(lake: Storage) -> None:
    lost = own_of(lake, A)[30]
    held = {node: erase(lake, node, Ledger.EVENTS, lambda row: row["id"] == lost["id"]) for node in (A, B, C)}
    erase(lake, A, Ledger.DELIVERIES, lambda row: row["id"] == lost["id"])
    report = audit(lake)
    batches = [one for one in report.findings if one.peer]
    assert {(one.kind, one.source, one.peer, one.detail) for one in batches} == {
        (Kind.ERASED, A, peer, NO_DELIVERIES) for peer in (B, C)
    }
    holes = [one for one in report.findings if not one.peer]
    assert {(one.source, one.first, one.last, one.events, one.ids) for one in holes} == {
        (node, rows[0]["seq"], rows[0]["seq"], 1, ()) for node, rows in held.items()
    }
    pairs = pairs_of(report)
    for key in ((A, B), (A, C)):
        assert (pairs[key].unproven, pairs[key].completeness) == (1, None)
        assert f"up to 1 event erased from the ledger of {A}" in pairs[key].notes
    assert {hour.completeness for hour in report.hours if (hour.source, hour.peer) == (A, B)} == {None}


def test_the_latest_rows_are_missed_because_the_state_counts_them(lake: Storage) -> None:
    last = max(own_of(lake, A) + own_of(lake, A, own=False), key=lambda row: row["seq"])
    erase(lake, A, Ledger.EVENTS, lambda row: row["seq"] == last["seq"])
    (found,) = audit(lake).findings
    assert (found.kind, found.source, found.first, found.last) == (Kind.ERASED, A, last["seq"], last["seq"])
    assert found.ids == (last["id"],)


def test_the_first_rows_are_missed_because_nothing_was_removed_by_retention(lake: Storage) -> None:
    rows = sorted(own_of(lake, A) + own_of(lake, A, own=False), key=lambda row: row["seq"])
    erase(lake, A, Ledger.EVENTS, lambda row: row["seq"] <= 2)
    (found,) = audit(lake).findings
    assert (found.kind, found.source, found.first, found.last) == (Kind.ERASED, A, 1, 2)
    assert set(found.ids) == {row["id"] for row in rows[:2]}


@pytest.mark.parametrize(("late", "acknowledged"), [(-2 * HOUR, 0), (0, 1)])
def test_no_acknowledgement_covers_rows_that_were_recorded_after_it(
    lake: Storage, late: int, acknowledged: int
) -> None:
    lost = own_of(lake, A)[-30]
    erase(lake, A, Ledger.EVENTS, lambda row: row["id"] == lost["id"])
    everything = Finding(Kind.ERASED, "edge", A, "", 1, LARGEST, (), count=LARGEST)
    made_at = micros(lost["recorded_at"]) + late
    acknowledge(lake, [everything], by="ann", reason="all that comes", now=made_at, chance=SYSTEM)
    report = audit(lake)
    assert [(one.kind, one.acknowledged) for one in report.findings] == [(Kind.ERASED, acknowledged)]


def test_no_acknowledgement_covers_a_hole_that_begins_before_it_and_ends_after_it(lake: Storage) -> None:
    rows = sorted(own_of(lake, A) + own_of(lake, A, own=False), key=lambda row: row["seq"])
    made_at, last = micros(rows[0]["recorded_at"]) + 60 * SECOND, rows[-10]
    erase(lake, A, Ledger.EVENTS, lambda row: rows[0]["seq"] < row["seq"] <= last["seq"])
    assert micros(last["recorded_at"]) > made_at + HOUR
    everything = Finding(Kind.ERASED, "edge", A, "", 1, LARGEST, (), count=LARGEST)
    early = acknowledge(lake, [everything], by="ann", reason="all that comes", now=made_at, chance=SYSTEM)
    report = audit(lake)
    assert {one.acknowledged for one in report.findings} == {0}
    assert [one.where for one in report.troubles if one.kind == "acknowledgement"] == [
        f"acknowledgements/{early.id}.json"
    ]
    late = micros(last["recorded_at"])
    acknowledge(lake, [everything], by="ann", reason="known", now=late, chance=SYSTEM)
    (found,) = (one for one in audit(lake).findings if one.kind is Kind.ERASED and not one.peer)
    assert found.acknowledged == found.events


def test_a_second_run_finds_the_hole_in_a_segment_that_it_does_not_read_again(lake: Storage) -> None:
    lost = own_of(lake, A)[30]
    erase(lake, A, Ledger.EVENTS, lambda row: row["id"] == lost["id"])
    first, second = audit(lake), audit(lake)
    assert second.work.segments_read == 0
    assert second.findings == first.findings != ()


def test_a_receipt_that_was_erased_is_named_by_the_deliveries_of_its_batch(lake: Storage) -> None:
    kept = erase(lake, A, Ledger.RECEIPTS, lambda row: row["number"] == 3)
    (found,) = audit(lake).findings
    assert (found.kind, found.source, found.detail) == (Kind.ERASED, A, NO_RECEIPT)
    assert (found.peer, found.ids) == (kept[0]["peer"], (kept[0]["batch_id"],))


def test_a_batch_that_the_receiver_has_erased_is_not_forged_by_its_sender(lake: Storage) -> None:
    (lost,) = erase(lake, B, Ledger.INBOUND, lambda row: row["number"] == 3)
    (found,) = audit(lake).findings
    assert (found.kind, found.source, found.peer, found.detail) == (Kind.ERASED, lost["peer"], B, NO_INBOUND)
    assert found.ids == (lost["batch_id"],)
