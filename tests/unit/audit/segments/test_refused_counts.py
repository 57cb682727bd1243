"""The refused events of a batch are counted in one cell, however many they are."""

from __future__ import annotations

from eventd.audit.segments.cells import Measure
from eventd.audit.segments.refused_counts import count_refused_rows
from eventd.lake.schema import Ledger
from tests.support.batch_tables import delivery
from tests.support.ledger_rows import columns_of

REFUSED = {"outcome": "refused", "protocol": "v2"}


def test_a_batch_has_one_cell_for_all_its_refused_events() -> None:
    rows = [delivery(1, **REFUSED)] * 3 + [delivery(1)] + [delivery(2, peer=peer, **REFUSED) for peer in "bcc"]
    cells = count_refused_rows("s", columns_of(Ledger.DELIVERIES, rows)).to_pylist()
    assert [(one["total"], one["peer"], one["n"]) for one in cells] == [(1, "b", 3), (2, "b", 1), (2, "c", 2)]
    assert {(one["what"], one["source"], one["type"]) for one in cells} == {(Measure.REFUSED_ROWS, "a", "e")}
