"""Ledger rows of batches for the parts of the audit, as tables of the lake: sent by `a` to `b`, each with one event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from eventd.audit.segments.batch_cells import sum_batches
from eventd.audit.segments.batch_counts import count_deliveries, count_receipts
from eventd.lake.layout import landing
from eventd.lake.manifest import Manifest
from eventd.lake.schema import Ledger
from eventd.lake.writer import Segment
from eventd.runtime.clock import SECOND
from tests.support.ledger_rows import Row, columns_of

HOUR: Final = 3600 * SECOND
AT: Final = 490_000 * HOUR


def receipt(batch: int, **fields: Any) -> Row:
    """Return a row of `receipts` of `a` that was acknowledged at `AT`."""
    made = {"number": batch, "node": "a", "epoch": "e", "group": "g", "peer": "b", "batch_id": f"batch-{batch}"}
    made |= {"link_epoch": "e", "after": batch - 1, "upto": batch, "sent": 1, "accepted": 1, "duplicates": 0}
    return made | {"sent_at": AT, "acked_at": AT, "status": 200, "receipt_digest": str(batch) * 64} | fields


def delivery(batch: int, **fields: Any) -> Row:
    """Return a row of `deliveries` of `a`: the only event of the batch with this number."""
    made = {"number": batch, "node": "a", "epoch": "e", "group": "g", "peer": "b", "batch_id": f"batch-{batch}"}
    made |= {"outcome": "delivered", "status": 200, "attempt_at": AT, "done_at": AT}
    return made | {"receipt_digest": str(batch) * 64} | fields


def inbound(batch: int, **fields: Any) -> Row:
    """Return a row of `inbound` of `b`, of the batch that `a` sent under this number."""
    made = {"number": batch, "node": "b", "epoch": "f", "group": "g", "peer": "a", "batch_id": f"batch-{batch}"}
    made |= {"after": batch - 1, "upto": batch, "accepted": 1, "recorded_at": AT}
    return made | {"receipt_digest": str(batch) * 64} | fields


def segment_of(node: str, book: Ledger, rows: int, times: tuple[int, int] = (AT, AT)) -> Segment:
    """Return the segment of a node's ledger with the numbers up to 9; `times` are those of its rows."""
    manifest = Manifest(
        book=book,
        node=node,
        epoch="e",
        after=0,
        upto=9,
        rows=rows,
        bytes=1,
        sha256="",
        slots=None,
        times=times,
        written_at=times[1],
    )
    return Segment(landing(book, node, "e", 0, 9, at=times[0]), manifest)


def receipt_cells(receipts: Sequence[Row], copies: Sequence[Row]) -> pa.Table:
    """Return the cells of RECEIPT and INBOUND of these rows, each as if in a segment of its own."""
    rows = [*((Ledger.RECEIPTS, row) for row in receipts), *((Ledger.INBOUND, row) for row in copies)]
    return _joined([sum_batches(f"s{at}", book, columns_of(book, [row])) for at, (book, row) in enumerate(rows)])


def number_cells(receipts: Sequence[Row], deliveries: Sequence[Row]) -> pa.Table:
    """Return the cells of ANSWERED and CARRIED of these rows, each as if in a segment of its own."""
    made = [count_receipts(f"r{at}", columns_of(Ledger.RECEIPTS, [row])) for at, row in enumerate(receipts)]
    made += [count_deliveries(f"d{at}", columns_of(Ledger.DELIVERIES, [row])) for at, row in enumerate(deliveries)]
    return _joined(made)


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks().drop_columns(["segment"])
