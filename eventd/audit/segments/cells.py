"""Stage 1: sums the rows of a segment into cells, from which the counts and latencies of the report are computed.

There are three kinds of cells. By slot (a minute of the events' own time): the number of events and the sums of the
hashes of their rows, which must be equal at both ends of a link. By type and hour: the figures of the report, such as
counts, attempts, and latencies by bin. By batch: its receipt, as sender or receiver recorded it. Cells of any segments
can be added up, in any order, on any machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from eventd.audit.arrays.bins import BINS, bins_of
from eventd.audit.arrays.columns import NEVER, Columns, Mask, Numbers, Words, constant
from eventd.audit.arrays.counts import DENSE, Key, Sums, add_up, count, index
from eventd.audit.arrays.grid import Grid
from eventd.audit.arrays.row_hash import CONTENT, OUTLINE, contents, outlines
from eventd.audit.segments.link_rows import COLUMNS, ENDLESS, LinkRow, RowSelector
from eventd.lake.layout import MINUTE
from eventd.runtime.clock import SECOND

if TYPE_CHECKING:
    import pyarrow as pa

SLOTS_PER_HOUR: Final = 60
HOUR: Final = SLOTS_PER_HOUR * MINUTE
"""Microseconds per hour."""
ALL_HOURS: Final = (-(1 << 40), 1 << 40)
"""Hours since 1970 [first, last) in which every time lies."""
MOST_ATTEMPTS: Final = 64
"""Deliveries with more attempts count as this many."""


class Measure(IntEnum):
    """The kind of a cell: the quantity that it counts, or the ledger that its batch is from."""

    # by slot; `total` is the sum of `outlines`, `content` of DUE and HELD that of `contents`
    DUE = 1  # events at their sender that the peer should have received; `high`: the latest expiry, `ENDLESS` for none
    AHEAD = 2  # events that the link has not reached yet
    SENT = 3  # deliveries that were acknowledged; `high`: when the last attempt of any began
    SLOT_REFUSED = 4  # events that the peer refused
    HELD = 5  # events at the peer
    SLOT_IN_PATH = 6  # events that were not sent because they came from the peer, or through it
    SLOT_EXPIRED = 7  # events that were not sent because they had expired; `low`: when the first was given up
    RELAYED = 8  # events of other sources that the peer itself delivered to `node`
    # by type and hour
    EXPECTED = 10  # the events of DUE; what a report calls expected includes PENDING
    PENDING = 11  # the events of AHEAD
    DELIVERED = 12  # `total`: bytes
    EXPIRED = 13
    IN_PATH = 14
    REFUSED = 15
    OWN = 16  # events that entered the log at this node
    ATTEMPTS = 20  # by bin: the number itself
    RECORDED = 21  # by bin, as the following; `high`: the longest
    ACKNOWLEDGED = 22
    PEER_RECORDED = 23
    WHOLE = 24
    # by batch: see `batch_cells`
    RECEIPT = 30
    INBOUND = 31
    # by number of the batch, see `batch_counts`
    CARRIED = 32  # events with a delivery
    ANSWERED = 33  # events that the receipt counts
    # by number of the batch, see `refused_counts`
    REFUSED_ROWS = 34  # events with a row that says refused
    REFUSED_ANSWERS = 35  # refused events that the answer accounts for


_OUTCOMES: Final = {  # their measures are adjacent numbers
    "delivered": Measure.DELIVERED,
    "expired": Measure.EXPIRED,
    "in_path": Measure.IN_PATH,
    "refused": Measure.REFUSED,
}

_REASONS: Final = {"expired": Measure.SLOT_EXPIRED, "in_path": Measure.SLOT_IN_PATH}

EVENT_COLUMNS: Final = tuple(dict.fromkeys(("node", *COLUMNS, *CONTENT)))
DELIVERY_COLUMNS: Final = (
    *("node", "group", "peer", "source", "attempts", "outcome", "recorded_at", "attempt_at", "done_at"),
    *("peer_recorded_at", *OUTLINE),
)


def cell_schema() -> pa.Schema:
    """Return the Arrow schema of cells. `time` is a slot (minute) or an hour, since 1970.

    `low` and `high` are in microseconds, but `high` counts attempts in cells of ATTEMPTS; batches: see `batch_cells`.
    """
    import pyarrow as pa

    word = pa.dictionary(pa.int32(), pa.string())
    words = [pa.field(name, word) for name in ("segment", "node", "group", "source", "peer", "type")]
    numbers = [pa.field(name, pa.int64()) for name in ("time", "n", "total", "low", "high", "content")]
    return pa.schema([pa.field("what", pa.int16()), pa.field("bin", pa.int16()), *words, *numbers])


class HourlySkew(NamedTuple):
    """How far a peer's clock is ahead of the node's, in microseconds, by hour since 1970.

    For other hours, the value of the nearest known hour is used.
    """

    hours: tuple[int, ...]
    values: tuple[int, ...]

    def at(self, hours: Numbers) -> Numbers:
        """Return the skew in each of these hours (since 1970); 0 if no hour is known."""
        if not self.hours:
            return np.zeros(len(hours), np.int64)
        known = np.array(self.hours, np.int64)
        after = np.searchsorted(known, hours).clip(0, len(known) - 1)
        before = (after - 1).clip(0)
        nearer = np.where(np.abs(known[before] - hours) < np.abs(known[after] - hours), before, after)
        found: Numbers = np.array(self.values, np.int64)[nearer]
        return found


class _Cells:
    """Collects the cells of one segment as Arrow tables."""

    def __init__(self, segment: str) -> None:
        self._segment = segment
        self._tables: list[pa.Table] = []

    def add(
        self,
        what: npt.NDArray[np.integer] | Measure,
        words: Mapping[str, Words],
        time: Numbers,
        n: Numbers,
        *,
        bin: Numbers | None = None,
        total: Numbers | None = None,
        low: Numbers | None = None,
        high: Numbers | None = None,
        content: Numbers | None = None,
    ) -> None:
        """Add cells: arrays have one value per cell, a single `what` applies to all. The default is 0 or ''."""
        import pyarrow as pa

        rows = len(n)
        if not rows:
            return
        empty = np.zeros(rows, np.int64)
        whats = np.full(rows, int(what), np.int16) if isinstance(what, Measure) else what.astype(np.int16)
        named = {"segment": constant(self._segment, rows), **words}
        columns: list[pa.Array] = [pa.array(whats), pa.array((empty if bin is None else bin).astype(np.int16))]
        names = [field.name for field in cell_schema() if pa.types.is_dictionary(field.type)]
        columns += [(named.get(name) or constant("", rows)).to_arrow() for name in names]
        columns += [pa.array(empty if each is None else each) for each in (time, n, total, low, high, content)]
        self._tables.append(pa.Table.from_arrays(columns, schema=cell_schema()))

    def table(self) -> pa.Table:
        """Return all cells as a table."""
        import pyarrow as pa

        return pa.concat_tables(self._tables) if self._tables else cell_schema().empty_table()


def sum_deliveries(
    segment: str, table: Columns, skews: Mapping[str, HourlySkew], since: int = NEVER, key: bytes = b""
) -> pa.Table:
    """Return the cells of a segment of `deliveries`.

    `skews` has how far each peer's clock is ahead. Rows with a `done_at` before `since` (microseconds) are left out.
    `key` is that of the hashes of rows.
    """
    cells = _Cells(segment)
    kept = _Rows(table, None if since == NEVER else table.numbers("done_at") >= since)
    slot = kept.numbers("event_at") // MINUTE
    by_slot = {name: kept.words(name) for name in ("node", "group", "source", "peer")}
    outcome = kept.words("outcome")
    delivered = outcome.where("delivered".__eq__)
    slots = Grid.of(by_slot, slot)
    done, outline = kept.numbers("done_at"), kept.of(outlines(table, key))
    # An event is not expected at its own source, so it need not be said why it was not sent there.
    unsent = np.flatnonzero(~delivered & ~by_slot["source"].equal(by_slot["peer"]))
    sums = [(Measure.SENT, delivered), *_by_reason(outcome, unsent)]
    for what, rows in sums:
        if rows.any():
            _add_sums(cells, what, slots, rows, outline, done, kept.numbers("attempt_at"))
    _add_figures(
        cells, kept, Grid.of({**by_slot, "type": kept.words("type")}, slot // SLOTS_PER_HOUR), delivered, skews
    )
    return cells.table()


def _by_reason(outcome: Words, unsent: Numbers) -> Iterator[tuple[Measure, Mask]]:
    """Yield the measure of each reason why events were not delivered, and a mask of those of the rows `unsent`."""
    if not len(unsent):
        return
    whats = np.array([_REASONS.get(value, Measure.SLOT_REFUSED) for value in outcome.values], np.int64)
    what = whats[outcome.codes[unsent]]
    for one in (Measure.SLOT_REFUSED, Measure.SLOT_IN_PATH, Measure.SLOT_EXPIRED):
        rows = np.zeros(len(outcome.codes), bool)
        rows[unsent[what == one]] = True
        yield one, rows


class _Rows:
    """Some rows of a table; all of them if `rows` is None."""

    def __init__(self, table: Columns, rows: Mask | None) -> None:
        self._table = table
        self._rows = None if rows is None or rows.all() else rows

    def words(self, name: str) -> Words:
        found = self._table.words(name)
        return found if self._rows is None else found.at(self._rows)

    def numbers(self, name: str) -> Numbers:
        return self.of(self._table.numbers(name))

    def of(self, values: Numbers) -> Numbers:
        """Return those of some values, one for each row of the whole table, that belong to these rows."""
        return values if self._rows is None else values[self._rows]


def _add_sums(
    cells: _Cells, what: Measure, grid: Grid, rows: Mask, outline: Numbers, done: Numbers, begun: Numbers
) -> None:
    """Add the cells of deliveries: `low` is when the first was acknowledged, `high` when the last attempt had begun.

    Deliveries of other sources' events are added once more for the pair of that source and the node: if the receiver
    has the same events for the node and does not send them back, this shows that the node held them.
    """
    if rows.all():
        key = grid.key
    else:
        key, outline, done, begun = grid.key.at(rows), outline[rows], done[rows], begun[rows]
    sums = add_up(key, outline, done)
    words, slots, _ = grid.split(sums.keys)
    cells.add(what, words, slots, sums.rows, total=sums.total, low=sums.low, high=_highest(key, begun, sums.keys))
    if what is Measure.SENT and (relayed := ~words["source"].equal(words["node"])).any():
        turned = {name: column.at(relayed) for name, column in words.items()}
        turned |= {"node": turned["peer"], "peer": turned["node"]}
        cells.add(Measure.RELAYED, turned, slots[relayed], sums.rows[relayed], total=sums.total[relayed])


def _add_figures(cells: _Cells, rows: _Rows, grid: Grid, delivered: Mask, skews: Mapping[str, HourlySkew]) -> None:
    """Add cells by type and hour: deliveries and bytes by outcome; attempts and latencies of the delivered ones."""
    outcome = rows.words("outcome")
    whats = np.array([_OUTCOMES.get(value, Measure.REFUSED) for value in outcome.values], np.int64)[outcome.codes]
    ended = grid.key.beside(whats - Measure.DELIVERED, len(_OUTCOMES))
    keys, n = count(ended)
    words, hours, ends = grid.split(keys, len(_OUTCOMES))
    size = _sum_by_key(ended, rows.numbers("bytes"), keys)
    cells.add(ends + Measure.DELIVERED, words, hours, n, total=size)
    if not delivered.any():
        return
    whole = bool(delivered.all())

    def taken(values: Numbers) -> Numbers:
        return values if whole else values[delivered]

    key = grid.key if whole else grid.key.at(delivered)
    attempts = np.clip(taken(rows.numbers("attempts")), 0, MOST_ATTEMPTS)
    _add_histogram(cells, Measure.ATTEMPTS, grid, key, attempts, attempts, MOST_ATTEMPTS + 1)
    event, recorded, sent = (taken(rows.numbers(name)) for name in ("event_at", "recorded_at", "attempt_at"))
    _add_spans(cells, Measure.ACKNOWLEDGED, grid, key, taken(rows.numbers("done_at")) - recorded)
    arrived = taken(rows.numbers("peer_recorded_at"))
    known = arrived != NEVER
    peer = rows.words("peer") if whole else rows.words("peer").at(delivered)
    if not known.all():
        key, event, sent, arrived, peer = key.at(known), event[known], sent[known], arrived[known], peer.at(known)
    arrived = arrived - _skew_of(peer, arrived, skews)
    _add_spans(cells, Measure.PEER_RECORDED, grid, key, arrived - sent)
    _add_spans(cells, Measure.WHOLE, grid, key, arrived - event)


def _skew_of(peer: Words, time: Numbers, skews: Mapping[str, HourlySkew]) -> Numbers:
    """Return how far the clock of each row's peer was ahead at the row's `time`, in microseconds."""
    if not len(time) or not any(skews.get(name, HourlySkew((), ())).hours for name in peer.values):
        return np.zeros(len(time), np.int64)
    hours, places = index(time // HOUR)
    lookup = np.stack([skews.get(name, HourlySkew((), ())).at(hours) for name in peer.values])
    found: Numbers = lookup[peer.codes, places]
    return found


def _sum_by_key(key: Key, values: Numbers, keys: Numbers) -> Numbers:
    """Return the sum of `values` for each of `keys`: those that occur in `key`, ascending.

    The sums must be exact as floats, so below 2**53.
    """
    if not len(keys):
        return keys
    if key.domain <= DENSE:
        found: Numbers = np.bincount(key.values, weights=values)[keys].astype(np.int64)
        return found
    return add_up(key, values, values).total


def _add_spans(cells: _Cells, what: Measure, grid: Grid, key: Key, spans: Numbers) -> None:
    _add_histogram(cells, what, grid, key, bins_of(spans), spans, BINS)


def _add_histogram(
    cells: _Cells, what: Measure, grid: Grid, key: Key, bins: Numbers, values: Numbers, size: int
) -> None:
    """Add a cell for each key and bin: the number of values in the bin, and the highest value of the key in any bin."""
    keys, n = count(key.beside(bins, size))
    words, hours, bin = grid.split(keys, size)
    cells.add(what, words, hours, n, bin=bin, high=_highest(key, values, keys // size))


def _highest(key: Key, values: Numbers, keys: Numbers) -> Numbers:
    """Return the highest value for each of the keys."""
    if not len(keys):
        return keys
    first, last = int(keys[0]), int(keys[-1])
    if last - first < DENSE:
        found = np.full(last - first + 1, NEVER, np.int64)
        np.maximum.at(found, key.values - first, values)
        return found[keys - first]
    present, places = np.unique(key.values, return_inverse=True)
    found = np.full(len(present), NEVER, np.int64)
    np.maximum.at(found, places, values)
    return found[np.searchsorted(present, keys)]


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
    cells = _Cells(segment)
    cells.add(what, named, last // HOUR, events, bin=second, total=ids, low=first, high=digests, content=content)
    return cells.table()


def batch_times(cells: Columns) -> Numbers:
    """Return the end of the second in which the time `last` of each batch's cell lies, in microseconds: cells have it
    cut to the second."""
    return cells.numbers("time") * HOUR + (cells.numbers("bin") + 1) * SECOND


def sum_events(
    segment: str, table: Columns, links: Sequence[LinkRow], since: int = NEVER, key: bytes = b""
) -> pa.Table:
    """Return the cells of a segment of `events` of a node with these links.

    Rows recorded before `since` (microseconds) are left out. `key` is that of the hashes of rows.
    """
    cells = _Cells(segment)
    slot, recorded = table.numbers("event_at") // MINUTE, table.numbers("recorded_at")
    own, outline = table.booleans("own"), outlines(table, key)
    hashes = _RowHashes(outline, contents(table, outline, key))
    kept = recorded >= since
    by_slot = {name: table.words(name) for name in ("node", "group", "source")}
    slots = Grid.of(by_slot, slot)
    hours = Grid.of({**by_slot, "type": table.words("type")}, slot // SLOTS_PER_HOUR)
    _add_held(cells, slots, ~own & kept, hashes, recorded)
    own_kept = own & kept
    _add_counts(cells, Measure.OWN, hours, own_kept, ("",))
    if own_kept.any():
        # The time to record an event is the same for all of its peers.
        spans = (recorded - table.numbers("event_at"))[own_kept]
        _add_spans(cells, Measure.RECORDED, hours, hours.key.at(own_kept), spans)
    selector = RowSelector(table)
    expiry = table.numbers("expires_at")
    expiry = np.where(expiry == NEVER, ENDLESS, expiry)
    for peers, due, ahead in _by_same_terms(selector, links):
        for what, shown, rows, ranged in (
            (Measure.DUE, Measure.EXPECTED, due & kept, expiry),
            (Measure.AHEAD, Measure.PENDING, ahead & kept, recorded),
        ):
            if rows.any():
                _add_due(cells, what, slots, rows, hashes, ranged, peers)
                _add_counts(cells, shown, hours, rows, peers)
    return cells.table()


def _by_same_terms(selector: RowSelector, links: Sequence[LinkRow]) -> Iterator[tuple[tuple[str, ...], Mask, Mask]]:
    """Yield, for each set of links with equal group and terms, their peers, and masks of the rows due and ahead."""
    alike: dict[tuple[object, ...], list[LinkRow]] = {}
    for link in links:
        alike.setdefault((link.group, *link.terms), []).append(link)
    for same in alike.values():
        due, ahead = selector.select(same[0])
        yield tuple(link.peer for link in same), due, ahead


class _RowHashes(NamedTuple):
    """The hashes of each row of `events`: see `outlines` and `contents`."""

    outline: Numbers
    content: Numbers

    def add_up(self, key: Key, rows: Mask, ranged: Numbers) -> Sums:
        return add_up(key.at(rows), self.outline[rows], ranged[rows], self.content[rows])


def _add_held(cells: _Cells, grid: Grid, rows: Mask, hashes: _RowHashes, recorded: Numbers) -> None:
    """Add the cells of the events that a node received; their peer is the node itself."""
    if rows.any():
        sums = hashes.add_up(grid.key, rows, recorded)
        words, slots, _ = grid.split(sums.keys)
        words["peer"] = words["node"]
        _add_slots(cells, Measure.HELD, words, slots, sums)


def _add_due(
    cells: _Cells,
    what: Measure,
    grid: Grid,
    rows: Mask,
    hashes: _RowHashes,
    ranged: Numbers,
    peers: tuple[str, ...],
) -> None:
    """Add the cells of events that are meant for these peers: `low` and `high` are the bounds of `ranged`."""
    sums = hashes.add_up(grid.key, rows, ranged)
    words, slots, _ = grid.split(sums.keys)
    for peer in peers:
        named, others = _for_peer(peer, words)
        _add_slots(cells, what, named, slots[others], Sums(*(column[others] for column in sums)))


def _add_slots(cells: _Cells, what: Measure, words: Mapping[str, Words], slots: Numbers, sums: Sums) -> None:
    cells.add(what, words, slots, sums.rows, total=sums.total, low=sums.low, high=sums.high, content=sums.content)


def _for_peer(peer: str, words: Mapping[str, Words]) -> tuple[dict[str, Words], Mask | slice]:
    """Return the words of a peer's cells, and an index of these cells, without those of the peer's own events, which
    it need not get.

    If it has no own events among them, nothing is copied.
    """
    others = ~words["source"].where(peer.__eq__)
    if others.all():
        return {**words, "peer": constant(peer, len(others))}, slice(None)
    kept = {name: column.at(others) for name, column in words.items()}
    return kept | {"peer": constant(peer, int(others.sum()))}, others


def _add_counts(cells: _Cells, what: Measure, grid: Grid, rows: Mask, peers: tuple[str, ...]) -> None:
    keys, n = count(grid.key.at(rows))
    words, hours, _ = grid.split(keys)
    for peer in peers:
        named, others = _for_peer(peer, words)
        cells.add(what, named, hours[others], n[others])
