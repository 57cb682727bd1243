"""Counts, batch by batch, the events that a sender notes as refused, and those that the peer's answer accounts for.

A peer counts the events that it refuses in its receipt. The answers of the older protocol and of callbacks do not, so
that these refusals are known by the sender's ledger alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from eventd.audit.arrays.columns import Columns, Mask, Numbers
from eventd.audit.segments.batch_cells import batch_cells
from eventd.audit.segments.batch_counts import first_rows
from eventd.audit.segments.cells import Measure

if TYPE_CHECKING:
    import pyarrow as pa

REFUSED_COLUMNS: Final = ("number", "node", "epoch", "group", "peer", "outcome", "protocol", "done_at")
"""The columns of `deliveries` that show which events were refused."""
_SIGNED: Final = "v2"
"""The protocol whose receipts count refused events."""


def is_refusal(table: Columns) -> Mask:
    """Return a mask of the rows of `deliveries` with an event that the peer refused by a protocol with receipts."""
    return table.words("outcome").where("refused".__eq__) & table.words("protocol").where(_SIGNED.__eq__)


def count_refused_rows(segment: str, table: Columns) -> pa.Table:
    """Return a cell for each batch with refused events in a segment of `deliveries`; `n`: how many.

    A batch has several cells if these rows do not follow each other.
    """
    rows, n = first_rows(table, np.flatnonzero(is_refusal(table)))
    return _cells(segment, Measure.REFUSED_ROWS, table, rows, n, "done_at")


def count_refused_answers(segment: str, table: Columns) -> pa.Table:
    """Return a cell for each batch of a segment of `receipts` whose answer accounts for refused events; `n`: how many.

    An event that is too large even for a batch with no other event has only the receipt of an empty batch, which is
    sent in its stead; the sender of a repair keeps only the answer.
    """
    refused = np.maximum(table.numbers("refused"), 0)
    n = refused + ((table.numbers("sent") == 0) & (table.numbers("status") != 0))
    rows = np.flatnonzero((n > 0) & table.words("protocol").where(_SIGNED.__eq__))
    return _cells(segment, Measure.REFUSED_ANSWERS, table, rows, n[rows], "acked_at")


def _cells(segment: str, what: Measure, table: Columns, rows: Numbers, n: Numbers, time: str) -> pa.Table:
    return batch_cells(segment, what, table, rows, ids=table.numbers("number")[rows], events=n, times=(time, time))
