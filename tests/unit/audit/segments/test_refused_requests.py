"""Counts of refused requests are added up without wrapping around, however large a row says they are."""

from __future__ import annotations

from eventd.audit.segments.ledger_summaries import summarize
from eventd.lake.layout import LARGEST
from eventd.lake.schema import Ledger
from tests.support.ledger_rows import columns_of


def test_a_sum_that_needs_more_than_64_bits_is_the_largest_number_of_a_lake() -> None:
    rows = [{"number": at, "group": "g", "peer": "b", "reason": "key", "count": LARGEST} for at in range(1, 10_001)]
    (few,) = summarize(
        Ledger.REFUSALS, columns_of(Ledger.REFUSALS, [rows[0] | {"count": 3}, rows[1] | {"count": 4}]), limit=0
    ).refused
    (many,) = summarize(Ledger.REFUSALS, columns_of(Ledger.REFUSALS, rows), limit=0).refused
    assert (few.count, many.count) == (7, LARGEST)
