"""Receipts of a sender that the peer's ledger does not confirm, or that are not the only ones of their batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from eventd.audit.arrays.columns import Columns
from eventd.audit.coverage.coverage import Coverage
from eventd.audit.coverage.receipt_links import LinkKey, deliveries_without_receipt, verified_links
from eventd.audit.receipts.receipt_checks import ReceiptCount, ReceiptResults
from eventd.audit.receipts.receipt_terms import ReceiptTerms
from eventd.audit.report.findings import NO_BATCH, REPEATED_RECEIPT, TWO_RECEIPTS
from eventd.audit.segments.ledger_summaries import LedgerSummary
from eventd.audit.segments.plan import LakePlan, NodeEpoch
from eventd.audit.verdicts.ledger_rows import LedgerRows
from eventd.audit.verdicts.receipt_verdicts import questioned_receipts, receipt_discrepancies
from eventd.audit.verdicts.reconcile import CellFilter
from eventd.lake.schema import Ledger
from eventd.lake.writer import Segment
from eventd.runtime.clock import SECOND
from tests.support.batch_tables import AT, HOUR, inbound, receipt, receipt_cells, segment_of
from tests.support.ledger_rows import Row, ledger_table

ALWAYS = (0, 1_000_000)
LINK = LinkKey("g", "a", "b")


def questions(receipts: Sequence[Row], copies: Sequence[Row], hours: tuple[int, int] = ALWAYS) -> list[dict[str, Any]]:
    """Return the questioned receipts of these ledgers for some hours, through the filter of the cells' files."""
    cells = receipt_cells(receipts, copies)
    kept = cells.filter(pa.array(CellFilter({}, {}, hours).counts(Columns(cells))))
    return [dict(row) for row in questioned_receipts(kept.combine_chunks(), hours).to_pylist()]


def flags(receipts: Sequence[Row], copies: Sequence[Row]) -> list[set[str]]:
    names = ("lacking", "other", "several", "repeated")
    return [{name for name in names if row[name]} for row in questions(receipts, copies)]


@pytest.mark.parametrize("apart", [-5 * HOUR, -1, 1, 5 * HOUR])
def test_a_batch_whose_two_times_are_on_both_sides_of_a_bound_is_confirmed(apart: int) -> None:
    hour = AT // HOUR
    copy = inbound(1, recorded_at=AT + apart)
    for hours in ((hour, hour + 1), (hour, 1_000_000), (0, hour + 1), (hour - 1, hour), (hour + 1, hour + 2)):
        assert not any(row["requested"] for row in questions([receipt(1, acked_at=AT)], [copy], hours))


def test_only_the_receipts_that_the_sender_recorded_in_the_hours_are_asked_about() -> None:
    hour = AT // HOUR
    receipts = [receipt(at, acked_at=AT + at * HOUR) for at in range(4)]
    found = questions(receipts, [], (hour + 1, hour + 3))
    assert sorted((row["first"], row["requested"]) for row in found) == [(AT, 0), (AT, 1), (AT, 1)]
    assert all(row["lacking"] for row in found)


def test_of_two_receipts_of_one_batch_the_one_that_the_peer_does_not_have_is_found_whichever_is_larger() -> None:
    for digest in ("0" * 64, "f" * 64):
        second = receipt(1, number=2, receipt_digest=digest)
        (found,) = questions([receipt(1), second], [inbound(1)])
        assert (found["several"], found["other"], found["lacking"]) == (True, True, False)
        (left,) = questions([second], [inbound(1)])
        assert found["receipt"] == left["receipt"]


def test_of_two_receipts_of_one_batch_both_are_in_question_if_the_peer_has_none_or_both() -> None:
    second = receipt(1, number=2, receipt_digest="f" * 64)
    assert flags([receipt(1), second], []) == [{"lacking", "several"}] * 2
    assert flags([receipt(1), second], [inbound(1), inbound(1, receipt_digest="f" * 64)]) == [{"several"}] * 2


def test_a_receipt_under_two_numbers_of_a_sender_is_found_and_one_in_two_epochs_is_not() -> None:
    assert flags([receipt(1), receipt(1, number=2)], [inbound(1)]) == [{"repeated"}]
    restored = receipt(1, number=2, epoch="e2")
    assert flags([receipt(1), restored], [inbound(1)]) == []
    assert flags([receipt(1), restored, receipt(1, number=3, epoch="e2")], [inbound(1)]) == [{"repeated"}]


def test_a_peer_that_was_restored_may_have_recorded_a_batch_twice_with_two_receipts() -> None:
    lost = inbound(1, receipt_digest="f" * 64)
    again = inbound(1, epoch="f2")
    assert flags([receipt(1)], [lost, again]) == []
    assert flags([receipt(1)], [inbound(1), inbound(1, epoch="f2")]) == []
    assert flags([receipt(1)], [lost]) == [{"other"}]


def test_links_are_verified_only_if_public_keys_verify_every_receipt() -> None:
    def verified(*counts: ReceiptCount, damaged: Sequence[str] = ()) -> bool:
        summaries = {NodeEpoch("a", "e"): [LedgerSummary(receipts=ReceiptResults(False, [*counts]))]}
        return LINK in verified_links(summaries, damaged)

    whole = ReceiptCount(*LINK, "ed25519", 2, 2, 2)
    assert verified(whole)
    assert not verified(whole, damaged=["a"])
    assert not verified(ReceiptCount(*LINK, "ed25519", 2, 2, 1))
    assert not verified(whole, ReceiptCount(*LINK, "hmac-sha256", 1, 1, 1)), "the sender has the secret, too"


def test_a_link_with_two_receipts_of_one_batch_has_deliveries_that_no_receipt_shows() -> None:
    assert deliveries_without_receipt([], questions([receipt(1), receipt(1, number=2)], [inbound(1)])) == {LINK: 1}
    assert deliveries_without_receipt([], questions([receipt(1)], [])) == {}, "the peer may have lost its row"
    parts = [{"group": "g", "source": "a", "peer": "b", "n": n} for n in (2, 3)]
    assert deliveries_without_receipt(parts, []) == {LINK: 5}


@pytest.mark.parametrize(
    ("digest", "until", "detail"),
    [
        pytest.param("1" * 64, 5, REPEATED_RECEIPT, id="it is repeated, and the peer's ledger ends before the answer"),
        pytest.param("2" * 64, 5, TWO_RECEIPTS, id="it is one of two, and the peer's ledger ends before the answer"),
        pytest.param("1" * 64, 60, NO_BATCH, id="the peer's ledger covers the batch"),
    ],
)
def test_a_second_receipt_is_found_also_if_the_ledger_of_the_peer_ends_within_the_time_of_its_batch(
    digest: str, until: int, detail: str
) -> None:
    times = {"acked_at": AT + 10 * SECOND, "peer_recorded_at": AT}
    receipts = [receipt(1, **times), receipt(1, number=2, receipt_digest=digest, **times)]
    table = ledger_table(Ledger.RECEIPTS, receipts)

    def read(segment: Segment, names: Sequence[str]) -> pa.Table:
        return table.select([*names])

    acked = AT + 10 * SECOND
    rows = LedgerRows([segment_of("a", Ledger.RECEIPTS, 2, (acked, acked))], read)
    coverage = Coverage(LakePlan(), until={"b": AT + until * SECOND})
    found = receipt_discrepancies(questions(receipts, []), coverage, rows, ReceiptTerms())
    assert [one.detail for one in found] == [detail, detail]


def test_the_segments_of_other_times_are_read_only_if_those_of_its_time_do_not_have_a_receipt() -> None:
    table = ledger_table(Ledger.RECEIPTS, [receipt(1)])
    early, own, late = (segment_of("a", Ledger.RECEIPTS, 1, (AT + at, AT + at)) for at in (-HOUR, 0, HOUR))

    def found(*segments: Segment, holder: Segment) -> tuple[int, list[Segment]]:
        seen = []

        def read(segment: Segment, names: Sequence[str]) -> pa.Table:
            seen.append(segment)
            return table.slice(0, int(segment is holder)).select([*names])

        coverage = Coverage(LakePlan(), until={"b": AT + HOUR})
        asked = questions([receipt(1)], [])
        return len([*receipt_discrepancies(asked, coverage, LedgerRows(segments, read), ReceiptTerms())]), seen

    assert found(early, own, late, holder=own) == (1, [own])
    assert found(early, own, late, holder=late) == (1, [own, late]), "its manifest is wrong about its times"
