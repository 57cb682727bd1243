"""Checks the ranges that a manifest gives by the statistics at the end of the Parquet file.

A reader that selects segments by `slots` or `times` of their manifests reads no row of the others. This shows, without
reading them, that they have no row that should have been read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from eventd.errors import NotFound
from eventd.lake.extra import parquet, pyarrow
from eventd.lake.reader import BadSegment, read_segment
from eventd.lake.schema import OWN_TIME, SLOTTED
from eventd.lake.segment_checks import ranges_fault
from eventd.lake.storage import FileReader
from eventd.lake.writer import Segment

if TYPE_CHECKING:
    import pyarrow.parquet as parquet_type

_FOOTER: Final = 1 << 16
"""Bytes at the end of a Parquet file that have its statistics, unless it has very many row groups."""


def check_ranges(storage: FileReader, segment: Segment) -> None:
    """Compare `slots` and `times` of a manifest with the statistics of the segment's file.

    The rest of the file is read only if it has no statistics; otherwise its digest is not verified. Raises BadSegment,
    Arrow's errors for a file that is not Parquet, and LakeUnavailable.
    """
    place, manifest = segment
    try:
        data = storage.read_end(place.data, _FOOTER)
        length = int.from_bytes(data[-8:-4], "little") + 8
        data = data if length <= len(data) else storage.read_end(place.data, length)
    except NotFound:
        raise BadSegment("its file is missing") from None
    found = parquet().read_metadata(pyarrow().BufferReader(data))
    if found.num_rows != manifest.rows:
        raise BadSegment(f"its file has {found.num_rows} rows, and its manifest says {manifest.rows}")
    names = (OWN_TIME[place.book], *(["event_at"] if place.book in SLOTTED else []))
    times, *events = (_bounds(found, name) for name in names)
    if times is None or None in events:
        read_segment(storage, segment, names)
    elif (fault := ranges_fault(manifest, times, *events)) is not None:
        raise BadSegment(fault)


def _bounds(metadata: parquet_type.FileMetaData, name: str) -> tuple[int, int] | None:
    """Return the lowest and highest value of a column of times (microseconds); None if a row group does not say."""
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    bounds = []
    for column in (group.column(at) for group in groups for at in range(group.num_columns)):
        if column.path_in_schema == name:
            if column.statistics is None or not column.statistics.has_min_max:
                return None
            bounds.append((column.statistics.min_raw, column.statistics.max_raw))
    return (min(low for low, _ in bounds), max(high for _, high in bounds)) if bounds else None
