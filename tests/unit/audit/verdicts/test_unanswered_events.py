"""Refusals of a batch without a fitting answer are doubted, unless the node declared that it lost the receipt."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from eventd.audit.segments.ledger_summaries import DeclaredGap, LedgerSummary
from eventd.audit.segments.plan import NodeEpoch
from eventd.audit.verdicts.ledger_rows import DeclaredLosses, LedgerRows
from eventd.audit.verdicts.refused_events import unanswered_events
from eventd.lake.manifest import LakeHead
from eventd.lake.reader import Survey
from eventd.lake.schema import Ledger
from eventd.lake.writer import Segment
from tests.support.batch_tables import AT, delivery, segment_of
from tests.support.ledger_rows import ledger_table


@pytest.mark.parametrize(
    ("reason", "upto", "doubted"),
    [
        pytest.param("receipts_forgotten", 1, 0, id="its receipt is lost"),
        pytest.param("receipts_forgotten", 0, 1, id="receipts of other batches are lost"),
        pytest.param("deliveries_forgotten", 1, 1, id="deliveries are lost"),
    ],
)
def test_a_refusal_is_not_doubted_if_the_node_declared_that_it_could_not_ship_the_receipt(
    reason: str, upto: int, doubted: int
) -> None:
    table = ledger_table(
        Ledger.DELIVERIES, [delivery(1, outcome="refused", protocol="v2", source="a", position=1, event_at=AT)]
    )
    segments = [segment_of("a", book, rows) for book, rows in ((Ledger.DELIVERIES, 1), (Ledger.RECEIPTS, 0))]

    def read(segment: Segment, names: Sequence[str]) -> pa.Table:
        return table.select([*names])

    gap = DeclaredGap("g", "", "e", -1, upto, reason, AT)
    lake = Survey(LakeHead(id="1", made_at=0), [], segments, [])
    losses = DeclaredLosses(lake, {NodeEpoch("a", "e"): [LedgerSummary(gaps=[gap])]})
    batches = [{"group": "g", "source": "a", "peer": "b", "type": "e", "number": 1}]
    rows, known = LedgerRows(segments, read), {one.place.name for one in segments}
    assert len(unanswered_events(batches, lake, known, rows, (0, 1_000_000), losses)) == doubted
