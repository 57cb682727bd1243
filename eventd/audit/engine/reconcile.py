"""Stage 2: the cells of all segments added up, and the few slots in which two sums are not equal.

Where the numbers and the sums of fingerprints agree on every side, every event of the slot is where it should be: no
row has to be looked at. Where they do not, stage 3 looks at the rows.

All of it is done part by part: a part has every cell of the lines, hours and batches that are in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from eventd.audit.engine.bins import edges_of
from eventd.audit.engine.cells import HOUR, What
from eventd.audit.engine.columns import Columns, Mask, Numbers, grouped, with_texts
from eventd.audit.engine.spreading import keys_of
from eventd.lake.extra import parquet, pyarrow
from eventd.lake.storage import Written, connect
from eventd.runtime.clock import SECOND

if TYPE_CHECKING:
    import pyarrow as pa

LINE: Final = ("group", "source", "peer")
LEGS: Final = {
    What.RECORDED: "recorded",
    What.ACKNOWLEDGED: "delivered",
    What.PEER_RECORDED: "peer_recorded",
    What.WHOLE: "whole",
}
"""The histograms of latencies, by the names a report has for them."""
COUNTS: Final = {
    What.EXPECTED: "expected",
    What.PENDING: "pending",
    What.DELIVERED: "delivered",
    What.EXPIRED: "expired",
    What.IN_PATH: "in_path",
    What.REFUSED: "dead_lettered",
}
SHARES: Final = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


class SpoiltState(Exception):
    """A file of an audit's state is not what was written."""


@dataclass(frozen=True)
class CellFiles:
    """Files of cells in the state at `out`, the segments that count in each, and the hours [first, last) of interest.

    `written` says what each file should be. Called with the number of a file it makes its cells. Raises SpoiltState for
    a file that is not what was written, and NotFound.
    """

    out: str
    files: Sequence[tuple[str, Sequence[str]]]
    written: Mapping[str, Written]
    hours: tuple[int, int]

    def __call__(self, piece: int) -> Iterator[pa.Table]:
        from pyarrow import compute

        arrow = pyarrow()
        file, segments = self.files[piece]
        data = connect(self.out).read(file)
        if hashlib.sha256(data).hexdigest() != self.written[file].sha256:
            raise SpoiltState(f"{file} has another content than when it was written")
        table = parquet().read_table(arrow.BufferReader(data)).unify_dictionaries()
        wanted = compute.is_in(table["segment"].cast(arrow.string()), arrow.array(segments, arrow.string()))
        hour = hours_of(Columns(table))
        inside = arrow.array((self.hours[0] <= hour) & (hour < self.hours[1]))
        yield table.filter(compute.and_(wanted, inside)).drop_columns(["segment"])


def hours_of(cells: Columns) -> Numbers:
    """The hour since 1970 of each cell."""
    time = cells.numbers("time")
    return np.where(cells.numbers("what") < What.EXPECTED, time // HOUR, time)


def keys(cells: Columns) -> Numbers:
    """What has to be looked at together: everything of a line and an hour, and everything of a batch."""
    of_batch = cells.numbers("what") >= What.RECEIPT
    return keys_of(cells, LINE, np.where(of_batch, cells.numbers("total"), hours_of(cells)))


def balance(cells: pa.Table, reach: Mapping[str, int]) -> dict[str, pa.Table]:
    """What the cells of a part come to: `uneven`, `waiting`, `senders`, `unknown`, `lines` and `hours`.

    `reach` says of each node that keeps books up to when, in microseconds of any clock of the lake, everything it
    recorded is known: what was sent later is not asked of it.
    """
    cells = cells.combine_chunks()  # with a single dictionary for each column of words
    what = Columns(cells).numbers("what")
    slots = cells.filter(what < What.EXPECTED)
    figures = _sum_figures(cells.filter((what >= What.EXPECTED) & (what < What.RECEIPT)))
    made = {
        "uneven": uneven_slots(slots, reach),
        "waiting": _waiting(slots),
        "senders": _senders(slots),
        "unknown": unknown_batches(cells.filter(what >= What.RECEIPT)),
        "lines": add_lines([figures]),
        "hours": by_hour(figures),
    }
    return {name: with_texts(table) for name, table in made.items()}


def uneven_slots(slots: pa.Table, reach: Mapping[str, int]) -> pa.Table:
    """The slots (group, source, peer, time) in which two sides differ, or an event went where it should not."""
    import pyarrow as pa

    cells = Columns(slots)
    what, low = cells.numbers("what"), cells.numbers("low")
    for name in ("due", "sent", "aside", "held"):
        mine = what == What[name.upper()]
        for made in ("n", "total"):
            slots = slots.append_column(f"{name}_{made}", pa.array(np.where(mine, cells.numbers(made), 0)))
    for name in ("sent", "held"):
        slots = slots.append_column(f"{name}_low", pa.array(low, mask=what != What[name.upper()]))
    summed = [f"{name}_{made}" for name in ("due", "sent", "aside", "held") for made in ("n", "total")]
    least = [("sent_low", "min"), ("held_low", "min")]
    by_sender = grouped(slots, (*LINE, "time", "node"), [*((name, "sum") for name in summed), *least])
    # The node of what is held is the peer; of everything else it is a sender.
    sender = Columns(by_sender)
    kept = _agree(sender, ("due",), ("sent", "aside"))
    by_sender = by_sender.append_column("broken", pa.array((~kept).astype(np.int64)))
    by_sender = by_sender.append_column("senders", pa.array((sender.numbers("sent_n") > 0).astype(np.int64)))
    more = [(name, "sum") for name in ("broken", "senders", "sent_n", "sent_total", "held_n", "held_total")]
    lines = grouped(by_sender, (*LINE, "time"), [*more, *least])
    return lines.filter(_differs(Columns(lines), reach)).select([*LINE, "time"])


def _agree(table: Columns, one: tuple[str, ...], other: tuple[str, ...]) -> Mask:
    """Whether numbers and sums are the same on both sides; sums wrap around."""
    same = np.ones(table.rows, bool)
    for made in ("n", "total"):
        left = sum((table.numbers(f"{name}_{made}") for name in one), np.zeros(table.rows, np.int64))
        right = sum((table.numbers(f"{name}_{made}") for name in other), np.zeros(table.rows, np.int64))
        same &= left == right
    return same


def _differs(lines: Columns, reach: Mapping[str, int]) -> Mask:
    source, peer = lines.words("source"), lines.words("peer")
    sent = lines.numbers("sent_n") > 0
    loops = (lines.numbers("senders") > 1) | (sent & source.equal(peer))
    there = np.array([reach.get(name, 0) for name in peer.values], np.int64)[peer.codes]
    here = np.array([reach.get(name, 0) for name in source.values], np.int64)[source.codes]
    # What was sent after the peer's books end is proven by receipts alone; what it holds from a source whose books end
    # before is not held against anybody.
    beyond = (~sent | (lines.numbers("sent_low") > there)) & (
        (lines.numbers("held_n") == 0) | (lines.numbers("held_low") > here)
    )
    keeps = peer.where(lambda name: name in reach)
    lost: Mask = keeps & ~_agree(lines, ("sent",), ("held",)) & ~beyond
    return (lines.numbers("broken") > 0) | loops | lost


def _waiting(slots: pa.Table) -> pa.Table:
    """For each line that has something to come: when the first of it was recorded (`low`), and its slot (`time`)."""
    ahead = slots.filter(Columns(slots).numbers("what") == What.AHEAD)
    return grouped(ahead, LINE, [("low", "min"), ("time", "min")])


def _senders(slots: pa.Table) -> pa.Table:
    """Which nodes had events for each line."""
    what = Columns(slots).numbers("what")
    return grouped(slots.filter((what == What.DUE) | (what == What.AHEAD)), (*LINE, "node"), [])


def unknown_batches(batches: pa.Table) -> pa.Table:
    """Receipts (group, source, peer, mark) of batches that the peer's books do not know, or with another receipt.

    `other` tells the second kind. The source sent the batch at `first` (microseconds) and settled it in that `hour`.
    """
    import pyarrow as pa

    batches = batches.rename_columns({"total": "mark"})
    what = Columns(batches).numbers("what")
    receipts = batches.filter(what == What.RECEIPT)
    ours = grouped(receipts, (*LINE, "mark"), [("low", "min"), ("time", "max"), ("high", "max")])
    theirs = grouped(batches.filter(what == What.INBOUND), (*LINE, "mark"), [("high", "max")])
    theirs = theirs.rename_columns({"high": "given"})
    joined = ours.join(theirs, keys=[*LINE, "mark"], join_type="left outer")
    known = joined["given"].is_valid().to_numpy()
    table = Columns(joined)
    other = known & (table.numbers("given") != table.numbers("high"))
    joined = joined.append_column("other", pa.array(other)).filter(~known | other)
    return joined.rename_columns({"low": "first", "time": "hour"}).select([*LINE, "mark", "first", "hour", "other"])


def _sum_figures(figures: pa.Table) -> pa.Table:
    """Counts and histograms by line, type and hour, over all senders."""
    return grouped(figures, (*LINE, "type", "time", "what", "bin"), [("n", "sum"), ("total", "sum"), ("high", "max")])


def add_lines(tables: list[pa.Table]) -> pa.Table:
    """Counts and histograms by line alone, of figures or of what this has made of others: some thousand rows."""
    import pyarrow as pa

    every = pa.concat_tables(table.select([*LINE, "what", "bin", "n", "total", "high"]) for table in tables)
    return grouped(every, (*LINE, "what", "bin"), [("n", "sum"), ("total", "sum"), ("high", "max")])


def by_hour(figures: pa.Table) -> pa.Table:
    """One row for each line, type and hour: counts, bytes, and percentiles in seconds; 0 and none for what is not."""
    import pyarrow as pa

    keys = grouped(figures, (*LINE, "type", "time"), [])
    place = keys.append_column("place", pa.array(np.arange(keys.num_rows)))
    table = Columns(figures.join(place, keys=[*LINE, "type", "time"], join_type="inner"))
    at, what, n = table.numbers("place"), table.numbers("what"), table.numbers("n")
    for one, name in COUNTS.items():
        keys = keys.append_column(name, pa.array(_spread(keys.num_rows, at, n, what == one)))
    keys = keys.append_column(
        "bytes", pa.array(_spread(keys.num_rows, at, table.numbers("total"), what == What.DELIVERED))
    )
    for histogram in (What.ATTEMPTS, *LEGS):
        for name, column in _percentiles(histogram, keys.num_rows, table, what == histogram).items():
            keys = keys.append_column(name, column)
    return keys


def _spread(rows: int, at: Numbers, values: Numbers, mine: Mask) -> Numbers:
    """Values at their places, of which each has at most one."""
    found = np.zeros(rows, np.int64)
    found[at[mine]] = values[mine]
    return found


def _percentiles(what: What, rows: int, table: Columns, mine: Mask) -> dict[str, Any]:
    """The percentiles of one histogram for each place: whole numbers for attempts, seconds for latencies."""
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
        if what is What.ATTEMPTS and name == "p99":
            continue
        if what is What.ATTEMPTS:
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
