"""Sums the rows of `deliveries` of a segment into cells: by slot, and by type and hour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from eventd.audit.arrays.columns import NEVER, Columns, Mask, Numbers, Words
from eventd.audit.arrays.counts import add_up, count, highest, total_by_key
from eventd.audit.arrays.grid import Grid
from eventd.audit.arrays.row_hash import OUTLINE, outlines
from eventd.audit.segments.cells import SLOTS_PER_HOUR, Cells, Measure
from eventd.audit.segments.hourly_skew import HourlySkew, skew_of
from eventd.lake.layout import MINUTE

if TYPE_CHECKING:
    import pyarrow as pa

MOST_ATTEMPTS: Final = 64
"""Deliveries with more attempts count as this many."""


_OUTCOMES: Final = {  # their measures are adjacent numbers
    "delivered": Measure.DELIVERED,
    "expired": Measure.EXPIRED,
    "in_path": Measure.IN_PATH,
    "refused": Measure.REFUSED,
}

_REASONS: Final = {"expired": Measure.SLOT_EXPIRED, "in_path": Measure.SLOT_IN_PATH}
DELIVERY_COLUMNS: Final = (
    *("node", "group", "peer", "source", "attempts", "outcome", "recorded_at", "attempt_at", "done_at"),
    *("peer_recorded_at", *OUTLINE),
)


def sum_deliveries(
    segment: str, table: Columns, skews: Mapping[str, HourlySkew], since: int = NEVER, key: bytes = b""
) -> pa.Table:
    """Return the cells of a segment of `deliveries`.

    `skews` has how far each peer's clock is ahead. Rows with a `done_at` before `since` (microseconds) are left out.
    `key` is that of the hashes of rows.
    """
    cells = Cells(segment)
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
    cells: Cells, what: Measure, grid: Grid, rows: Mask, outline: Numbers, done: Numbers, begun: Numbers
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
    cells.add(what, words, slots, sums.rows, total=sums.total, low=sums.low, high=highest(key, begun, sums.keys))
    if what is Measure.SENT and (relayed := ~words["source"].equal(words["node"])).any():
        turned = {name: column.at(relayed) for name, column in words.items()}
        turned |= {"node": turned["peer"], "peer": turned["node"]}
        cells.add(Measure.RELAYED, turned, slots[relayed], sums.rows[relayed], total=sums.total[relayed])


def _add_figures(cells: Cells, rows: _Rows, grid: Grid, delivered: Mask, skews: Mapping[str, HourlySkew]) -> None:
    """Add cells by type and hour: deliveries and bytes by outcome; attempts and latencies of the delivered ones."""
    outcome = rows.words("outcome")
    whats = np.array([_OUTCOMES.get(value, Measure.REFUSED) for value in outcome.values], np.int64)[outcome.codes]
    ended = grid.key.beside(whats - Measure.DELIVERED, len(_OUTCOMES))
    keys, n = count(ended)
    words, hours, ends = grid.split(keys, len(_OUTCOMES))
    size = total_by_key(ended, rows.numbers("bytes"), keys)
    cells.add(ends + Measure.DELIVERED, words, hours, n, total=size)
    if not delivered.any():
        return
    whole = bool(delivered.all())

    def taken(values: Numbers) -> Numbers:
        return values if whole else values[delivered]

    key = grid.key if whole else grid.key.at(delivered)
    attempts = np.clip(taken(rows.numbers("attempts")), 0, MOST_ATTEMPTS)
    cells.add_histogram(Measure.ATTEMPTS, grid, key, attempts, attempts, MOST_ATTEMPTS + 1)
    event, recorded, sent = (taken(rows.numbers(name)) for name in ("event_at", "recorded_at", "attempt_at"))
    cells.add_spans(Measure.ACKNOWLEDGED, grid, key, taken(rows.numbers("done_at")) - recorded)
    arrived = taken(rows.numbers("peer_recorded_at"))
    known = arrived != NEVER
    peer = rows.words("peer") if whole else rows.words("peer").at(delivered)
    if not known.all():
        key, event, sent, arrived, peer = key.at(known), event[known], sent[known], arrived[known], peer.at(known)
    arrived = arrived - skew_of(peer, arrived, skews)
    cells.add_spans(Measure.PEER_RECORDED, grid, key, arrived - sent)
    cells.add_spans(Measure.WHOLE, grid, key, arrived - event)
