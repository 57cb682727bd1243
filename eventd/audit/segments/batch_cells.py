"""The cells of batches: their receipts, as sender or receiver recorded them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eventd.audit.arrays.columns import Columns, Numbers
from eventd.audit.segments.batch_hashes import batch_hashes, receipt_hashes
from eventd.audit.segments.cells import HOUR, Cells, Measure
from eventd.lake.schema import Ledger
from eventd.runtime.clock import SECOND

if TYPE_CHECKING:
    import pyarrow as pa


def batch_cells(
    segment: str,
    what: Measure,
    table: Columns,
    rows: Numbers,
    *,
    ids: Numbers,
    events: Numbers,
    times: tuple[str, str],
    digests: Numbers | None = None,
    content: Numbers | None = None,
) -> pa.Table:
    """Return a cell for each batch, which has a row at one of these indexes, as its sender or its receiver keeps it.

    `total` is from `ids`: a hash of the batch's id, or its number; `high` is from `digests`: a hash of its receipt.
    `n` is from `events`: the number of events that the receiver recorded or had already. `times` names the columns
    with its first and its last time: `low` is the first (microseconds), `time` the hour since 1970 of the last, and
    `bin` its second in this hour. `type` is the epoch of the node that keeps the row. `content` is the number of these
    events that are new to the receiver; of CARRIED and ANSWERED, 1 if the receipt is signed. Their `high` is a hash of
    all that a receipt and its deliveries both say of the batch.
    """
    words = {name: table.words(name).at(rows) for name in ("node", "group", "peer", "epoch")}
    ends = (words["node"], words["peer"])
    source, peer = ends[::-1] if what is Measure.INBOUND else ends
    named = {"node": words["node"], "group": words["group"], "source": source, "peer": peer, "type": words["epoch"]}
    first, last = (table.numbers(name)[rows] for name in times)
    second = last % HOUR // SECOND
    cells = Cells(segment)
    cells.add(what, named, last // HOUR, events, bin=second, total=ids, low=first, high=digests, content=content)
    return cells.table()


def batch_times(cells: Columns) -> Numbers:
    """Return the end of the second in which the time `last` of each batch's cell lies, in microseconds: cells have it
    cut to the second."""
    return cells.numbers("time") * HOUR + (cells.numbers("bin") + 1) * SECOND


def sum_batches(segment: str, book: Ledger, table: Columns) -> pa.Table:
    """Return a cell for each batch with a receipt, from `receipts` of its sender or `inbound` of its receiver.

    It counts the events that the receiver recorded or had already, and has the epoch of the node that keeps the row.
    """
    of_sender = book is Ledger.RECEIPTS
    rows = np.flatnonzero(table.words("receipt_digest").where(bool))
    new = table.numbers("accepted")[rows]
    return batch_cells(
        segment,
        Measure.RECEIPT if of_sender else Measure.INBOUND,
        table,
        rows,
        ids=batch_hashes(table)[rows],
        events=new + table.numbers("duplicates")[rows],
        times=("sent_at", "acked_at") if of_sender else ("recorded_at", "recorded_at"),
        digests=receipt_hashes(table)[rows],
        content=new,
    )
