"""The cells of a segment: latencies to the peer are corrected by the difference of the clocks."""

from __future__ import annotations

from eventd.audit.segments.cells import Measure
from eventd.audit.segments.delivery_cells import sum_deliveries
from eventd.audit.segments.hourly_skew import HourlySkew
from eventd.lake.schema import Ledger
from eventd.runtime.clock import SECOND
from tests.support.ledger_rows import columns_of, delivery_row


def test_latencies_to_the_peer_are_corrected_by_its_clock() -> None:
    row = delivery_row(1, event_at=0, attempt_at=SECOND, done_at=2 * SECOND, peer_recorded_at=41 * SECOND)
    cells = sum_deliveries("1", columns_of(Ledger.DELIVERIES, [row]), {"b": HourlySkew((0,), (39 * SECOND,))})
    longest = {row["what"]: row["high"] for row in cells.to_pylist()}
    assert longest[Measure.PEER_RECORDED] == SECOND
    assert longest[Measure.WHOLE] == 2 * SECOND
