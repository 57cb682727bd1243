"""Builds Arrow columns from arrays of numbers, without a copy if possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from eventd.audit.generate.pseudo_random import Bytes, Ints, Smalls
from eventd.lake.schema import Ledger, segment_schema

Missing: TypeAlias = NDArray[np.bool_] | None
"""Marks the rows that have no value; None if every row has one."""

_TIME = pa.timestamp("us", tz="UTC")


def table(book: Ledger, columns: dict[str, Any]) -> Any:
    """Return an Arrow table of a ledger's rows, given its columns by name."""
    schema = segment_schema(book, leaves=False)
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def int64(values: Ints, missing: Missing = None) -> Any:
    """Return a column of int64, null in the rows marked `missing`."""
    return pa.array(values, mask=missing)


def int32(values: Ints | Smalls, missing: Missing = None) -> Any:
    """Return a column of int32, null in the rows marked `missing`."""
    return pa.array(values.astype(np.int32, copy=False), mask=missing)


def int16(values: Ints) -> Any:
    """Return a column of int16 without nulls."""
    return pa.array(values.astype(np.int16))


def booleans(values: NDArray[np.bool_]) -> Any:
    """Return a column of booleans without nulls."""
    return pa.array(values)


def timestamps(values: Ints, missing: Missing = None) -> Any:
    """Return a column of timestamps from microseconds since 1970, null in the rows marked `missing`."""
    return pa.array(values, mask=missing).view(_TIME)


def dictionary(names: Sequence[str] | Any, codes: NDArray[Any], missing: Missing = None) -> Any:
    """Return a dictionary column: row i is `names[codes[i]]`, or null if marked `missing`."""
    listed = pa.array(names, pa.string()) if isinstance(names, list | tuple) else names
    return pa.DictionaryArray.from_arrays(
        pa.array(codes.astype(np.int32, copy=False), mask=missing), listed, safe=False
    )


def distinct(names: Sequence[str] | Any, empty: NDArray[np.bool_]) -> tuple[Any, Ints]:
    """Return `names` and `codes` of `dictionary` for a column of `names`, with "" in the rows marked `empty`.

    The names of the other rows must be distinct: a dictionary with a repeated entry would not be written as the same
    bytes every time.
    """
    listed: Any = pa.array(names, pa.string()) if isinstance(names, list) else names
    kept = listed.filter(pa.array(~empty))
    return pa.concat_arrays([kept, pa.array([""])]), np.where(empty, len(kept), np.cumsum(~empty) - 1)


def constant(name: str, rows: int) -> Any:
    """Return a dictionary column with one text in every row."""
    return dictionary([name], np.zeros(rows, np.int32))


def strings(values: Bytes) -> Any:
    """Return a column of strings of equal length, from ASCII bytes [n, length]."""
    rows, length = values.shape
    if not rows * length < 1 << 31:
        raise ValueError("too much text for one column")
    offsets = np.arange(rows + 1, dtype=np.int32) * length
    data = np.ascontiguousarray(values)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(data))


def digests(values: Bytes) -> Any:
    """Return a column of 32-byte values, from bytes [n, 32]."""
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(32), len(values), [None, pa.py_buffer(values)])
