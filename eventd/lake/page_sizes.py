"""Measures the pages of a Parquet file before they are read: a small file may contain very much data.

Pages are compressed, a page that repeats one text to a ten-thousandth of its size, and a text in a dictionary takes
only a few bits for each row that has it. The header of a page says how large the page is when decompressed, and
readers refuse a page of another size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from eventd.lake.extra import pyarrow
from eventd.lake.footer_statistics import decode_footer
from eventd.lake.thrift import INT64, Struct, StructDecoder

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as parquet_type

LEAST_BOUND: Final = 256 << 20
"""Number of bytes in memory that is allowed for the content of any segment, however small its file is."""
MOST_TIMES: Final = 100
"""The content of a larger segment may take this multiple of the bytes of its file: it has digests, which cannot be
compressed."""
MOST_CONTENT: Final = 16 << 30
"""Maximum number of bytes in memory for the content of a segment, however large its file is."""
_MOST_PAGES: Final = 1 << 18
"""Maximum number of pages of a file. A page has about 20,000 rows or a megabyte, so nodes write far fewer."""

_DATA, _INDEX, _DICTIONARY, _DATA_V2 = range(4)
"""Types of pages."""
_MOST_NESTED: Final = 1000
"""Maximum number of values of a row in a nested column."""
_PREFIXES: Final = 7
"""The encoding DELTA_BYTE_ARRAY, in which a text of a few bytes may repeat all of the one before it."""
_LARGEST: Final = (1 << 31) - 1


class _Page(NamedTuple):
    """The header of a page: its type, its size in memory, and its number of values."""

    kind: int
    bytes: int
    values: int


def most_bytes(file: int) -> int:
    """Return how many bytes the content of a segment may take in memory if its file has `size` bytes."""
    return min(MOST_CONTENT, max(LEAST_BOUND, MOST_TIMES * file))


def content_bytes(footer: parquet_type.FileMetaData) -> int:
    """Return how many bytes the pages of a file take in memory, with their headers, by the footer of its own writer.

    The result is never less than the sum that `with_dictionaries` computes, which leaves out the headers.
    """
    return sum(int(footer.row_group(at).total_byte_size) for at in range(footer.num_row_groups))


def with_dictionaries(data: bytes, columns: int, rows: int, *, nested: bool = False) -> list[int]:
    """Return the indexes of the columns of a Parquet file that have dictionaries.

    The file has so many `columns`, which may be lists if they are `nested`. Raises ValueError if its footer or its
    pages are damaged or do not have so many `rows`, or if its pages take more memory than `most_bytes`.
    """
    groups = _groups(decode_footer(data), columns, _MOST_NESTED if nested else 1)
    if (found := sum(rows_of for rows_of, _ in groups)) != rows:
        raise ValueError(f"its file has row groups of {found:,} rows, and its manifest says {rows:,}")
    most = most_bytes(len(data))
    size = count = 0
    known = set()
    for _, chunks in groups:
        for at, chunk in enumerate(chunks):
            for page in _pages(data, chunk):
                size, count = size + page.bytes, count + 1
                if page.kind == _DICTIONARY:
                    known.add(at)
                if size > most:
                    raise ValueError(over(len(data)))
                if count > _MOST_PAGES:
                    raise ValueError(f"its file has more than {_MOST_PAGES:,} pages")
    return sorted(known)


def word_bytes(table: pa.Table, enough: int = 0) -> int:
    """Return how many bytes the texts of all rows have in columns with dictionaries.

    If there are at most `enough` bytes, the result may be an upper bound, computed without looking at all rows.
    """
    from pyarrow import compute

    chunks = [chunk for one in table.columns if _is_dictionary(one.type) for chunk in one.chunks]
    lengths = [compute.binary_length(chunk.dictionary).cast("int64") for chunk in chunks]
    most = sum((compute.max(one).as_py() or 0) * len(chunk) for one, chunk in zip(lengths, chunks, strict=True))
    if most <= enough:
        return most
    return sum(compute.sum(one.take(chunk.indices)).as_py() or 0 for one, chunk in zip(lengths, chunks, strict=True))


def _is_dictionary(kind: pa.DataType) -> bool:
    return bool(pyarrow().types.is_dictionary(kind))


def over(file: int) -> str:
    """Return the message that the content of a segment, whose file has this many bytes, takes too much memory."""
    return f"its file of {file:,} bytes would take more than {most_bytes(file) >> 20:,} MiB of memory"


def _groups(footer: Struct, columns: int, values: int) -> list[tuple[int, list[Struct]]]:
    """Return the number of rows of each row group, and the metadata of its columns.

    A row has at most so many `values` in a column. Raises ValueError.
    """
    try:
        groups = [(group[3], [chunk[3] for chunk in group[1]]) for group in footer[4]]
        sound = all(
            rows >= 0
            and len(chunks) == columns
            and all(rows <= chunk[5] <= rows * values and chunk.types.get(11, INT64) == INT64 for chunk in chunks)
            for rows, chunks in groups
        )
    except (KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise ValueError("its footer is damaged: its row groups do not have the columns or the rows of the file")
    return groups


def _pages(data: bytes, chunk: Struct) -> Iterator[_Page]:
    """Yield the pages of a column of a row group, as Arrow reads them: until there are as many values as it has.

    Raises ValueError.
    """
    try:
        values = chunk[5]
        at = min(chunk[9], first) if (first := chunk.get(11, 0)) > 0 else chunk[9]
        while values > 0:
            if not 0 <= at < len(data):
                raise IndexError("it lies outside of the file")
            decoder = StructDecoder(data, at)
            page, compressed = _page(decoder.struct())
            yield page
            values -= page.values
            at = decoder.at + compressed
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"the header of a page is damaged: {error}") from None


def _page(header: Struct) -> tuple[_Page, int]:
    """Return the header of a page, and the size of the page in the file. Raises ValueError and KeyError."""
    kind, size, compressed = header[1], header[2], header[3]
    values = 0
    if kind in (_DATA, _DATA_V2):
        values, encoding = (header[5][1], header[5][2]) if kind == _DATA else (header[8][1], header[8][4])
        if encoding == _PREFIXES:
            raise ValueError("its file has pages in an encoding that no node writes")
    if kind not in range(4) or not all(0 <= one <= _LARGEST for one in (size, compressed, values)):
        raise ValueError("the header of a page is damaged: it has a number that no page has")
    return _Page(kind, size, values), compressed
