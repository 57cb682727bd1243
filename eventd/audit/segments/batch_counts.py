"""Counts, batch by batch, the events that a sender's receipts count and the rows in its ledger of deliveries.

Both ledgers are numbered by batch, so a row that was removed from one of them, or added to it, is missed by the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from eventd.audit.arrays.columns import NEVER, Columns, Numbers
from eventd.audit.arrays.row_hash import ODD
from eventd.audit.segments.cells import Measure, batch_cells
from eventd.audit.segments.ledger_summaries import digest_hashes, hash_of

if TYPE_CHECKING:
    import pyarrow as pa

COUNT_COLUMNS: Final = ("number", "node", "epoch", "group", "peer", "outcome", "done_at", "batch_id", "receipt_digest")
"""The columns of `deliveries` that show how many events of each batch were delivered, and by which receipt."""


def count_deliveries(segment: str, table: Columns) -> pa.Table:
    """Return a cell for each batch of a segment of `deliveries`: `n` is the number of rows with a delivered event.

    A batch has several cells if its rows do not follow each other, or name several ids or receipts.
    """
    rows = np.flatnonzero(table.words("outcome").where("delivered".__eq__))
    columns: list[npt.NDArray[np.integer]] = [table.numbers("number")]
    columns += [table.words(name).codes for name in ("group", "peer", "batch_id", "receipt_digest")]
    changed = np.zeros(len(rows), bool)
    changed[:1] = True
    for column in columns:
        values = column[rows]
        changed[1:] |= values[1:] != values[:-1]
    starts = np.flatnonzero(changed)
    names = table.words("batch_id")
    ids = np.array([hash_of(name) for name in names.values], np.int64)[names.codes]
    return _cells(segment, Measure.CARRIED, table, rows[starts], np.diff(starts, append=len(rows)), ids, "done_at")


def count_receipts(segment: str, table: Columns) -> pa.Table:
    """Return a cell for each row of a segment of `receipts`: `n` is the number of events that were delivered."""
    accepted, duplicates = table.numbers("accepted"), table.numbers("duplicates")
    n = np.where(accepted == NEVER, table.numbers("sent"), accepted + duplicates)
    rows = np.arange(table.rows)
    ids = np.array([hash_of(batch) for batch in table.some("batch_id", rows >= 0)], np.int64)
    return _cells(segment, Measure.ANSWERED, table, rows, n, ids, "acked_at")


def _cells(segment: str, what: Measure, table: Columns, rows: Numbers, n: Any, ids: Numbers, time: str) -> pa.Table:
    """Return a cell with the count `n` for each of these rows; `ids`: the hashes of the batch ids of all rows."""
    node, digest = table.words("node").at(rows), table.words("receipt_digest").at(rows)
    ends = {"node": node, "group": table.words("group").at(rows), "source": node, "peer": table.words("peer").at(rows)}
    ends["type"] = table.words("epoch").at(rows)
    at, named = table.numbers(time)[rows], (digest_hashes(table) ^ (ids * ODD))[rows]
    signed = digest.where(bool).astype(np.int64)
    return batch_cells(segment, what, ends, table.numbers("number")[rows], n, named, at, at, signed)
