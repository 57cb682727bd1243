"""Arrow columns from arrays of numbers, without a copy where possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from eventd.audit.generate.pseudo_random import Bytes, Ints, Smalls
from eventd.lake.schema import Ledger, arrow_schema

Missing: TypeAlias = NDArray[np.bool_] | None
"""Which rows have no value; None: all have one."""

_TIME = pa.timestamp("us", tz="UTC")


def table(book: Ledger, columns: dict[str, Any]) -> Any:
    """The rows of a ledger from its columns, by name."""
    schema = arrow_schema(book)
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def ints(values: Ints, missing: Missing = None) -> Any:
    """int64."""
    return pa.array(values, mask=missing)


def small(values: Ints | Smalls, missing: Missing = None) -> Any:
    """int32."""
    return pa.array(values.astype(np.int32, copy=False), mask=missing)


def tiny(values: Ints) -> Any:
    """int16."""
    return pa.array(values.astype(np.int16))


def flags(values: NDArray[np.bool_]) -> Any:
    """bool."""
    return pa.array(values)


def times(values: Ints, missing: Missing = None) -> Any:
    """Timestamps from microseconds."""
    return pa.array(values, mask=missing).view(_TIME)


def words(names: Sequence[str] | Any, codes: NDArray[Any], missing: Missing = None) -> Any:
    """A dictionary column: row i is `names[codes[i]]`."""
    listed = pa.array(names, pa.string()) if isinstance(names, list | tuple) else names
    return pa.DictionaryArray.from_arrays(
        pa.array(codes.astype(np.int32, copy=False), mask=missing), listed, safe=False
    )


def distinct(names: Sequence[str] | Any, blank: NDArray[np.bool_]) -> tuple[Any, Ints]:
    """A dictionary of different names, and the place of each in it; the `blank` ones share the empty one at its end.

    A dictionary that names something twice is not written the same way every time.
    """
    listed: Any = pa.array(names, pa.string()) if isinstance(names, list) else names
    kept = listed.filter(pa.array(~blank))
    return pa.concat_arrays([kept, pa.array([""])]), np.where(blank, len(kept), np.cumsum(~blank) - 1)


def word(name: str, rows: int) -> Any:
    """A dictionary column of one word."""
    return words([name], np.zeros(rows, np.int32))


def texts(values: Bytes) -> Any:
    """Strings of one length, [n, length] characters."""
    rows, length = values.shape
    if not rows * length < 1 << 31:
        raise ValueError("too much text for one column")
    offsets = np.arange(rows + 1, dtype=np.int32) * length
    data = np.ascontiguousarray(values)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(data))


def blobs(values: Bytes) -> Any:
    """32 bytes each, [n, 32]."""
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(32), len(values), [None, pa.py_buffer(values)])
