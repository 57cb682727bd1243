"""Stage 2: sums the cells of all segments, and finds the few slots and batches whose sums differ.

The work is done in parts: all cells of one pair and hour are in one part, and so are all cells of one batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from eventd.audit.arrays.columns import NEVER, Columns, Mask, Numbers, grouped, with_texts
from eventd.audit.segments.cell_files import parse_cells, read_cells
from eventd.audit.segments.cells import ALL_HOURS, SLOTS_PER_HOUR, Measure
from eventd.audit.segments.plan import NumberRanges
from eventd.audit.segments.row_marks import PAIR
from eventd.audit.segments.spark_tasks import OpenFile, keys_of
from eventd.audit.verdicts.batch_verdicts import joined_batches, uneven_batches, without_receipt
from eventd.audit.verdicts.hourly_figures import add_pairs, by_hour, sum_figures
from eventd.audit.verdicts.receipt_verdicts import questioned_receipts
from eventd.audit.verdicts.refused_events import unanswered_batches
from eventd.audit.verdicts.unclaimed_batches import unclaimed_batches
from eventd.audit.verdicts.uneven_slots import uneven_slots
from eventd.lake.extra import pyarrow
from eventd.lake.stored_files import Written

if TYPE_CHECKING:
    import pyarrow as pa

_SLOT: Final = [*PAIR, "time"]


class CorruptState(Exception):
    """A file of an audit's state does not have the content that was written."""


@dataclass(frozen=True)
class CellFilter:
    """Reads files of cells. `segments` has those that count in each file, `hours` the requested hours [first, last).

    `written` has the size and digest of each file. Called with the files of a task, it yields their cells of these
    segments that `counts` selects. Raises CorruptState for a file with another digest or other columns, and NotFound.
    """

    segments: Mapping[str, Sequence[str]]
    written: Mapping[str, Written]
    hours: tuple[int, int]

    def __call__(self, files: Iterator[OpenFile]) -> Iterator[pa.Table]:
        from pyarrow import compute

        arrow = pyarrow()
        for file, storage in files:
            written = self.written[file]
            data = read_cells(storage, file, written.bytes)
            same = hashlib.sha256(data).hexdigest() == written.sha256
            table = parse_cells(data) if same else None
            if table is None:
                raise CorruptState(
                    f"the file {file} in the state of the audit has changed since it was written; check the disk of"
                    " --out"
                )
            wanted = arrow.array(self.segments[file], arrow.string())
            counts = compute.is_in(table["segment"].cast(arrow.string()), wanted)
            inside = arrow.array(self.counts(Columns(table)))
            yield table.filter(compute.and_(counts, inside)).drop_columns(["segment"])

    def counts(self, cells: Columns) -> Mask:
        """Return a mask of the cells that count for the requested hours.

        An event may be delivered long after its own time. A batch has one time at its sender and another at its peer,
        by another clock and perhaps hours before the answer that was not lost: which batches are in question is decided
        by the time of the sender when both are together.
        """
        what, hour = cells.numbers("what"), hours_of(cells)
        of_batch = what >= Measure.RECEIPT
        counts: Mask = (self.hours[0] <= hour) & ((hour < self.hours[1]) | of_batch) | (what == Measure.INBOUND)
        return counts


def hours_of(cells: Columns) -> Numbers:
    """Return the hour since 1970 of each cell."""
    time = cells.numbers("time")
    return np.where(cells.numbers("what") < Measure.EXPECTED, time // SLOTS_PER_HOUR, time)


def keys(cells: Columns) -> Numbers:
    """Return keys that bring all cells of a pair and an hour together, and all cells of a batch."""
    of_batch = cells.numbers("what") >= Measure.RECEIPT
    return keys_of(cells, PAIR, np.where(of_batch, cells.numbers("total"), hours_of(cells)))


def reconcile(
    cells: pa.Table,
    reach: Mapping[str, int],
    covered: Mapping[tuple[str, str], int] | None = None,
    hours: tuple[int, int] = ALL_HOURS,
    unkept: NumberRanges | None = None,
) -> dict[str, pa.Table]:
    """Return the tables of a part: `uneven`, `waiting`, `senders`, `latest`, `pairs` and `hours`, and those of batches.

    These are `questioned`, see `questioned_receipts`, `unclaimed`, see `unclaimed_batches`, `batches`, see
    `uneven_batches`, `without_receipt`, `refused`, see `unanswered_batches`, and `received`: the pairs of a sender and
    the node that recorded batches from it in `hours`.

    `hours` [first, last) are the requested ones. `reach`: up to when at most (microseconds by any clock of the lake)
    the ledgers of each node are complete; later deliveries are not expected in them. `covered`: see `latest`. `unkept`:
    see `without_receipt`.
    """
    cells = cells.combine_chunks()  # with a single dictionary for each column of words
    what = Columns(cells).numbers("what")
    slots = cells.filter(what < Measure.EXPECTED)
    figures = sum_figures(cells.filter((what >= Measure.EXPECTED) & (what < Measure.RECEIPT)))
    uneven = uneven_slots(slots, reach)
    batches = joined_batches(cells.filter(np.isin(what, (Measure.CARRIED, Measure.ANSWERED))))
    of_receipts = cells.filter(np.isin(what, (Measure.RECEIPT, Measure.INBOUND)))
    made = {
        "uneven": uneven,
        "waiting": _waiting(slots),
        "senders": _senders(slots),
        "latest": latest(slots, covered or {}, uneven),
        "questioned": questioned_receipts(of_receipts, hours),
        "unclaimed": unclaimed_batches(of_receipts, hours),
        "received": _received(of_receipts, hours),
        "batches": uneven_batches(batches, hours),
        "without_receipt": without_receipt(batches, unkept),
        "refused": unanswered_batches(cells.filter(what >= Measure.REFUSED_ROWS)),
        "pairs": add_pairs([figures]),
        "hours": by_hour(figures),
    }
    return {name: with_texts(table) for name, table in made.items()}


def _received(of_receipts: pa.Table, hours: tuple[int, int]) -> pa.Table:
    import pyarrow as pa

    columns = Columns(of_receipts)
    hour = columns.numbers("time")
    wanted = (columns.numbers("what") == Measure.INBOUND) & (hours[0] <= hour) & (hour < hours[1])
    return grouped(of_receipts.filter(pa.array(wanted)), PAIR, [])


def _waiting(slots: pa.Table) -> pa.Table:
    """Return, for each pair with pending events, when the first was recorded (`low`) and the earliest slot (`time`)."""
    ahead = slots.filter(Columns(slots).numbers("what") == Measure.AHEAD)
    return grouped(ahead, PAIR, [("low", "min"), ("time", "min")])


def _senders(slots: pa.Table) -> pa.Table:
    """Return the nodes (`node`) whose links had events for the peer, for each pair."""
    what = Columns(slots).numbers("what")
    return grouped(slots.filter((what == Measure.DUE) | (what == Measure.AHEAD)), (*PAIR, "node"), [])


def latest(slots: pa.Table, covered: Mapping[tuple[str, str], int], uneven: pa.Table) -> pa.Table:
    """Return, for each pair and node, the last time (`high`, microseconds by its clock) at which it saw the other end.

    Of a sender (`what` is SENT), when the last attempt of an acknowledged delivery began, and how many deliveries (`n`)
    of slots of which the peer holds no event may have been acknowledged at or after the time in `covered`, by sender
    and peer: 0 if that has none. In other slots, the peer holds what was sent, or they are `uneven`, so that the
    comparison of rows counts. Of a peer (HELD), when it recorded the last event.
    """
    import pyarrow as pa

    table = Columns(slots)
    what, node, peer = table.numbers("what"), table.words("node"), table.words("peer")
    ends = [[covered.get((one, other), NEVER) for other in peer.values] for one in node.values]
    end = np.array(ends, np.int64)[node.codes, peer.codes] if slots.num_rows else what
    later = (end != NEVER) & (np.maximum(table.numbers("low"), table.numbers("high")) >= end)
    shown = pa.concat_tables([slots.filter(what == Measure.HELD).select(_SLOT), uneven.select(_SLOT)])
    counted = np.zeros(slots.num_rows, np.int64)
    unseen = _rows_without(slots, np.flatnonzero((what == Measure.SENT) & later), shown)
    counted[unseen] = table.numbers("n")[unseen]
    slots = slots.set_column(slots.schema.get_field_index("n"), "n", pa.array(counted))
    slots = slots.filter((what == Measure.SENT) | (what == Measure.HELD))
    return grouped(slots, (*PAIR, "node", "what"), [("n", "sum"), ("high", "max")])


def _rows_without(slots: pa.Table, rows: Numbers, others: pa.Table) -> Numbers:
    """Return those of `rows` (indexes in `slots`) whose combination of pair and slot is not among the `others`."""
    import pyarrow as pa

    asked = with_texts(slots.select(_SLOT).take(pa.array(rows))).append_column("row", pa.array(rows))
    return Columns(asked.join(with_texts(others), keys=_SLOT, join_type="left anti")).numbers("row")
