"""Stage 2: sums the cells of all segments, and finds the few slots in which two sums differ.

If the numbers and the sums of fingerprints agree on every side, every event of the slot is where it should be, and no
row has to be read. Otherwise, stage 3 compares the rows.

The work is done in parts: all cells of one pair and hour are in one part, and so are all cells of one batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from eventd.audit.arrays.bins import edges_of
from eventd.audit.arrays.columns import NEVER, Columns, Mask, Numbers, grouped, with_texts
from eventd.audit.segments.cell_files import parse_cells, read_cells
from eventd.audit.segments.cells import ALL_HOURS, SLOTS_PER_HOUR, Measure
from eventd.audit.segments.plan import NumberRanges
from eventd.audit.segments.row_marks import PairKey
from eventd.audit.segments.spark_tasks import OpenFile, keys_of
from eventd.audit.verdicts.batch_verdicts import joined_batches, uneven_batches, without_receipt
from eventd.audit.verdicts.receipt_verdicts import questioned_receipts
from eventd.audit.verdicts.refused_events import unanswered_batches
from eventd.audit.verdicts.unclaimed_batches import unclaimed_batches
from eventd.lake.extra import pyarrow
from eventd.lake.stored_files import Written
from eventd.runtime.clock import SECOND

if TYPE_CHECKING:
    import pyarrow as pa

PAIR: Final = PairKey._fields
_SLOT: Final = [*PAIR, "time"]
LEGS: Final = {
    Measure.RECORDED: "recorded",
    Measure.ACKNOWLEDGED: "delivered",
    Measure.PEER_RECORDED: "peer_recorded",
    Measure.WHOLE: "whole",
}
"""The measures of latencies, each with the name that it has in a report."""
COUNTS: Final = {
    Measure.EXPECTED: "expected",
    Measure.PENDING: "pending",
    Measure.DELIVERED: "delivered",
    Measure.EXPIRED: "expired",
    Measure.IN_PATH: "in_path",
    Measure.REFUSED: "dead_lettered",
}
SHARES: Final = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


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
    figures = _sum_figures(cells.filter((what >= Measure.EXPECTED) & (what < Measure.RECEIPT)))
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


def uneven_slots(slots: pa.Table, reach: Mapping[str, int]) -> pa.Table:
    """Return the slots (group, source, peer, time) in which two sides differ, or deliveries form a loop.

    A loop: deliveries to the source itself, or by several senders. Slots in which a sender gives a reason for not
    sending events that the sums do not confirm are among those returned, too.
    """
    import pyarrow as pa

    by_sender = _sums_by_sender(slots)
    # The node of held events is the peer; the node of all others is a sender.
    sender = Columns(by_sender)
    sent, aside = sender.numbers("sent_n") > 0, sender.numbers("aside_n") > 0
    own = sender.words("node").equal(sender.words("source"))
    flags = {
        "broken": ~_agree(sender, ("due",), ("sent", "aside")) | _expired_early(sender),
        "senders": sent,
        "partly": sent & aside,
        **_masked(sender, "own", own),
        **_masked(sender, "whole", ~aside),
        **_unconfirmed(sender, own),
    }
    for name, column in flags.items():
        by_sender = by_sender.append_column(name, pa.array(column.astype(np.int64)))
    more = [*flags, "sent_n", "sent_total", *(f"held_{name}" for name in _SUMS)]
    least = [(name, "min") for name in ("sent_low", "held_low", "in_path_low")]
    pairs = grouped(by_sender, (*PAIR, "time"), [*((name, "sum") for name in more), *least])
    return pairs.filter(_differs(Columns(pairs), reach)).select([*PAIR, "time"])


_SUMS: Final = ("n", "total", "content")
"""The sums of a slot's cells: number of events, hashes of their outlines, hashes of their contents."""
_UNSENT: Final = (Measure.SLOT_REFUSED, Measure.SLOT_IN_PATH, Measure.SLOT_EXPIRED)
_BY_SENDER: Final = {
    "due": ((Measure.DUE,), _SUMS),
    "sent": ((Measure.SENT,), _SUMS[:2]),
    "aside": (_UNSENT, _SUMS[:2]),
    "in_path": ((Measure.SLOT_IN_PATH,), _SUMS[:2]),
    "relayed": ((Measure.RELAYED,), _SUMS[:2]),
    "held": ((Measure.HELD,), _SUMS),
}
"""The measures that are summed for each sender, and which of their sums, by the beginning of the columns' names."""


def _sums_by_sender(slots: pa.Table) -> pa.Table:
    """Return the sums of the cells by pair, slot and node, as columns named by measure and sum.

    `NAME_low` is the earliest time of the deliveries or held events, `expiry` the latest expiry of a due event.
    """
    import pyarrow as pa

    cells = Columns(slots)
    what, low = cells.numbers("what"), cells.numbers("low")
    summed, ranged = [], []
    for name, (measures, sums) in _BY_SENDER.items():
        mine = np.isin(what, measures)
        for made in sums:
            slots = slots.append_column(f"{name}_{made}", pa.array(np.where(mine, cells.numbers(made), 0)))
            summed.append((f"{name}_{made}", "sum"))
    earliest = {"sent": Measure.SENT, "held": Measure.HELD, "in_path": Measure.SLOT_IN_PATH}
    for name, measure in (earliest | {"expired": Measure.SLOT_EXPIRED}).items():
        slots = slots.append_column(f"{name}_low", pa.array(low, mask=what != measure))
        ranged.append((f"{name}_low", "min"))
    slots = slots.append_column("expiry", pa.array(cells.numbers("high"), mask=what != Measure.DUE))
    return grouped(slots, (*PAIR, "time", "node"), [*summed, *ranged, ("expiry", "max")])


def _masked(senders: Columns, name: str, rows: Mask) -> dict[str, Numbers]:
    """Return the sums of the due events of the senders `rows`, 0 for others, as columns that begin with `name`."""
    return {f"{name}_{made}": np.where(rows, senders.numbers(f"due_{made}"), 0) for made in _SUMS}


def _expired_early(senders: Columns) -> Mask:
    """Return a mask of the senders that gave up an event as expired at a time when some event of the slot had not
    expired.

    Sums do not show whether it was the same event.
    """
    first = senders.numbers("expired_low")
    found: Mask = (first != NEVER) & (senders.numbers("expiry") > first)
    return found


def _unconfirmed(senders: Columns, own: Mask) -> dict[str, Numbers | Mask]:
    """Return columns on the senders that did not send events because of their path, which they cannot prove alone.

    `feigned`: an event of the sender's own has no path. `claims`: the peer's deliveries to the sender are not these
    events, so that the peer's ledger of events has to show that it had them; `claimed_*` are the sums of all events
    that the peer then has by the ledger of the sender.
    """
    in_path = senders.numbers("in_path_n") > 0
    claims = in_path & ~_agree(senders, ("in_path",), ("relayed",))
    claimed = {
        f"claimed_{made}": np.where(claims, senders.numbers(f"sent_{made}") + senders.numbers(f"in_path_{made}"), 0)
        for made in _SUMS[:2]
    }
    return {"feigned": in_path & own, "claims": claims, **claimed}


def _agree(table: Columns, one: tuple[str, ...], other: tuple[str, ...]) -> Mask:
    """Return a mask of the rows in which `one` and `other` have equal numbers of events and sums of outlines.

    Each side names the measures that are added up; sums wrap around.
    """
    same = np.ones(table.rows, bool)
    for made in ("n", "total"):
        left = sum((table.numbers(f"{name}_{made}") for name in one), np.zeros(table.rows, np.int64))
        right = sum((table.numbers(f"{name}_{made}") for name in other), np.zeros(table.rows, np.int64))
        same &= left == right
    return same


def _differs(pairs: Columns, reach: Mapping[str, int]) -> Mask:
    source, peer = pairs.words("source"), pairs.words("peer")
    sent = pairs.numbers("sent_n") > 0
    loops = (pairs.numbers("senders") > 1) | (sent & source.equal(peer))
    peer_reach = np.array([reach.get(name, 0) for name in peer.values], np.int64)[peer.codes]
    source_reach = np.array([reach.get(name, 0) for name in source.values], np.int64)[source.codes]
    # Deliveries after the end of the peer's ledgers are proven by receipts alone; held events that were recorded after
    # the end of the source's ledgers are no discrepancy.
    beyond = (~sent | (pairs.numbers("sent_low") > peer_reach)) & (
        (pairs.numbers("held_n") == 0) | (pairs.numbers("held_low") > source_reach)
    )
    has_ledgers = peer.where(lambda name: name in reach)
    # Of a slot that the peer holds in part, only its rows show which deliveries are known by the sender's claim alone.
    partly = sent & (pairs.numbers("held_n") > 0)
    lost: Mask = has_ledgers & ~_agree(pairs, ("sent",), ("held",)) & (~beyond | partly)
    reached = pairs.numbers("in_path_low") <= peer_reach
    broken = (pairs.numbers("broken") > 0) | (pairs.numbers("feigned") > 0)
    return broken | loops | lost | (has_ledgers & (_altered(pairs, beyond) | (reached & _unheld(pairs))))


def _unheld(pairs: Columns) -> Mask:
    """Return a mask of the rows in which it is not known that the peer holds the events which, as senders claim, came
    through it.

    It is known if each sender with such claims had sent, or left out for that reason, exactly the events that the peer
    holds: then the sum over these senders is the peer's sum times their number.
    """
    claims = pairs.numbers("claims")
    same = np.ones(pairs.rows, bool)
    for made in _SUMS[:2]:
        same &= pairs.numbers(f"claimed_{made}") == claims * pairs.numbers(f"held_{made}")
    found: Mask = (claims > 0) & ~same
    return found


def _altered(pairs: Columns, beyond: Mask) -> Mask:
    """Return a mask of the rows in which sender and peer have the same events, but with different contents.

    Rows of deliveries do not have all of an event's content. So the contents of the due events are compared with those
    of the held ones: of the source, if these are the same events, or else of all senders that sent all due events. If
    senders sent some of the due events only, which is not known from sums, the rows have to be compared.
    """
    held = pairs.numbers("held_n") > 0
    by_own, by_whole = (_agree(pairs, (name,), ("held",)) for name in ("own", "whole"))
    content = np.where(by_own, pairs.numbers("own_content"), pairs.numbers("whole_content"))
    known = by_own | by_whole
    unknown = ~known & (pairs.numbers("partly") > 0) & ~beyond
    found: Mask = held & ((known & (content != pairs.numbers("held_content"))) | unknown)
    return found


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


def _sum_figures(figures: pa.Table) -> pa.Table:
    """Return counts and histograms by pair, type and hour, over all senders."""
    return grouped(figures, (*PAIR, "type", "time", "what", "bin"), [("n", "sum"), ("total", "sum"), ("high", "max")])


def add_pairs(tables: list[pa.Table]) -> pa.Table:
    """Return counts and histograms by pair, summed from tables of `_sum_figures` or of this function."""
    import pyarrow as pa

    every = pa.concat_tables(table.select([*PAIR, "what", "bin", "n", "total", "high"]) for table in tables)
    return grouped(every, (*PAIR, "what", "bin"), [("n", "sum"), ("total", "sum"), ("high", "max")])


def by_hour(figures: pa.Table) -> pa.Table:
    """Return one row for each pair, type and hour: counts and bytes (default 0), and percentiles (default null)."""
    import pyarrow as pa

    keys = grouped(figures, (*PAIR, "type", "time"), [])
    place = keys.append_column("place", pa.array(np.arange(keys.num_rows)))
    table = Columns(figures.join(place, keys=[*PAIR, "type", "time"], join_type="inner"))
    at, what, n = table.numbers("place"), table.numbers("what"), table.numbers("n")
    for one, name in COUNTS.items():
        keys = keys.append_column(name, pa.array(_scatter(keys.num_rows, at, n, what == one)))
    keys = keys.append_column(
        "bytes", pa.array(_scatter(keys.num_rows, at, table.numbers("total"), what == Measure.DELIVERED))
    )
    for histogram in (Measure.ATTEMPTS, *LEGS):
        for name, column in _percentiles(histogram, keys.num_rows, table, what == histogram).items():
            keys = keys.append_column(name, column)
    return keys


def _scatter(rows: int, at: Numbers, values: Numbers, mine: Mask) -> Numbers:
    """Return an array with each value of the rows `mine` at its index `at`, and 0 elsewhere; no index occurs twice."""
    found = np.zeros(rows, np.int64)
    found[at[mine]] = values[mine]
    return found


def _percentiles(what: Measure, rows: int, table: Columns, mine: Mask) -> dict[str, Any]:
    """Return the percentiles of one histogram for each pair, type and hour (`place` is their index).

    Percentiles of attempts are whole numbers, without p99; percentiles of latencies are seconds. Null without values.
    """
    import pyarrow as pa

    order = np.lexsort((table.numbers("bin")[mine], table.numbers("place")[mine]))
    at, bins, n = (table.numbers(name)[mine][order] for name in ("place", "bin", "n"))
    starts = np.flatnonzero(np.diff(at, prepend=-1))
    reached = np.cumsum(n)
    before = reached[starts] - n[starts]
    all_of = np.diff(before, append=reached[-1] if len(reached) else 0)
    found: dict[str, Any] = {}
    for name, share in SHARES.items():
        wanted = before + share * all_of
        here = np.searchsorted(reached, wanted, side="left")
        if what is Measure.ATTEMPTS and name == "p99":
            continue
        if what is Measure.ATTEMPTS:
            values: Any = bins[here]
        else:
            low, high = edges_of(bins[here])
            within = (wanted - (reached[here] - n[here])) / np.maximum(n[here], 1)
            values = np.round((low + (high - low) * within) / SECOND, 6)
        column = np.zeros(rows, values.dtype)
        column[at[starts]] = values
        nothing = np.ones(rows, bool)
        nothing[at[starts]] = False
        found[f"{LEGS.get(what, 'attempts')}_{name}"] = pa.array(column, mask=nothing)
    return found
