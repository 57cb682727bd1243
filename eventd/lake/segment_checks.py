"""Checks that a segment can be what its manifest says: readers choose segments, and stop reading, by its ranges.

Nodes keep these rules when they write a segment. An edited segment may break them, to hide its rows from readers or to
keep readers busy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from eventd.lake.extra import pyarrow
from eventd.lake.layout import LARGEST, slot_of
from eventd.lake.losses import parse_loss
from eventd.lake.manifest import OUTSIDE, Manifest
from eventd.lake.schema import COLUMNS, OWN_TIME, SLOTTED, Column, ColumnType, Ledger
from federation.event import FIRST_TIME, LAST_TIME

if TYPE_CHECKING:
    import pyarrow as pa

MOST_ROWS: Final = 4_000_000
"""Maximum number of rows of a segment: a node ships at most about 2,000,000 in one, and the archive joins as many."""
OF_ROWS: Final = "its rows "
"""Begins a fault of rows, which were edited together with the manifest: its `times` and `slots` may be false, too."""
_REPEATING: Final = frozenset({Ledger.DELIVERIES, Ledger.RECEIPTS})
"""Ledgers in which rows may share a number: the deliveries of a batch do, and a second receipt is judged as such."""
_ANY: Final = frozenset({"fingerprint", "incarnation"})
"""Columns of whole numbers that are compared only, and may have any value."""
_LEAST: Final = -1
"""The lowest number, position, seq or count; it stands for an unknown one."""


def manifest_fault(manifest: Manifest) -> str | None:
    """Return why no segment can have this manifest, with "its" for the segment's; None if one can."""
    numbers = manifest.upto - manifest.after
    if not 0 < manifest.rows <= MOST_ROWS:
        return f"its manifest says {manifest.rows:,} rows, and a segment has 1 to {MOST_ROWS:,}"
    if manifest.book not in _REPEATING and manifest.rows > numbers:
        return f"its manifest says {manifest.rows:,} rows, and its range has {max(numbers, 0):,} numbers"
    for name, bounds, needed in (
        ("times", manifest.times, True),
        ("slots", manifest.slots, manifest.book in SLOTTED),
    ):
        if (bounds is not None) != needed:
            return f"its manifest {'has no' if needed else 'must not have'} `{name}`"
        if bounds is not None and bounds[0] > bounds[1]:
            return f"its manifest has `{name}` that end before they begin: {bounds[0]} to {bounds[1]}"
    unknown = next((lost.reason for lost in manifest.lost if parse_loss(lost.reason) is None), None)
    return None if unknown is None else f"its manifest declares a loss with the reason {unknown!r}, which no node has"


def rows_fault(manifest: Manifest, table: pa.Table) -> str | None:
    """Return why a segment cannot have these rows, with "its" for the segment's; None if it can.

    `table` has all rows of the segment; columns that it lacks are not checked.
    """
    names = frozenset(table.column_names)
    if not table.num_rows:
        return None
    times, slots = (_bounds(table[name]) if name in names else None for name in (OWN_TIME[manifest.book], "event_at"))
    return (
        (_numbers_fault(manifest, table["number"]) if "number" in names else None)
        or (_positions_fault(table) if manifest.book is Ledger.EVENTS and names >= {"number", "position"} else None)
        or next((fault for column in COLUMNS[manifest.book] if (fault := _values_fault(column, table))), None)
        or ranges_fault(manifest, times, slots)
    )


def ranges_fault(
    manifest: Manifest, times: tuple[int, int] | None, event_times: tuple[int, int] | None = None
) -> str | None:
    """Return in which range the rows of a segment differ from its manifest; None if in none.

    `times` and `event_times` are the first and last time of the rows and of their events, in microseconds; None if
    that is not known.
    """
    if times is not None and times != manifest.times:
        return f"{OF_ROWS}have other times than its manifest"
    if event_times is not None and manifest.book in SLOTTED:
        slots = slot_of(event_times[0]), slot_of(event_times[1])
        if slots != manifest.slots:
            return f"{OF_ROWS}have the slots {slots[0]} to {slots[1]}, and its manifest has others"
    return None


def _numbers_fault(manifest: Manifest, numbers: pa.ChunkedArray) -> str | None:
    from pyarrow import compute

    before, behind = numbers.slice(0, len(numbers) - 1), numbers.slice(1)
    repeating = manifest.book in _REPEATING
    follow = compute.less_equal(before, behind) if repeating else compute.less(before, behind)
    if not compute.all(follow).as_py() and len(numbers) > 1:
        return f"{OF_ROWS}are not in the order of their numbers{'' if repeating else ', or share one'}"
    first, last = numbers[0].as_py(), numbers[-1].as_py()
    if first <= manifest.after or last > manifest.upto:
        return f"{OF_ROWS}have the numbers {first} to {last}, outside of its range"
    return None


def _positions_fault(table: pa.Table) -> str | None:
    same = table["number"].equals(table["position"])
    return None if same else f"{OF_ROWS}have other positions than numbers"


def _values_fault(column: Column, table: pa.Table) -> str | None:
    """Return a fault if a column, which the table may lack, has a time or a whole number that no node records."""
    if column.name not in table.column_names or column.name in _ANY:
        return None
    if column.type is ColumnType.TIME and _exceeds(_bounds(table[column.name]), FIRST_TIME, LAST_TIME):
        return f"{OF_ROWS}have {OUTSIDE}, in the column {column.name}"
    if column.type is ColumnType.INT64 and _exceeds(_bounds(table[column.name]), _LEAST, LARGEST):
        return f"{OF_ROWS}have a number outside of {_LEAST} to {LARGEST:,}, in the column {column.name}"
    return None


def _bounds(column: pa.ChunkedArray) -> tuple[int, int] | None:
    """Return the lowest and the highest value; None if all are null."""
    from pyarrow import compute

    found: Any = compute.min_max(column.cast(pyarrow().int64()))
    return None if found["min"].as_py() is None else (found["min"].as_py(), found["max"].as_py())


def _exceeds(bounds: tuple[int, int] | None, least: int, most: int) -> bool:
    return bounds is not None and (bounds[0] < least or bounds[1] > most)
