"""Finds the events that senders note as refused in batches whose answers account for fewer refused events.

It is not known which of a batch's events were not refused, so all of them are doubted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from eventd.audit.arrays.columns import Columns, grouped
from eventd.audit.coverage.coverage import RefusedRow
from eventd.audit.report.findings import NO_RECEIPT
from eventd.audit.segments.cells import SLOTS_PER_HOUR, Measure
from eventd.audit.segments.plan import NodeEpoch, owner_of
from eventd.audit.segments.refused_counts import REFUSED_COLUMNS, is_refusal
from eventd.audit.segments.row_marks import PairKey, UnevenSlots
from eventd.audit.verdicts.batch_verdicts import NUMBERED_BATCH
from eventd.audit.verdicts.ledger_rows import BatchKey, DeclaredLosses, LedgerRows, NumbersRead, batches_in
from eventd.lake.layout import MINUTE
from eventd.lake.reader import Survey
from eventd.lake.schema import Ledger
from eventd.lake.writer import Segment

if TYPE_CHECKING:
    import pyarrow as pa

UnansweredEvents = dict[RefusedRow, tuple[PairKey, int]]
"""The pair and the slot (minute) of each event that a sender notes as refused without a fitting answer."""


def unanswered_batches(cells: pa.Table) -> pa.Table:
    """Return the batches with more refused events than the answers account for; `type` is the epoch of the sender."""
    what = Columns(cells).numbers("what")
    rows = grouped(cells.filter(what == Measure.REFUSED_ROWS), NUMBERED_BATCH, [("n", "sum")])
    answers = grouped(cells.filter(what == Measure.REFUSED_ANSWERS), NUMBERED_BATCH, [("n", "sum")])
    joined = rows.join(
        answers.rename_columns([*NUMBERED_BATCH, "answered"]), keys=[*NUMBERED_BATCH], join_type="left outer"
    )
    table = Columns(joined)
    more = table.numbers("n") > np.maximum(table.numbers("answered"), 0)
    return joined.filter(more).rename_columns({"total": "number"}).select([*NUMBERED_BATCH[:-1], "number"])


def unanswered_events(
    batches: Iterable[Mapping[str, Any]],
    survey: Survey,
    known: Collection[str],
    rows: LedgerRows,
    hours: tuple[int, int],
    losses: DeclaredLosses,
) -> UnansweredEvents:
    """Return the refused events of these batches, which are rows of `unanswered_batches`.

    `known` are the names of the segments whose cells these rows are from. Batches whose receipts may be in another one,
    or are lost as the sender declares, are left out, and so are events of other `hours` than those of [first, last)
    since 1970.
    """
    numbers = NumbersRead(survey, known)
    sought: defaultdict[NodeEpoch, set[BatchKey]] = defaultdict(set)
    for row in batches:
        owner = NodeEpoch(row["source"], row["type"])
        if numbers.covers(owner, Ledger.RECEIPTS, row["number"]) and not losses.explain(owner, NO_RECEIPT, row):
            sought[owner].add((row["number"], row["group"], row["peer"]))
    found: UnansweredEvents = {}
    ordered = {owner: sorted(each) for owner, each in sought.items()}
    for segment in (one for one in rows.segments if one.place.book is Ledger.DELIVERIES):
        if inside := {*batches_in(segment, ordered.get(owner_of(segment), ()))}:
            found |= {
                row: (pair, slot)
                for row, pair, slot in _refused(rows, segment, inside)
                if hours[0] <= slot // SLOTS_PER_HOUR < hours[1]
            }
    return found


def _refused(
    rows: LedgerRows, segment: Segment, batches: Collection[BatchKey]
) -> Iterator[tuple[RefusedRow, PairKey, int]]:
    """Yield the refused events of these batches in a segment, each with its pair and slot."""
    owner = owner_of(segment)
    table = rows.read(segment, [*REFUSED_COLUMNS, "source", "position", "event_at"])
    columns = Columns(table)
    places = np.flatnonzero(
        is_refusal(columns) & np.isin(columns.numbers("number"), [number for number, _, _ in batches])
    )
    slots = (columns.numbers("event_at")[places] // MINUTE).tolist()
    names = ["group", "peer", "number", "source", "position"]
    for slot, row in zip(slots, table.select(names).take(places).to_pylist(), strict=True):
        if (row["number"], row["group"], row["peer"]) in batches:
            pair = PairKey(row["group"], row["source"], row["peer"])
            yield RefusedRow(owner, row["group"], row["peer"], row["position"]), pair, slot


def with_slots(uneven: UnevenSlots, events: UnansweredEvents) -> UnevenSlots:
    """Return the uneven slots, and in addition the slots of these events."""
    slots: defaultdict[PairKey, list[int]] = defaultdict(list)
    for pair, slot in events.values():
        slots[pair].append(slot)
    return {
        pair: np.union1d(uneven.get(pair, np.zeros(0, np.int64)), np.array(slots.get(pair, ()), np.int64))
        for pair in sorted({*uneven, *slots})
    }
