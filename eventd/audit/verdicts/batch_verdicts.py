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
from eventd.audit.segments.cells import Measure, batch_times
from eventd.audit.segments.plan import NodeEpoch, NumberRanges, owner_of
from eventd.audit.segments.row_marks import PairKey
from eventd.audit.verdicts.ledger_rows import BatchKey, DeclaredLosses, LedgerRows, NumbersRead, batches_in
from eventd.lake.reader import Survey
from eventd.lake.schema import Ledger
from eventd.lake.writer import Segment

if TYPE_CHECKING:
    import pyarrow as pa

BATCH: Final = (*PairKey._fields, "type", "total")
"""The columns of cells that identify a batch: sender and peer, the sender's epoch (`type`) and the batch's number."""
_KINDS: Final = {
    SAME_NUMBER: Kind.FORGED,
    MORE_DELIVERIES: Kind.DISAGREEMENT,
    NO_DELIVERIES: Kind.ERASED,
    NO_RECEIPT: Kind.ERASED,
    OTHER_BATCH: Kind.ALTERED,
}


def compare_batches(cells: pa.Table, hours: tuple[int, int], unkept: NumberRanges | None = None) -> dict[str, pa.Table]:
    """Return the tables `batches` and `without_receipt`, from cells of CARRIED and ANSWERED.

    `batches` has the batches of which receipts count other numbers of events than there are deliveries, or name another
    batch or receipt than these do (`other`), or that have `several` receipts. `answered` is the number by the receipt,
    `carried` that of the deliveries; null without any row. The sender had recorded the receipt by `last`
    (microseconds). Those recorded outside of `hours` [first, last) are left out.

    `without_receipt` has the number `n` of deliveries by link (its sender is the `source`) that no signed receipt
    counts, also of other hours: the hours of events are not those of their batches. `unkept` is how many of them are of
    batches with numbers of which the lake keeps no receipts any more, by the parameter `unkept`.
    """
    joined = _joined(cells)
    table = Columns(joined)
    answered, carried = (np.maximum(table.numbers(name), 0) for name in ("answered", "carried"))
    hour = np.where(table.numbers("receipts") > 0, table.numbers("answered_hour"), table.numbers("carried_hour"))
    several = table.numbers("receipts") > 1
    same = (table.numbers("named") == table.numbers("least")) & (table.numbers("named") == table.numbers("most"))
    other = (carried > 0) & (table.numbers("receipts") > 0) & ~same
    for name, mask in (("several", several), ("other", other)):
        joined = joined.append_column(name, _array(mask))
    asked = (hours[0] <= hour) & (hour < hours[1])
    uneven = joined.filter(((answered != carried) | several | other) & asked).rename_columns({"total": "number"})
    counted = np.where((table.numbers("signed") > 0) & ~several & ~other, answered, 0)
    return {
        "batches": uneven.select([*BATCH[:-1], "number", "answered", "carried", "last", "several", "other"]),
        "without_receipt": _sums_by_link(joined, np.maximum(carried - counted, 0), _is_unkept(table, unkept or {})),
    }


def _joined(cells: pa.Table) -> pa.Table:
    """Return a row for each batch: what its receipts say, and what its deliveries say; null without any."""
    table = Columns(cells)
    what = table.numbers("what")
    cells = cells.rename_columns({"high": "named"}).append_column("last", _array(batch_times(table)))
    for name, column in (("most", table.numbers("high")), ("receipts", np.ones(table.rows, np.int64))):
        cells = cells.append_column(name, _array(column))
    of_receipt = {"n": "answered", "last": "last", "time": "answered_hour", "named": "named", "content": "signed"}
    answered = grouped(
        cells.filter(what == Measure.ANSWERED), BATCH, [*((name, "max") for name in of_receipt), ("receipts", "sum")]
    )
    of_rows = [("n", "sum"), ("time", "max"), ("named", "min"), ("most", "max")]
    carried = grouped(cells.filter(what == Measure.CARRIED), BATCH, of_rows)
    return answered.rename_columns([*BATCH, *of_receipt.values(), "receipts"]).join(
        carried.rename_columns([*BATCH, "carried", "carried_hour", "least", "most"]),
        keys=[*BATCH],
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


def _sums_by_link(batches: pa.Table, n: Numbers, unkept: Mask) -> pa.Table:
    links = batches.select([*PairKey._fields]).append_column("n", _array(n))
    links = links.append_column("unkept", _array(np.where(unkept, n, 0)))
    return grouped(links.filter(_array(n > 0)), PairKey._fields, [("n", "sum"), ("unkept", "sum")])


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
    """Yield a discrepancy for each of these batches, which are rows of `batches` of `compare_batches`.

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
    """Return what is wrong with a batch; empty if the missing rows may be in a segment that was not read."""
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
