"""Compares, batch by batch, the events that a sender's receipts count with the rows in its ledger of deliveries.

Both ledgers are numbered by batch, so a row that was removed from one of them is missed by the other.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from eventd.audit.arrays.columns import NEVER, Columns, grouped
from eventd.audit.report.findings import NO_DELIVERIES, NO_RECEIPT, Discrepancy, Evidence, Kind
from eventd.audit.segments.cells import Measure, batch_cells, batch_times
from eventd.audit.segments.ledger_summaries import DeclaredGap, LedgerSummary
from eventd.audit.segments.plan import NodeEpoch, declared_gaps, owner_of
from eventd.audit.segments.row_marks import PairKey
from eventd.lake.reader import Survey
from eventd.lake.schema import Ledger
from eventd.lake.writer import Segment

if TYPE_CHECKING:
    import pyarrow as pa

BATCH: Final = (*PairKey._fields, "type", "total")
"""The columns of cells that identify a batch: sender and peer, the sender's epoch (`type`) and the batch's number."""
COUNT_COLUMNS: Final = ("number", "node", "epoch", "group", "peer", "outcome", "done_at")
"""The columns of `deliveries` that show how many events of each batch were delivered."""


def count_deliveries(segment: str, table: Columns) -> pa.Table:
    """Return a cell for each batch of a segment of `deliveries`: `n` is the number of rows with a delivered event."""
    rows = np.flatnonzero(table.words("outcome").where("delivered".__eq__))
    number = table.numbers("number")[rows]
    group, peer = table.words("group").at(rows), table.words("peer").at(rows)
    order = np.lexsort((number, group.codes, peer.codes))
    at = rows[order]
    keys = np.stack([number[order], group.codes[order], peer.codes[order]]) if len(at) else np.zeros((3, 0), np.int64)
    starts = np.flatnonzero(np.append(True, (np.diff(keys) != 0).any(axis=0))) if len(at) else np.zeros(0, np.int64)
    first, n = at[starts], np.diff(starts, append=len(at))
    return _cells(segment, Measure.CARRIED, table, first, n, "done_at")


def count_receipts(segment: str, table: Columns) -> pa.Table:
    """Return a cell for each row of a segment of `receipts`: `n` is the number of events that were delivered."""
    accepted, duplicates = table.numbers("accepted"), table.numbers("duplicates")
    n = np.where(accepted == NEVER, table.numbers("sent"), accepted + duplicates)
    return _cells(segment, Measure.ANSWERED, table, np.arange(table.rows), n, "acked_at")


def _cells(segment: str, what: Measure, table: Columns, rows: Any, n: Any, time: str) -> pa.Table:
    node = table.words("node").at(rows)
    ends = {"node": node, "group": table.words("group").at(rows), "source": node, "peer": table.words("peer").at(rows)}
    ends["type"] = table.words("epoch").at(rows)
    at, nothing = table.numbers(time)[rows], np.zeros(len(rows), np.int64)
    return batch_cells(segment, what, ends, table.numbers("number")[rows], n, nothing, at, at)


def uneven_batches(cells: pa.Table) -> pa.Table:
    """Return the batches of which receipts count other numbers of events than there are deliveries.

    `answered` is the number by the receipt, `carried` that of the deliveries; null without any row. The sender had
    recorded the receipt by `last` (microseconds).
    """
    import pyarrow as pa

    table = Columns(cells)
    what = table.numbers("what")
    cells = cells.append_column("last", pa.array(batch_times(table)))
    answered = grouped(cells.filter(what == Measure.ANSWERED), BATCH, [("n", "max"), ("last", "max")])
    carried = grouped(cells.filter(what == Measure.CARRIED), BATCH, [("n", "sum")])
    answered = answered.rename_columns([*BATCH, "answered", "last"])
    carried = carried.rename_columns([*BATCH, "carried"])
    joined = answered.join(carried, keys=[*BATCH], join_type="full outer")
    table = Columns(joined)
    one, other = (np.maximum(table.numbers(name), 0) for name in ("answered", "carried"))
    return joined.filter(pa.array(one != other)).rename_columns({"total": "number"})


def batch_discrepancies(
    rows: Iterable[Mapping[str, Any]],
    survey: Survey,
    known: Collection[str],
    summaries: Mapping[NodeEpoch, Sequence[LedgerSummary]],
    read: Callable[[Segment, list[str]], pa.Table],
) -> Iterator[Discrepancy]:
    """Yield an ERASED discrepancy for each batch with fewer deliveries than its receipt counts, or without a receipt.

    `rows` are those of `uneven_batches`, `known` the names of the segments that they are from. Batches whose other
    rows may be in a segment that is damaged or was not read are left out, and those that the node declared as lost.
    """
    sought: defaultdict[tuple[NodeEpoch, Ledger], dict[int, str]] = defaultdict(dict)
    read_numbers = _NumbersRead(survey, known)
    for row in rows:
        owner, number = NodeEpoch(row["source"], row["type"]), row["number"]
        fewer = (row["carried"] or 0) < (row["answered"] or 0)
        if fewer and read_numbers.covers(owner, Ledger.DELIVERIES, number):
            sought[owner, Ledger.RECEIPTS][number] = NO_DELIVERIES
        elif row["answered"] is None and read_numbers.covers(owner, Ledger.RECEIPTS, number):
            sought[owner, Ledger.DELIVERIES][number] = NO_RECEIPT
    gaps = [gap for _, gap in declared_gaps(summaries)]
    for segment in survey.segments:
        owner, book = owner_of(segment), segment.place.book
        wanted = sought.get((owner, book), {})
        numbers = {number for number in wanted if segment.place.after < number <= segment.place.upto}
        if numbers and segment.place.name in known:
            yield from _named(owner, book, read, segment, {number: wanted[number] for number in numbers}, gaps)


def _named(
    owner: NodeEpoch,
    book: Ledger,
    read: Callable[[Segment, list[str]], pa.Table],
    segment: Segment,
    wanted: Mapping[int, str],
    gaps: Sequence[DeclaredGap],
) -> Iterator[Discrepancy]:
    """Yield the discrepancies of the batches with these numbers in a segment of receipts or deliveries."""
    at = "acked_at" if book is Ledger.RECEIPTS else "done_at"
    more = ["after", "upto"] if book is Ledger.RECEIPTS else []
    table = read(segment, ["number", "group", "peer", "batch_id", "receipt_digest", at, *more])
    times = Columns(table).numbers(at)
    found = set()
    for place, row in enumerate(table.drop_columns([at]).to_pylist()):
        detail = wanted.get(row["number"])
        if detail is None or (row["number"], row["peer"]) in found:
            continue
        found.add((row["number"], row["peer"]))
        if detail == NO_DELIVERIES and any(_declares(gap, row) for gap in gaps):
            continue
        evidence = Evidence(owner.node, int(times[place]), row["batch_id"], row["receipt_digest"])
        name = row["batch_id"] or f"{owner.epoch}/{row['number']}"  # the older protocol names no batches
        yield Discrepancy(Kind.ERASED, row["group"], owner.node, row["peer"], 0, name, detail, evidence)


def _declares(gap: DeclaredGap, row: Mapping[str, Any]) -> bool:
    """Return whether a declared gap says that deliveries of a batch could not be shipped."""
    same = (gap.group, gap.peer, gap.after, gap.upto) == (row["group"], row["peer"], row["after"], row["upto"])
    return same and gap.reason.startswith(Ledger.DELIVERIES)


class _NumbersRead:
    """Tells whether the rows of a ledger with some number, if there are any, are in segments that were read."""

    def __init__(self, survey: Survey, known: Collection[str]) -> None:
        self._spans: defaultdict[tuple[NodeEpoch, Ledger], list[tuple[int, int, bool]]] = defaultdict(list)
        for segment in survey.segments:
            place = segment.place
            self._spans[owner_of(segment), place.book].append((place.after, place.upto, place.name in known))
        for spans in self._spans.values():
            spans.sort()
        self._promised = {
            (NodeEpoch(one.node, one.epoch), book): upto for one in survey.nodes for book, upto in one.books.items()
        }

    def covers(self, owner: NodeEpoch, book: Ledger, number: int) -> bool:
        spans = self._spans[owner, book]
        at = bisect_left(spans, number, key=itemgetter(0)) - 1
        if at >= 0 and number <= spans[at][1]:
            return spans[at][2]
        # The last numbers of a ledger have no segment if they have no rows.
        last = spans[-1][1] if spans else 0
        return last < number <= self._promised.get((owner, book), 0)
