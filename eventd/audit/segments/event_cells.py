"""Sums the rows of `events` of a segment into cells: what a node held, and what its links were to deliver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from eventd.audit.arrays.columns import NEVER, Columns, Mask, Numbers, Words, constant
from eventd.audit.arrays.counts import Key, Sums, add_up, count
from eventd.audit.arrays.grid import Grid
from eventd.audit.arrays.row_hash import CONTENT, contents, outlines
from eventd.audit.segments.cells import SLOTS_PER_HOUR, Cells, Measure
from eventd.audit.segments.link_rows import COLUMNS, ENDLESS, LinkRow, RowSelector
from eventd.lake.layout import MINUTE

if TYPE_CHECKING:
    import pyarrow as pa

EVENT_COLUMNS: Final = tuple(dict.fromkeys(("node", *COLUMNS, *CONTENT)))


def sum_events(
    segment: str, table: Columns, links: Sequence[LinkRow], since: int = NEVER, key: bytes = b""
) -> pa.Table:
    """Return the cells of a segment of `events` of a node with these links.

    Rows recorded before `since` (microseconds) are left out. `key` is that of the hashes of rows.
    """
    cells = Cells(segment)
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
        cells.add_spans(Measure.RECORDED, hours, hours.key.at(own_kept), spans)
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


def _add_held(cells: Cells, grid: Grid, rows: Mask, hashes: _RowHashes, recorded: Numbers) -> None:
    """Add the cells of the events that a node received; their peer is the node itself."""
    if rows.any():
        sums = hashes.add_up(grid.key, rows, recorded)
        words, slots, _ = grid.split(sums.keys)
        words["peer"] = words["node"]
        _add_slots(cells, Measure.HELD, words, slots, sums)


def _add_due(
    cells: Cells,
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


def _add_slots(cells: Cells, what: Measure, words: Mapping[str, Words], slots: Numbers, sums: Sums) -> None:
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


def _add_counts(cells: Cells, what: Measure, grid: Grid, rows: Mask, peers: tuple[str, ...]) -> None:
    keys, n = count(grid.key.at(rows))
    words, hours, _ = grid.split(keys)
    for peer in peers:
        named, others = _for_peer(peer, words)
        cells.add(what, named, hours[others], n[others])
