"""The Parquet file of a segment, which is compared with its manifest before any of its rows takes memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from eventd.errors import LakeUnavailable, NotFound
from eventd.lake.extra import parquet, pyarrow
from eventd.lake.file_sizes import TooLargeFile
from eventd.lake.manifest import Manifest
from eventd.lake.page_sizes import most_bytes, over, with_dictionaries, word_bytes
from eventd.lake.schema import DEDUPE_KEY, LEAVES, Ledger, arrow_schema, arrow_types, segment_schema
from eventd.lake.segment_checks import manifest_fault
from eventd.lake.storage import FileReader
from eventd.lake.writer import Segment

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as parquet_type


class BadSegment(Exception):
    """A segment differs from its manifest. The text is the reason, and calls the segment "its"."""


@contextmanager
def parsing() -> Iterator[None]:
    """Raise BadSegment for what Arrow raises while it parses a segment, whose file may be damaged in any way.

    Arrow's own errors have no common base class: a damaged footer or page header is a plain OSError. Raises
    LakeUnavailable if this machine lacks memory, which is no fault of the segment.
    """
    try:
        yield
    except MemoryError as error:  # also Arrow's, which is an ArrowException, too
        raise LakeUnavailable(
            f"this machine has too little memory to read a segment of the lake: {error}",
            hint="use a machine with more memory; an audit with --master 'local[1]' reads one segment at a time",
        ) from None
    except (pyarrow().ArrowException, OSError, UnicodeDecodeError) as error:
        raise BadSegment(f"its file cannot be read: {error}") from None


class SegmentFile:
    """The file of a segment in memory, as `open_segment` returns it.

    Before the first rows are read, the sizes of its pages are compared with a bound, see `most_bytes`. Texts in a
    dictionary take more memory when every row has its own copy, so they are expanded only if the copies are within the
    bound.
    """

    def __init__(self, data: bytes, manifest: Manifest) -> None:
        self._data = data
        self._manifest = manifest
        self._measured: parquet_type.ParquetFile | None = None
        with parsing():
            file = parquet().ParquetFile(pyarrow().BufferReader(data))
            self._schema = file.schema_arrow  # which a file makes anew each time
            require_none(contents_fault(manifest, self._schema, file.metadata.num_rows))
        self._file = file
        known = arrow_schema(manifest.book).names
        self.names: list[str] = [name for name in self._schema.names if name in known]
        self.later: list[str] = [name for name in self._schema.names if name not in known]
        """Columns that a later version has added: they are not read."""
        self.row_groups: int = file.num_row_groups

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Return these columns of all rows. Raises BadSegment, and LakeUnavailable for lack of memory."""
        with parsing():
            return self._texts(self._within_bound().read([*columns]))

    def read_group(self, at: int, columns: Sequence[str]) -> pa.Table:
        """Return these columns of the rows of one row group. Raises like `read`."""
        with parsing():
            return self._texts(self._within_bound().read_row_group(at, [*columns]))

    def _within_bound(self) -> parquet_type.ParquetFile:
        """Return the file, opened so that columns with dictionaries stay dictionaries when they are read.

        Raises BadSegment.
        """
        if self._measured is None:
            try:
                found = with_dictionaries(self._data, len(self._schema), self._manifest.rows)
            except ValueError as error:
                raise BadSegment(str(error)) from None
            fields = [self._schema.field(at) for at in found]
            texts = [field.name for field in fields if field.type == pyarrow().string()]
            again = parquet().ParquetFile(pyarrow().BufferReader(self._data), read_dictionary=texts) if texts else None
            self._measured = again or self._file
        return self._measured

    def _texts(self, table: pa.Table) -> pa.Table:
        """Return rows in which the columns that were read as dictionaries are texts, except columns of words.

        Raises BadSegment. The texts of all rows count, also those of words: a later step may need them row by row.
        """
        most = most_bytes(len(self._data))
        if word_bytes(table, most) > most:
            raise BadSegment(over(len(self._data)))
        for name, column in zip(table.column_names, table.columns, strict=True):
            field = self._schema.field(name)
            if column.type != field.type:
                table = table.set_column(table.column_names.index(name), field, column.cast(field.type))
        return table


def open_segment(storage: FileReader, segment: Segment) -> SegmentFile:
    """Read the Parquet file of a segment into memory, and verify its size, digest, columns and number of rows.

    Raises BadSegment and LakeUnavailable.
    """
    place, manifest = segment
    require_none(manifest_fault(manifest))
    try:
        with parsing():  # the machine may lack the memory
            data = storage.read_within(place.data, manifest.bytes)
    except NotFound:
        raise BadSegment("its file is missing") from None
    except TooLargeFile:
        raise BadSegment(f"its file has more than the {manifest.bytes} bytes that it had when it was written") from None
    if (size := len(data)) != manifest.bytes:
        raise BadSegment(f"its file has {size} bytes, and had {manifest.bytes} when it was written")
    if hashlib.sha256(data).hexdigest() != manifest.sha256:
        raise BadSegment("its file was changed after it was written")
    return SegmentFile(data, manifest)


def contents_fault(manifest: Manifest, found: pa.Schema, rows: int) -> str | None:
    """Return why a file with these columns and this number of rows is not the segment's; None if it may be."""
    schema = segment_schema(manifest.book, leaves=manifest.leaves)
    earlier = schema
    if manifest.book is Ledger.EVENTS and not manifest.leaves:
        earlier = schema.remove(schema.get_field_index(DEDUPE_KEY))
    if not any(found.equals(one) or _adds_to(one, found, manifest.book) for one in (schema, earlier)):
        return "its file has other columns than the ledger"
    if rows != manifest.rows:
        return f"its file has {rows} rows, and its manifest says {manifest.rows}"
    return None


def _adds_to(schema: pa.Schema, found: pa.Schema, book: Ledger) -> bool:
    """Return whether these columns are those of a schema and, after them, nullable ones that no version has had yet."""
    added = [found.field(at) for at in range(len(schema), len(found))]
    known, types = {*arrow_schema(book).names}, {*arrow_types().values()}
    return (
        len(added) > 0
        and all(found.field(at).equals(schema.field(at)) for at in range(len(schema)))
        and all(one.nullable and one.name not in known and one.type in types for one in added)
        and len({one.name for one in added}) == len(added)
    )


def with_added(table: pa.Table, book: Ledger, columns: Sequence[str] | None) -> pa.Table:
    """Return the table with the columns that its segment lacks, if they are wanted.

    All rows have an empty dedupe key, which stands for an unknown one, and no leaf.
    """
    if book is not Ledger.EVENTS:
        return table
    for name in (DEDUPE_KEY, *LEAVES):
        if name not in table.column_names and (columns is None or name in columns):
            field = arrow_schema(book).field(name)
            rows = table.num_rows
            values = pyarrow().repeat("", rows) if name == DEDUPE_KEY else pyarrow().nulls(rows, field.type)
            table = table.append_column(field, values)
    return table


def require_none(fault: str | None) -> None:
    """Raise BadSegment with a fault, if there is one."""
    if fault is not None:
        raise BadSegment(fault)
