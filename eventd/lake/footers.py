"""Checks the ranges that manifests give by the statistics at the end of the Parquet files.

A reader that selects segments by the `slots` or `times` of their manifests does not read the other segments. This
check shows that these contain no row that should have been read, without reading them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from eventd.lake.extra import parquet, pyarrow
from eventd.lake.footer_statistics import decode_footer, time_bounds
from eventd.lake.schema import OWN_TIME, SLOTTED
from eventd.lake.segment_checks import Bounds, ranges_fault
from eventd.lake.segment_file import BadSegment, contents_fault, parsing
from eventd.lake.segment_reader import read_segment
from eventd.lake.storage import EndReader
from eventd.lake.stored_files import StoredFile
from eventd.lake.writer import Segment

_FOOTER: Final = 1 << 16
"""Bytes at the end of a Parquet file that have its statistics, unless it has very many row groups."""
_TAIL: Final = 8
"""Bytes at the very end: the length of the footer before them, and the mark of a Parquet file."""


def false_ranges(storage: EndReader, segments: Sequence[Segment]) -> dict[str, str]:
    """Return, by name, in what segments differ from their manifests, as far as the ends of their files show it.

    Columns, number of rows, `slots` and `times` are compared. The rest of a file is read only if it has no statistics;
    otherwise its digest is not verified. The ends are read with one request each. Raises LakeUnavailable.
    """
    ends = storage.read_ends([_file_of(one) for one in segments], _FOOTER)
    long = [one for one in segments if (end := ends.get(one.place.data)) is not None and _length(end) > len(end)]
    for one in long:  # of very many row groups; a damaged length leads no further than to the begin of the file
        ends |= storage.read_ends([_file_of(one)], min(_length(ends[one.place.data]), one.manifest.bytes))
    return dict(_faults(storage, segments, ends))


def _file_of(segment: Segment) -> StoredFile:
    return StoredFile(segment.place.data, segment.manifest.bytes)


def _length(end: bytes) -> int:
    return int.from_bytes(end[-_TAIL:-4], "little") + _TAIL


def _faults(storage: EndReader, segments: Sequence[Segment], ends: dict[str, bytes]) -> Iterator[tuple[str, str]]:
    for one in segments:
        try:
            if (end := ends.get(one.place.data)) is None:
                raise BadSegment("its file is missing")
            _check(storage, one, end)
        except BadSegment as error:
            yield one.place.name, str(error)


def _check(storage: EndReader, segment: Segment, end: bytes) -> None:
    """Compare a manifest with the end of the segment's file. Raises BadSegment and LakeUnavailable."""
    place, manifest = segment
    with parsing():
        found = parquet().read_metadata(pyarrow().BufferReader(end))
        fault = contents_fault(manifest, found.schema.to_arrow_schema(), found.num_rows)
        names = (OWN_TIME[place.book], *(["event_at"] if place.book in SLOTTED else []))
        bounds = [_bounds(end, name) for name in names]
    if fault is None and None in bounds:
        read_segment(storage, segment, names)
    elif fault is not None or (fault := ranges_fault(manifest, *bounds)) is not None:
        raise BadSegment(fault)


def _bounds(end: bytes, name: str) -> Bounds | None:
    """Return the first and last time in a column (microseconds); None if the footer does not say."""
    try:
        found = time_bounds(decode_footer(end), name)
    except ValueError as error:
        raise BadSegment(str(error)) from None
    return None if found is None else Bounds(*found)
