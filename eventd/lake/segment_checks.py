"""Checks that a segment can be what its manifest says: readers choose segments, and stop reading, by its ranges.

Nodes keep these rules when they write a segment. An edited segment may break them, to hide its rows from readers or to
keep readers busy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from eventd.lake.extra import pyarrow
from eventd.lake.layout import LARGEST, MINUTE, slot_of
from eventd.lake.losses import parse_loss
from eventd.lake.manifest import OUTSIDE, Manifest
from eventd.lake.schema import COLUMNS, OWN_TIME, SLOTTED, Column, ColumnType, Ledger
from federation.event import FIRST_TIME, LAST_TIME, format_time
from federation.peers import MAX_TEXT

if TYPE_CHECKING:
    import pyarrow as pa

MOST_ROWS: Final = 4_000_000
"""Maximum number of rows of a segment: a node ships at most about 2,000,000 in one, and the archive joins as many."""
MOST_BYTES: Final = 8 << 30
"""Maximum number of bytes of the file of a segment, which is read as a whole."""
_REPEATING: Final = frozenset({Ledger.DELIVERIES, Ledger.RECEIPTS, Ledger.HISTORY})
"""Ledgers in which several rows may have the same number: the deliveries of a batch do, and what was shipped of the
trees of a node at one time; a second receipt of a batch is reported by the audit."""
_ANY: Final = frozenset({"fingerprint", "incarnation"})
"""Columns of whole numbers that are compared only, and may have any value."""
_NAMES: Final = frozenset({"id", "subject", "type", "dedupe_key"})
"""Columns of texts, for which the limits of the texts in an event apply."""
_LONGEST: Final = 4 * MAX_TEXT
"""Maximum bytes of a text in these columns, in UTF-8."""
_LEAST: Final = -1
"""The lowest number, position, seq or count in a ledger: -1, which stands for an unknown value."""
_WHOLE: Final = (ColumnType.INT64, ColumnType.INT32, ColumnType.INT16)
"""The types of columns of whole numbers. Their values are from `_LEAST` to `LARGEST`, except in the columns `_ANY`."""


class Bounds(NamedTuple):
    """The lowest and the highest value of a column of whole numbers, or of times in microseconds."""

    low: int
    high: int


def manifest_fault(manifest: Manifest) -> str | None:
    """Return the fault of a manifest, as a text that begins with "its manifest"; None if it has none."""
    numbers = manifest.upto - manifest.after
    if not 0 < manifest.rows <= MOST_ROWS:
        return f"its manifest says {manifest.rows:,} rows, and a segment has 1 to {MOST_ROWS:,}"
    if manifest.book not in _REPEATING and manifest.rows > numbers:
        return f"its manifest says {manifest.rows:,} rows, and its range has {max(numbers, 0):,} numbers"
    if manifest.bytes > MOST_BYTES:
        return f"its manifest says {manifest.bytes:,} bytes, and a segment has at most {MOST_BYTES >> 30} GiB"
    for name, bounds, needed in (
        ("times", manifest.times, True),
        ("slots", manifest.slots, manifest.book in SLOTTED),
    ):
        if (bounds is not None) != needed:
            return f"its manifest {'has no' if needed else 'must not have'} `{name}`"
        if bounds is not None and bounds[0] > bounds[1]:
            return f"its manifest has `{name}` that end before they begin: {bounds[0]} to {bounds[1]}"
    if manifest.leaves and manifest.book is not Ledger.EVENTS:
        return "its manifest says that its rows have leaves, and only events have them"
    unknown = next((lost.reason for lost in manifest.lost if parse_loss(lost.reason) is None), None)
    return None if unknown is None else f"its manifest declares a loss with the reason {unknown!r}, which no node has"


def rows_fault(manifest: Manifest, table: pa.Table) -> str | None:
    """Return why a segment cannot have these rows, as a text that calls the segment "its"; None if it can.

    `table` has all rows of the segment; columns that it lacks are not checked.
    """
    names = frozenset(table.column_names)
    if not table.num_rows:
        return None
    checked = [one for one in COLUMNS[manifest.book] if one.name in names and one.type in (ColumnType.TIME, *_WHOLE)]
    bounds = {one.name: found for one in checked if (found := column_bounds(table[one.name])) is not None}
    return (
        (numbers_fault(manifest, table["number"]) if "number" in names else None)
        or (_positions_fault(table) if manifest.book is Ledger.EVENTS and names >= {"number", "position"} else None)
        or next((fault for one in checked if (fault := _values_fault(one, bounds)) is not None), None)
        or next((fault for name in sorted(names & _NAMES) if (fault := _texts_fault(name, table)) is not None), None)
        or ranges_fault(manifest, bounds.get(OWN_TIME[manifest.book]), bounds.get("event_at"))
    )


def ranges_fault(manifest: Manifest, times: Bounds | None, event_times: Bounds | None = None) -> str | None:
    """Return how the times or slots of a segment's rows differ from the ranges in its manifest; None if they do not.

    `times` and `event_times` are those of the rows and of their events; None if they are not known.
    """
    if times is not None and manifest.times is not None and times != manifest.times:
        return f"its rows have the times {_shown(times)}, and its manifest says {_shown(manifest.times)}"
    if event_times is not None and manifest.slots is not None:
        slots = Bounds(slot_of(event_times.low), slot_of(event_times.high))
        if slots != manifest.slots:
            said = _shown((manifest.slots[0] * MINUTE, manifest.slots[1] * MINUTE))
            found = _shown((slots.low * MINUTE, slots.high * MINUTE))
            return f"its rows have the slots {found}, and its manifest says {said}"
    return None


def _shown(times: tuple[int, int]) -> str:
    """Format the ends of a range, of which those outside of the years 1 to 9999 are shown as the nearest time."""
    first, last = (format_time(min(max(time, FIRST_TIME), LAST_TIME)) for time in times)
    return f"{first} to {last}"


def numbers_fault(manifest: Manifest, numbers: pa.ChunkedArray) -> str | None:
    """Return why the rows of a segment cannot have these numbers, as a text that calls the segment "its".

    None if they can.
    """
    from pyarrow import compute

    before, behind = numbers.slice(0, len(numbers) - 1), numbers.slice(1)
    repeating = manifest.book in _REPEATING
    falls = compute.greater(before, behind) if repeating else compute.greater_equal(before, behind)
    if len(numbers) > 1 and (at := compute.index(falls, True).as_py()) >= 0:
        return f"its row {at + 2:,} has the number {numbers[at + 1]}, after {numbers[at]}"
    if not len(numbers):
        return None
    first, last = numbers[0].as_py(), numbers[-1].as_py()
    if first <= manifest.after or last > manifest.upto:
        return f"its rows have the numbers {first} to {last}, outside of its range"
    return None


def _positions_fault(table: pa.Table) -> str | None:
    from pyarrow import compute

    numbers, positions = table["number"], table["position"]
    at = compute.index(compute.not_equal(numbers, positions), True).as_py()
    return None if at < 0 else f"its row with the number {numbers[at]} has the position {positions[at]}"


def _values_fault(column: Column, bounds: Mapping[str, Bounds]) -> str | None:
    """Return a fault if a column, given the bounds of all, has a time or a whole number that no node records."""
    found = bounds.get(column.name)
    if found is None or column.name in _ANY:
        return None
    if column.type is ColumnType.TIME and _exceeds(found, FIRST_TIME, LAST_TIME):
        return f"its rows have {OUTSIDE}, in the column {column.name}"
    if column.type in _WHOLE and _exceeds(found, _LEAST, LARGEST):
        return f"its rows have a number outside of {_LEAST} to {LARGEST:,}, in the column {column.name}"
    return None


def _texts_fault(name: str, table: pa.Table) -> str | None:
    from pyarrow import compute

    chunks = table[name].chunks
    lengths = [compute.binary_length(chunk.dictionary if hasattr(chunk, "dictionary") else chunk) for chunk in chunks]
    longest = max((compute.max(one).as_py() or 0 for one in lengths), default=0)
    if longest <= _LONGEST:
        return None
    return f"its rows have a text of {longest:,} bytes in the column {name}, and events have at most {_LONGEST:,}"


def column_bounds(column: pa.ChunkedArray) -> Bounds | None:
    """Return the lowest and the highest value of a column of whole numbers or times; None if all are null."""
    from pyarrow import compute

    found: Any = compute.min_max(column.cast(pyarrow().int64()))
    return None if found["min"].as_py() is None else Bounds(found["min"].as_py(), found["max"].as_py())


def _exceeds(bounds: Bounds, least: int, most: int) -> bool:
    return bounds.low < least or bounds.high > most
