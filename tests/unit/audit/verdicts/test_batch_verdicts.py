"""Batches of a sender whose receipts and deliveries differ: what is wrong with each, and what excuses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from eventd.audit.report.findings import (
    MORE_DELIVERIES,
    NO_DELIVERIES,
    NO_RECEIPT,
    OTHER_BATCH,
    SAME_NUMBER,
    Discrepancy,
    Kind,
)
from eventd.audit.segments.ledger_summaries import DeclaredGap, LedgerSummary
from eventd.audit.segments.plan import NodeEpoch
from eventd.audit.verdicts.batch_verdicts import (
    batch_discrepancies,
    joined_batches,
    uneven_batches,
    without_receipt,
)
from eventd.audit.verdicts.ledger_rows import DeclaredLosses, LedgerRows
from eventd.lake.manifest import LakeHead
from eventd.lake.reader import Survey
from eventd.lake.schema import Ledger
from eventd.lake.writer import Segment
from tests.support.batch_tables import AT, HOUR, delivery, number_cells, receipt, segment_of
from tests.support.ledger_rows import Row, ledger_table

ALWAYS = (0, 1_000_000)


def judged(
    receipts: Sequence[Row], deliveries: Sequence[Row], gaps: Sequence[tuple[str, DeclaredGap]] = ()
) -> list[Discrepancy]:
    """Return the discrepancies of these rows of `a`; each gap is declared by a node."""
    tables = {
        Ledger.RECEIPTS: ledger_table(Ledger.RECEIPTS, receipts),
        Ledger.DELIVERIES: ledger_table(Ledger.DELIVERIES, deliveries),
    }
    segments = [segment_of("a", book, table.num_rows) for book, table in tables.items()]

    def read(one: Segment, names: Sequence[str]) -> pa.Table:
        return tables[one.place.book].select([*names])

    lake = Survey(LakeHead(id="1", made_at=0), [], segments, [])
    summaries = {NodeEpoch(node, "e"): [LedgerSummary(gaps=[gap])] for node, gap in gaps}
    rows = uneven_batches(joined_batches(number_cells(receipts, deliveries)), ALWAYS).to_pylist()
    known = {one.place.name for one in segments}
    return [*batch_discrepancies(rows, lake, known, LedgerRows(segments, read), DeclaredLosses(lake, summaries))]


def faults(receipts: Sequence[Row], deliveries: Sequence[Row], *gaps: tuple[str, DeclaredGap]) -> list[Any]:
    return [(one.kind, one.peer, one.id, one.detail) for one in judged(receipts, deliveries, gaps)]


def claims_by_peer(receipts: Sequence[Row], deliveries: Sequence[Row]) -> dict[str, int]:
    rows = without_receipt(joined_batches(number_cells(receipts, deliveries))).to_pylist()
    return {row["peer"]: row["n"] for row in rows}


HEALTHY = ([receipt(1, accepted=1, duplicates=1), receipt(2)], [delivery(1), delivery(1), delivery(2)])


def test_batches_of_which_receipt_and_deliveries_agree_are_in_order() -> None:
    assert faults(*HEALTHY) == []
    assert claims_by_peer(*HEALTHY) == {}


def test_a_delivery_added_to_a_batch_contradicts_its_receipt_and_is_a_claim() -> None:
    receipts, deliveries = HEALTHY
    added = [*deliveries, delivery(2, id="another")]
    assert faults(receipts, added) == [(Kind.DISAGREEMENT, "b", "batch-2", MORE_DELIVERIES)]
    assert claims_by_peer(receipts, added) == {"b": 1}


def test_refused_and_expired_events_of_a_batch_are_not_deliveries() -> None:
    receipts = [receipt(1, sent=2, refused=1)]
    others = [delivery(1, outcome="refused"), delivery(1, outcome="expired", receipt_digest="")]
    assert faults(receipts, [delivery(1), *others]) == []
    assert claims_by_peer(receipts, [delivery(1), *others]) == {}


@pytest.mark.parametrize(
    "change",
    [
        {"batch_id": "another"},
        {"receipt_digest": "f" * 64},
        {"selector_version": 98},
        {"attempt_at": AT - 1},
        {"done_at": AT + 1},
        {"peer_recorded_at": AT},
        {"attempts": 9},
        {"status": 409},
        {"protocol": "v1"},
        {"key_id": "another"},
        {"repair": True},
    ],
)
def test_a_delivery_that_says_something_else_of_its_batch_than_the_receipt_is_altered(change: dict[str, Any]) -> None:
    receipts, deliveries = HEALTHY
    changed = [delivery(1, **change), *deliveries[1:]]
    assert faults(receipts, changed) == [(Kind.ALTERED, "b", "batch-1", OTHER_BATCH)]
    assert claims_by_peer(receipts, changed) == {"b": 2}


def test_a_second_receipt_under_one_number_does_not_count_for_added_deliveries() -> None:
    second = receipt(2, batch_id="another", sent=9, accepted=9)
    receipts, deliveries = [*HEALTHY[0], second], [*HEALTHY[1], *[delivery(2)] * 8]
    assert faults(receipts, deliveries) == [
        (Kind.FORGED, "b", "batch-2", SAME_NUMBER),
        (Kind.FORGED, "b", "another", SAME_NUMBER),
    ]
    assert claims_by_peer(receipts, deliveries) == {"b": 9}


def test_rows_missing_from_one_of_the_ledgers_are_erased() -> None:
    receipts, deliveries = HEALTHY
    assert faults(receipts, deliveries[:-1]) == [(Kind.ERASED, "b", "batch-2", NO_DELIVERIES)]
    assert faults(receipts[:-1], deliveries) == [(Kind.ERASED, "b", "batch-2", NO_RECEIPT)]
    assert claims_by_peer(receipts[:-1], deliveries) == {"b": 1}


def test_a_delivery_to_another_peer_under_the_number_of_a_batch_says_nothing_about_that_batch() -> None:
    receipts, deliveries = HEALTHY
    added = [*deliveries, delivery(2, peer="c", batch_id="batch-x")]
    assert faults(receipts, added) == [(Kind.ERASED, "c", "batch-x", NO_RECEIPT)]
    assert claims_by_peer(receipts, added) == {"c": 1}


def test_deliveries_by_unsigned_answers_are_claims() -> None:
    older = {"batch_id": "", "receipt_digest": ""}
    receipts = [receipt(1, accepted=None, duplicates=None, **older), receipt(2)]
    assert faults(receipts, [delivery(1, **older), delivery(2)]) == []
    assert claims_by_peer(receipts, [delivery(1, **older), delivery(2)]) == {"b": 1}


def test_deliveries_whose_receipts_are_not_kept_any_more_are_counted_apart() -> None:
    receipts, deliveries = [receipt(2), receipt(3)], [delivery(1), delivery(2), delivery(2), delivery(3), delivery(4)]
    unkept = {NodeEpoch("a", "e"): [(0, 1)], NodeEpoch("a", "other"): [(0, 9)], NodeEpoch("b", "e"): [(0, 9)]}
    (found,) = without_receipt(joined_batches(number_cells(receipts, deliveries)), unkept).to_pylist()
    assert (found["n"], found["unkept"]) == (3, 1)


def test_claims_are_counted_in_all_hours_and_faults_only_in_those_asked_for() -> None:
    hour = AT // HOUR
    receipts, deliveries = [receipt(1)], [delivery(1), delivery(1)]
    for hours, count in (((hour, hour + 1), 1), ((hour - 1, hour), 0)):
        batches = joined_batches(number_cells(receipts, deliveries))
        assert uneven_batches(batches, hours).num_rows == count
        assert claims_by_peer(receipts, deliveries) == {"b": 1}


def gap(**fields: Any) -> DeclaredGap:
    made = {"group": "g", "peer": "b", "gap_epoch": "e", "after": 1, "upto": 2, "reason": "deliveries_lost"}
    return DeclaredGap(**(made | {"recorded_at": AT} | fields))


@pytest.mark.parametrize(
    ("node", "fields", "explains"),
    [
        pytest.param("a", {}, True, id="its own"),
        pytest.param("b", {}, False, id="of another node"),
        pytest.param("a", {"gap_epoch": "e2"}, False, id="in another epoch"),
        pytest.param("a", {"peer": "c"}, False, id="to another peer"),
        pytest.param("a", {"group": "h"}, False, id="in another group"),
        pytest.param("a", {"upto": 3}, False, id="of another range"),
        pytest.param("a", {"reason": "events_lost"}, False, id="of another ledger"),
        pytest.param("a", {"reason": "deliveries_forgotten", "peer": ""}, True, id="of its numbers"),
        pytest.param("b", {"reason": "deliveries_forgotten", "peer": ""}, False, id="of the numbers of another node"),
        pytest.param("a", {"reason": "receipts_forgotten", "peer": ""}, False, id="of the numbers of receipts"),
        pytest.param("a", {"reason": "deliveries_forgotten", "peer": "", "upto": 1}, False, id="of other numbers"),
    ],
)
def test_missing_deliveries_are_explained_by_a_gap_that_their_node_declared_for_them(
    node: str, fields: dict[str, Any], explains: bool
) -> None:
    receipts, deliveries = HEALTHY
    found = faults(receipts, deliveries[:-1], (node, gap(**fields)))
    assert found == ([] if explains else [(Kind.ERASED, "b", "batch-2", NO_DELIVERIES)])


def test_a_missing_receipt_is_explained_by_forgotten_receipts_and_not_by_lost_deliveries() -> None:
    receipts, deliveries = HEALTHY
    assert faults(receipts[:-1], deliveries, ("a", gap(reason="receipts_forgotten", peer=""))) == []
    assert len(faults(receipts[:-1], deliveries, ("a", gap()))) == 1


def test_a_declared_gap_explains_no_delivery_that_was_added() -> None:
    receipts, deliveries = HEALTHY
    assert len(faults(receipts, [*deliveries, delivery(2)], ("a", gap()))) == 1
