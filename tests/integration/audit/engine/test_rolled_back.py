"""A ledger whose end was removed, with a state that fits, is found by what others and earlier audits have seen."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from eventd.audit.engine.request import AuditRequest
from eventd.audit.report.findings import Finding, Kind
from eventd.audit.report.report import Report
from eventd.lake.layout import LARGEST, state_path
from eventd.lake.ledger_files import DAY
from eventd.lake.retention import retaining
from eventd.lake.schema import Ledger
from eventd.lake.storage import Storage, connect
from eventd.runtime.clock import SECOND, Clock, SystemClock
from eventd.testing import ManualClock
from tests.support.federations import FullSettings, generate
from tests.support.local_spark import run_audit
from tests.support.tampering import change_state, cut_ledger, edit, segments_of

HOUR = 3600 * SECOND
BOOKS = FullSettings(nodes=3, events=300, span=2 * HOUR, segment_rows=100)
A, B, C = "site-01", "site-02", "site-03"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ledgers of three nodes that send all events to each other, in several segments each."""
    made = tmp_path_factory.mktemp("whole") / "lake"
    generate(BOOKS, str(made))
    return made


@pytest.fixture
def lake(whole: Path, tmp_path: Path) -> Storage:
    shutil.copytree(whole, tmp_path / "lake")
    return connect(str(tmp_path / "lake"))


def audit(lake: Storage, *, full: bool = False, clock: Clock | None = None) -> Report:
    return run_audit(AuditRequest(lake.url, f"{lake.url}-out", full=full), clock=clock)


def require_rolled_back(report: Report, node: str) -> Finding:
    """Return the only finding, which is that the end of the node's ledgers was removed."""
    (found,) = report.findings
    assert (found.kind, found.group, found.source, found.peer) == (Kind.ROLLED_BACK, "", node, "")
    assert report.verdict == "incomplete"
    assert {pair.completeness for pair in report.pairs if node in (pair.source, pair.peer)} == {None}
    return found


def test_events_that_peers_have_received_are_missed_at_the_end_of_the_ledger(lake: Storage) -> None:
    head = change_state(lake, A).head
    while not (cut := cut_ledger(lake, A, Ledger.EVENTS)).own:
        pass
    found = require_rolled_back(audit(lake), A)
    assert found.first == cut.segment.place.after + 1
    assert found.first < found.last <= head
    assert f"{B} has recorded position" in found.detail


def test_a_state_does_not_hide_the_end_of_its_ledger_by_a_cursor_that_is_beyond_its_log(lake: Storage) -> None:
    cut = cut_ledger(lake, C, Ledger.EVENTS)
    state = change_state(lake, C)
    change_state(lake, C, books={**state.books, Ledger.EVENTS: LARGEST})
    found = require_rolled_back(audit(lake), C)
    assert found.first == cut.segment.place.after + 1
    assert f"{LARGEST:,}" not in found.detail


def test_events_that_the_node_has_answered_for_are_missed_at_the_end_of_the_ledger(lake: Storage) -> None:
    cut = cut_ledger(lake, A, Ledger.EVENTS)
    assert not cut.own
    found = require_rolled_back(audit(lake), A)
    assert found.first == cut.segment.place.after + 1
    assert "its own answers to batches count at least 4 later events" in found.detail


@pytest.mark.parametrize("later", [False, True])
def test_a_loss_that_the_node_declared_earlier_excuses_no_later_event(lake: Storage, later: bool) -> None:
    cut = cut_ledger(lake, A, Ledger.EVENTS)
    place, times = cut.segment.place, cut.segment.manifest.times
    assert times is not None
    at = times[1] if later else times[0] - 600 * SECOND
    lost = {"after": place.after, "upto": place.upto} if later else {"after": place.after - 2, "upto": place.after - 1}
    known = {"group": "edge", "peer": "", "gap_epoch": place.epoch, "reason": "events_lost", "recorded_at": at}
    edit(lake, A, Ledger.GAPS, lambda row: True, **known, **lost)
    report = audit(lake)
    assert [one.kind for one in report.findings] == ([] if later else [Kind.ROLLED_BACK])
    assert report.totals.completeness is None


@pytest.mark.parametrize("reason", ["events_x", "events", "eventslost"])
def test_a_loss_with_a_reason_that_no_node_gives_excuses_nothing(lake: Storage, reason: str) -> None:
    place = cut_ledger(lake, A, Ledger.EVENTS).segment.place
    lost = {
        "peer": "",
        "gap_epoch": place.epoch,
        "after": 0,
        "upto": place.upto,
        "recorded_at": BOOKS.start + BOOKS.span,
    }
    edit(lake, A, Ledger.GAPS, lambda row: True, **lost, reason=reason)
    found = {one.kind: one for one in audit(lake).findings}
    assert {*found} == {Kind.ROLLED_BACK, Kind.CORRUPT}
    assert repr(reason) in found[Kind.CORRUPT].detail


def test_batches_that_senders_have_receipts_of_are_missed_at_the_end_of_the_ledger(lake: Storage) -> None:
    cut_ledger(lake, A, Ledger.EVENTS)
    cut = cut_ledger(lake, A, Ledger.INBOUND)
    while cut.segment.manifest.times[0] > segments_of(lake, A, Ledger.EVENTS)[-1].manifest.times[1]:
        cut = cut_ledger(lake, A, Ledger.INBOUND)
    found = require_rolled_back(audit(lake), A)
    assert "receipts that" in found.detail


def test_a_state_that_promises_less_than_its_own_log_is_enough(lake: Storage) -> None:
    head = change_state(lake, A).head
    cut = cut_ledger(lake, A, Ledger.EVENTS)
    change_state(lake, A, head=head)
    (found,) = audit(lake).findings
    assert (found.kind, found.first, found.last) == (Kind.ROLLED_BACK, cut.segment.place.after + 1, head)


@pytest.mark.parametrize("book", [Ledger.GAPS, Ledger.REFUSALS])
def test_an_earlier_audit_remembers_how_far_each_ledger_went(lake: Storage, book: Ledger) -> None:
    node = next(node for node in (A, B, C) if segments_of(lake, node, book))
    assert audit(lake).findings == ()
    place = cut_ledger(lake, node, book).segment.place
    found = [one for one in audit(lake).findings if one.kind is Kind.ROLLED_BACK]
    assert [(one.source, one.first, one.last) for one in found] == [(node, place.after + 1, place.upto)]
    again = [one for one in audit(lake).findings if one.kind is Kind.ROLLED_BACK]
    assert again == found, "a later run forgets nothing"
    accepted = [one for one in audit(lake, full=True).findings if one.kind is Kind.ROLLED_BACK]
    assert accepted == []


def test_a_node_that_has_vanished_is_remembered(lake: Storage) -> None:
    audit(lake)
    state = change_state(lake, C)
    for book in Ledger:
        for segment in segments_of(lake, C, book):
            lake.delete([segment.place.manifest, segment.place.data])
    lake.delete([state_path(C, state.epoch)])
    found = [one for one in audit(lake).findings if one.kind is Kind.ROLLED_BACK]
    assert [one.source for one in found] == [C]
    assert f"the state of epoch {state.epoch}" in found[0].detail


def test_a_node_that_is_behind_has_lost_nothing(lake: Storage) -> None:
    """Peers have received what a node has not shipped yet; its state says so."""
    books = (Ledger.EVENTS, Ledger.DELIVERIES, Ledger.RECEIPTS)
    for book in books:
        cut_ledger(lake, A, book)
    ends = [segments_of(lake, A, book)[-1].manifest.times for book in books]
    until = min(times[1] for times in ends if times)
    change_state(lake, A, complete_until=until, as_of=until, closed_at=0)
    assert [one.kind for one in audit(lake).findings] == []


def test_retention_of_the_lake_rolls_nothing_back(lake: Storage) -> None:
    audit(lake)
    now = BOOKS.end + 3 * DAY
    for _ in range(2):
        list(retaining(lake, [A, B, C], now=now, keep=DAY // 24))
        now += 2 * DAY
    assert segments_of(lake, A, Ledger.EVENTS) == []
    report = audit(lake, clock=ManualClock(SystemClock().now() + DAY))
    assert [one.kind for one in report.findings] == []
    assert [one.kind for one in report.troubles if one.kind == "deleted"] == []
