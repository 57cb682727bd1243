"""Counts, batch by batch, the events that a sender's receipts count and the rows in its ledger of deliveries.

Both ledgers are numbered by batch, so a row that was removed from one of them, or added to it, is missed by the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from eventd.audit.arrays.columns import NEVER, Columns, Numbers
from eventd.audit.arrays.row_hash import ODD
from eventd.audit.segments.cells import Measure, batch_cells
from eventd.audit.segments.ledger_summaries import batch_hashes, digest_hashes

if TYPE_CHECKING:
    import pyarrow as pa

COUNT_COLUMNS: Final = ("number", "node", "epoch", "group", "peer", "outcome", "done_at", "batch_id", "receipt_digest")
"""The columns of `deliveries` that show how many events of each batch were delivered, and by which receipt."""


def count_deliveries(segment: str, table: Columns) -> pa.Table:
    """Return a cell for each batch of a segment of `deliveries`: `n` is the number of rows with a delivered event.

    A batch has several cells if its rows do not follow each other, or name several ids or receipts.
    """
    delivered = np.flatnonzero(table.words("outcome").where("delivered".__eq__))
    rows, n = first_rows(table, delivered, "batch_id", "receipt_digest")
    return _cells(segment, Measure.CARRIED, table, rows, n, "done_at")


def first_rows(table: Columns, rows: Numbers, *names: str) -> tuple[Numbers, Numbers]:
    """Return those of these rows of `deliveries` that begin a batch, and how many of the rows each batch has.

    A batch begins anew if its rows do not follow each other, or differ in one of the columns `names`, which have words.
    """
    columns: list[npt.NDArray[np.integer]] = [table.numbers("number")]
    columns += [table.words(name).codes for name in ("group", "peer", *names)]
    changed = np.zeros(len(rows), bool)
    changed[:1] = True
    for column in columns:
        values = column[rows]
        changed[1:] |= values[1:] != values[:-1]
    starts = np.flatnonzero(changed)
    return rows[starts], np.diff(starts, append=len(rows))


def count_receipts(segment: str, table: Columns) -> pa.Table:
    """Return a cell for each row of a segment of `receipts`: `n` is the number of events that were delivered."""
    accepted, duplicates = table.numbers("accepted"), table.numbers("duplicates")
    n = np.where(accepted == NEVER, table.numbers("sent"), accepted + duplicates)
    return _cells(segment, Measure.ANSWERED, table, np.arange(table.rows), n, "acked_at")


def _cells(segment: str, what: Measure, table: Columns, rows: Numbers, n: Numbers, time: str) -> pa.Table:
    """Return a cell with the count `n` for each of these rows."""
    return batch_cells(
        segment,
        what,
        table,
        rows,
        ids=table.numbers("number")[rows],
        events=n,
        times=(time, time),
        digests=(digest_hashes(table) ^ (batch_hashes(table) * ODD))[rows],
        content=table.words("receipt_digest").at(rows).where(bool).astype(np.int64),
    )
