"""Counts, batch by batch, the events that a sender's receipts count and the rows in its ledger of deliveries.

Both ledgers are numbered by batch, so if a row was removed from one of them or added to it, the two no longer match.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from eventd.audit.arrays.columns import NEVER, Columns, Numbers
from eventd.audit.arrays.row_hash import RowHash
from eventd.audit.segments.batch_cells import batch_cells
from eventd.audit.segments.batch_hashes import batch_hashes, digest_hashes
from eventd.audit.segments.cells import Measure

if TYPE_CHECKING:
    import pyarrow as pa

_OF_BATCH: Final = {
    "selector_version": "selector_version",
    "attempts": "attempts",
    "status": "status",
    "attempt_at": "sent_at",
    "done_at": "acked_at",
    "peer_recorded_at": "peer_recorded_at",
}
"""The columns of numbers that the deliveries of a batch share with its receipt, with their names in `receipts`."""
_WORDS_OF_BATCH: Final = ("protocol", "key_id")
"""The columns of words that the deliveries of a batch share with its receipt, besides the ids of batch and receipt."""
COUNT_COLUMNS: Final = (
    *("number", "node", "epoch", "group", "peer", "outcome", "batch_id", "receipt_digest", "repair"),
    *_WORDS_OF_BATCH,
    *_OF_BATCH,
)
"""The columns of `deliveries` that show how many events of each batch were delivered, and by which receipt."""


def count_deliveries(segment: str, table: Columns, key: bytes = b"") -> pa.Table:
    """Return a cell for each batch of a segment of `deliveries`: `n` is the number of rows with a delivered event.

    A batch has several cells if its rows do not follow each other, or state different values for the batch. `key` is
    the key of the hash of these values.
    """
    delivered = np.flatnonzero(table.words("outcome").where("delivered".__eq__))
    words = ("batch_id", "receipt_digest", *_WORDS_OF_BATCH)
    rows, n = first_rows(table, delivered, words=words, numbers=_OF_BATCH, flags=("repair",))
    return _cells(segment, Measure.CARRIED, table, rows, n, "done_at", _said(table, rows, _OF_BATCH, key))


def first_rows(
    table: Columns,
    rows: Numbers,
    *,
    words: Iterable[str] = (),
    numbers: Iterable[str] = (),
    flags: Iterable[str] = (),
) -> tuple[Numbers, Numbers]:
    """Return those of these rows of `deliveries` that begin a batch, and how many of the rows each batch has.

    A new batch begins if the rows do not follow each other, or differ in one of these columns.
    """
    columns: list[npt.NDArray[Any]] = [table.numbers(name) for name in ("number", *numbers)]
    columns += [table.words(name).codes for name in ("group", "peer", *words)]
    columns += [table.booleans(name) for name in flags]
    changed = np.zeros(len(rows), bool)
    changed[:1] = True
    for column in columns:
        values = column[rows]
        changed[1:] |= values[1:] != values[:-1]
    starts = np.flatnonzero(changed)
    return rows[starts], np.diff(starts, append=len(rows))


def count_receipts(segment: str, table: Columns, key: bytes = b"") -> pa.Table:
    """Return a cell for each row of a segment of `receipts`: `n` is the number of events that were delivered.

    `key`: see `count_deliveries`.
    """
    accepted, duplicates = table.numbers("accepted"), table.numbers("duplicates")
    n = np.where(accepted == NEVER, table.numbers("sent"), accepted + duplicates)
    rows = np.arange(table.rows)
    said = _said(table, rows, {name: name for name in _OF_BATCH.values()}, key)
    return _cells(segment, Measure.ANSWERED, table, rows, n, "acked_at", said)


def _said(table: Columns, rows: Numbers, columns: Mapping[str, str], key: bytes) -> Numbers:
    """Return a keyed hash of what these rows of deliveries or receipts say of their batch.

    `columns`: those of numbers, with their names in `receipts`.
    """
    made = RowHash(key, len(rows))
    made.add_numbers("batch_id", batch_hashes(table)[rows])
    made.add_numbers("receipt_digest", digest_hashes(table)[rows])
    made.add_numbers("repair", table.booleans("repair")[rows].astype(np.int64))
    for name in _WORDS_OF_BATCH:
        words = table.words(name).at(rows)
        made.add_words(name, words.values, words.codes)
    for name, of_receipt in columns.items():
        made.add_numbers(of_receipt, table.numbers(name)[rows])
    return made.sums()


def _cells(
    segment: str, what: Measure, table: Columns, rows: Numbers, n: Numbers, time: str, said: Numbers
) -> pa.Table:
    """Return a cell with the count `n` for each of these rows."""
    return batch_cells(
        segment,
        what,
        table,
        rows,
        ids=table.numbers("number")[rows],
        events=n,
        times=(time, time),
        digests=said,
        content=table.words("receipt_digest").at(rows).where(bool).astype(np.int64),
    )
