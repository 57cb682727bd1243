"""A batch that its receiver has erased is told from one that the sender has invented by the events of its time."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from eventd.audit.coverage.coverage import Coverage
from eventd.audit.receipts.receipt_terms import ReceiptTerms
from eventd.audit.report.findings import NO_BATCH, NO_INBOUND, Kind
from eventd.audit.segments.plan import LakePlan
from eventd.audit.verdicts.ledger_rows import LedgerRows
from eventd.audit.verdicts.receipt_verdicts import questioned_receipts, receipt_discrepancies
from eventd.lake.schema import Ledger
from eventd.lake.writer import Segment
from eventd.runtime.clock import SECOND
from tests.support.batch_tables import AT, inbound, receipt, receipt_cells, segment_of
from tests.support.ledger_rows import event_row, ledger_table

LATER = AT + SECOND


def ledgers(own: Sequence[bool], accepted: Sequence[int]) -> LedgerRows:
    """Return the receipt of `a` of a batch that `b` recorded at `AT`, and what `b` recorded at that time and later.

    `own` of each event, `accepted` of each batch.
    """
    events = [event_row(at, node="b", own=one, recorded_at=AT) for at, one in enumerate(own)]
    batches = [inbound(at, accepted=n) for at, n in enumerate(accepted, 2)]
    later = event_row(9, node="b", own=False, recorded_at=LATER), inbound(9, recorded_at=LATER)
    tables = {
        Ledger.EVENTS: ledger_table(Ledger.EVENTS, [*events, later[0]]),
        Ledger.INBOUND: ledger_table(Ledger.INBOUND, [*batches, later[1]]),
        Ledger.RECEIPTS: ledger_table(Ledger.RECEIPTS, [receipt(1, peer_recorded_at=AT)]),
    }

    def read(segment: Segment, names: Sequence[str]) -> pa.Table:
        return tables[segment.place.book].select([*names])

    nodes = {Ledger.RECEIPTS: "a"}
    return LedgerRows(
        [segment_of(nodes.get(book, "b"), book, table.num_rows, (AT, LATER)) for book, table in tables.items()], read
    )


@pytest.mark.parametrize(
    ("own", "accepted", "is_erased"),
    [
        pytest.param([False], [], True, id="an event came with no batch"),
        pytest.param([False, False], [1], True, id="one of two batches that were stored together is left"),
        pytest.param([False, False], [1, 1], False, id="all events came with the batches that are left"),
        pytest.param([True], [], False, id="the event is the peer's own"),
        pytest.param([], [], False, id="there is no event of that time"),
    ],
)
def test_a_batch_is_erased_if_the_peer_holds_events_that_its_batches_did_not_bring(
    own: Sequence[bool], accepted: Sequence[int], is_erased: bool
) -> None:
    questioned = questioned_receipts(receipt_cells([receipt(1)], []), (0, 1_000_000)).to_pylist()
    coverage = Coverage(LakePlan(), until={"b": AT + 60 * SECOND})
    (found,) = receipt_discrepancies(questioned, coverage, ledgers(own, accepted), ReceiptTerms())
    assert (found.kind, found.detail) == ((Kind.ERASED, NO_INBOUND) if is_erased else (Kind.FORGED, NO_BATCH))
