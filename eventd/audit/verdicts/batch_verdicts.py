"""Compares the receipts of a sender with its deliveries, batch by batch, and judges the batches that differ.

Both ledgers number batches alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from eventd.audit.arrays.columns import Columns, Mask, Numbers, grouped
from eventd.audit.report.findings import (
    MORE_DELIVERIES,
    NO_DELIVERIES,
    NO_RECEIPT,
    OTHER_BATCH,
    SAME_NUMBER,
    Discrepancy,
    Evidence,
    Kind,
)
from eventd.audit.segments.batch_cells import batch_times
from eventd.audit.segments.cells import Measure
from eventd.audit.segments.plan import NodeEpoch, NumberRanges, owner_of
from eventd.audit.segments.row_marks import PAIR
from eventd.audit.verdicts.ledger_rows import BatchKey, DeclaredLosses, LedgerRows, NumbersRead, batches_in
from eventd.lake.reader import Survey
from eventd.lake.schema import Ledger
from eventd.lake.writer import Segment

if TYPE_CHECKING:
    import pyarrow as pa

NUMBERED_BATCH: Final = (*PAIR, "type", "total")
"""The columns of cells that identify a batch: sender and peer, the sender's epoch (`type`) and the batch's number."""
_KINDS: Final = {
    SAME_NUMBER: Kind.FORGED,
    MORE_DELIVERIES: Kind.DISAGREEMENT,
    NO_DELIVERIES: Kind.ERASED,
    NO_RECEIPT: Kind.ERASED,
    OTHER_BATCH: Kind.ALTERED,
}


def uneven_batches(batches: pa.Table, hours: tuple[int, int]) -> pa.Table:
    """Return those of `joined_batches` whose receipts and deliveries contradict each other.

    Receipts count other numbers of events than there are deliveries, or say something else of the batch than these do
    (`other`), or there are `several` of a batch. `answered` is the number by the receipt, `carried` that of the
    deliveries; null without any row. The sender had recorded the receipt by `last` (microseconds). Those recorded
    outside of `hours` [first, last) are left out.
    """
    table = Columns(batches)
    answered, carried = _counts(table)
    hour = np.where(table.numbers("receipts") > 0, table.numbers("answered_hour"), table.numbers("carried_hour"))
    is_requested = (hours[0] <= hour) & (hour < hours[1])
    is_uneven = (answered != carried) | table.booleans("several") | table.booleans("other")
    uneven = batches.filter(is_uneven & is_requested).rename_columns({"total": "number"})
    return uneven.select([*NUMBERED_BATCH[:-1], "number", "answered", "carried", "last", "several", "other"])


def without_receipt(batches: pa.Table, unkept: NumberRanges | None = None) -> pa.Table:
    """Return, by link (its sender is the `source`), the number `n` of deliveries that no signed receipt counts.

    `batches` are `joined_batches`. Those of later hours count, too: a batch may be acknowledged long after the hours
    of its events. The column `unkept` says how many of these deliveries are of batches whose receipts the lake no
    longer keeps, by the numbers in the parameter `unkept`.
    """
    table = Columns(batches)
    answered, carried = _counts(table)
    is_sound = (table.numbers("signed") > 0) & ~table.booleans("several") & ~table.booleans("other")
    n = np.maximum(carried - np.where(is_sound, answered, 0), 0)
    links = batches.select([*PAIR]).append_column("n", _array(n))
    links = links.append_column("unkept", _array(np.where(_is_unkept(table, unkept or {}), n, 0)))
    return grouped(links.filter(_array(n > 0)), PAIR, [("n", "sum"), ("unkept", "sum")])


def _counts(batches: Columns) -> tuple[Numbers, Numbers]:
    """Return how many events receipts count and deliveries show of each batch, 0 without any row."""
    return np.maximum(batches.numbers("answered"), 0), np.maximum(batches.numbers("carried"), 0)


def joined_batches(cells: pa.Table) -> pa.Table:
    """Return a row for each batch, from cells of ANSWERED and CARRIED, with the values of its receipts and of its
    deliveries; null where it has none.

    The flags: there are `several` receipts, or its receipt and its deliveries do not say the same of the batch
    (`other`), see `batch_counts`.
    """
    joined = _joined_cells(cells)
    table = Columns(joined)
    receipts, named = table.numbers("receipts"), table.numbers("named")
    same = (named == table.numbers("least")) & (named == table.numbers("most"))
    other = (table.numbers("carried") > 0) & (receipts > 0) & ~same
    return joined.append_column("several", _array(receipts > 1)).append_column("other", _array(other))


def _joined_cells(cells: pa.Table) -> pa.Table:
    table = Columns(cells)
    what = table.numbers("what")
    cells = cells.rename_columns({"high": "named"}).append_column("last", _array(batch_times(table)))
    for name, column in (("most", table.numbers("high")), ("receipts", np.ones(table.rows, np.int64))):
        cells = cells.append_column(name, _array(column))
    of_receipt = {"n": "answered", "last": "last", "time": "answered_hour", "named": "named", "content": "signed"}
    answered = grouped(
        cells.filter(what == Measure.ANSWERED),
        NUMBERED_BATCH,
        [*((name, "max") for name in of_receipt), ("receipts", "sum")],
    )
    of_rows = [("n", "sum"), ("time", "max"), ("named", "min"), ("most", "max")]
    carried = grouped(cells.filter(what == Measure.CARRIED), NUMBERED_BATCH, of_rows)
    return answered.rename_columns([*NUMBERED_BATCH, *of_receipt.values(), "receipts"]).join(
        carried.rename_columns([*NUMBERED_BATCH, "carried", "carried_hour", "least", "most"]),
        keys=[*NUMBERED_BATCH],
        join_type="full outer",
    )


def _is_unkept(batches: Columns, unkept: NumberRanges) -> Mask:
    """Return a mask of the batches without a receipt whose numbers are in these ranges of their senders."""
    source, epoch, number = batches.words("source"), batches.words("type"), batches.numbers("total")
    found: Mask = np.zeros(batches.rows, bool)
    for (node, one), ranges in unkept.items():
        mine = source.where(node.__eq__) & epoch.where(one.__eq__)
        for after, upto in ranges:
            found |= mine & (after < number) & (number <= upto)
    return found & (batches.numbers("receipts") <= 0)


def _array(values: Any) -> pa.Array:
    import pyarrow as pa

    return pa.array(values)


def batch_discrepancies(
    uneven: Iterable[Mapping[str, Any]],
    survey: Survey,
    known: Collection[str],
    rows: LedgerRows,
    losses: DeclaredLosses,
) -> Iterator[Discrepancy]:
    """Yield a discrepancy for each of these batches, which are rows of `uneven_batches`.

    `known` are the names of the segments that they are from. Missing rows are left out if they may be in another one,
    which is damaged or was not read, or if the node declared that they are lost.
    """
    sought: defaultdict[tuple[NodeEpoch, Ledger], dict[BatchKey, str]] = defaultdict(dict)
    numbers = NumbersRead(survey, known)
    for row in uneven:
        owner = NodeEpoch(row["source"], row["type"])
        if detail := _detail(row, owner, numbers):
            book = Ledger.DELIVERIES if detail == NO_RECEIPT else Ledger.RECEIPTS
            sought[owner, book][row["number"], row["group"], row["peer"]] = detail
    ordered = {ledger: sorted(wanted) for ledger, wanted in sought.items()}
    for segment in rows.segments:
        ledger = owner_of(segment), segment.place.book
        inside = {key: sought[ledger][key] for key in batches_in(segment, ordered.get(ledger, ()))}
        if inside and segment.place.name in known:
            yield from _named(rows, segment, inside, losses)


def _detail(row: Mapping[str, Any], owner: NodeEpoch, numbers: NumbersRead) -> str:
    """Return the fault of a batch; empty if the missing rows may be in a segment that was not read."""
    carried, answered = row["carried"] or 0, row["answered"] or 0
    if row["several"]:
        return SAME_NUMBER
    if row["answered"] is None:
        return NO_RECEIPT if numbers.covers(owner, Ledger.RECEIPTS, row["number"]) else ""
    if carried > answered:
        return MORE_DELIVERIES
    if row["other"]:
        return OTHER_BATCH
    return NO_DELIVERIES if numbers.covers(owner, Ledger.DELIVERIES, row["number"]) else ""


def _named(
    rows: LedgerRows, segment: Segment, wanted: Mapping[BatchKey, str], losses: DeclaredLosses
) -> Iterator[Discrepancy]:
    """Yield the discrepancies of these batches in a segment of receipts or deliveries."""
    owner, of_receipts = owner_of(segment), segment.place.book is Ledger.RECEIPTS
    at = "acked_at" if of_receipts else "done_at"
    more = ["link_epoch", "after", "upto"] if of_receipts else []
    table = rows.read(segment, ["number", "group", "peer", "batch_id", "receipt_digest", at, *more])
    table = table.take(np.flatnonzero(np.isin(Columns(table).numbers("number"), [number for number, *_ in wanted])))
    times = Columns(table).numbers(at).tolist()
    found = set()
    for time, row in zip(times, table.drop_columns([at]).to_pylist(), strict=True):
        key = (row["number"], row["group"], row["peer"])
        detail = wanted.get(key)
        if detail is None or (key, row["batch_id"]) in found or losses.explain(owner, detail, row):
            continue
        found.add((key, row["batch_id"]))
        evidence = Evidence(owner.node, time, row["batch_id"], row["receipt_digest"])
        name = row["batch_id"] or f"{owner.epoch}/{row['number']}"  # the older protocol names no batches
        yield Discrepancy(_KINDS[detail], row["group"], owner.node, row["peer"], 0, name, detail, evidence)
