"""Reads the rows of a segment, and checks them against its manifest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from eventd.lake.segment_checks import numbers_fault, rows_fault
from eventd.lake.segment_file import BadSegment, SegmentFile, open_segment, parsing, require_none, with_added
from eventd.lake.storage import FileReader
from eventd.lake.writer import Segment

if TYPE_CHECKING:
    import pyarrow as pa


def read_segment(storage: FileReader, segment: Segment, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of a segment, with all columns or with these.

    Raises like `open_segment`, and BadSegment for rows that contradict the manifest, as far as columns are read: see
    `rows_fault`, for rows of another node or epoch, because a node must not report for another, and for all columns of
    a segment of a later version, which has some that this one does not know: a copy would lack them.
    """
    file = open_segment(storage, segment)
    if columns is None and file.later:
        raise BadSegment(f"its file has columns of a later version: {', '.join(file.later)}")
    wanted = file.names if columns is None else [*columns]
    with parsing():
        table = _with_numbers(file, segment, wanted) if "number" in wanted else file.read(wanted)
        table = with_added(table, segment.place.book, columns)
        require_none(rows_fault(segment.manifest, table))
        for name, own in (("node", segment.manifest.node), ("epoch", segment.manifest.epoch)):
            chunks = table[name].chunks if name in table.column_names else ()
            for chunk in chunks:
                if chunk.dictionary.to_pylist() != [own] and chunk.unique().to_pylist() not in ([own], []):
                    raise BadSegment(f"its rows are of another {name} than its manifest")
    return table


def _with_numbers(file: SegmentFile, segment: Segment, wanted: Sequence[str]) -> pa.Table:
    """Return these columns, which include `number`; that column is read and checked first.

    A small file may contain millions of equal rows, which this check refuses.
    """
    numbers = file.read(["number"])
    require_none(numbers_fault(segment.manifest, numbers["number"]))
    others = [name for name in wanted if name != "number"]
    if not others:
        return numbers
    at = min(wanted.index("number"), (rest := file.read(others)).num_columns)
    return rest.add_column(at, numbers.schema.field("number"), numbers["number"])
