"""Converts columns of ledger rows to an Arrow table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eventd.lake.extra import pyarrow
from eventd.lake.extract import Extract
from eventd.lake.schema import COLUMNS, Column, ColumnType, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa


def to_table(extract: Extract) -> pa.Table:
    """Return the rows as a table with the schema of a segment."""
    schema = arrow_schema(extract.book)
    arrays = [_array(column, extract.columns[column.name], schema) for column in COLUMNS[extract.book]]
    return pyarrow().Table.from_arrays(arrays, schema=schema)


def _array(column: Column, values: list[Any], schema: pa.Schema) -> pa.Array:
    arrow = pyarrow()
    wanted = schema.field(column.name).type
    if _all_equal(values):  # as very many columns have over some thousand rows
        return _repeated(column, values[0], len(values), wanted)
    if column.type is ColumnType.WORD:  # as one text, which is encoded in one pass
        return arrow.array(values, arrow.string()).dictionary_encode()
    if column.type is ColumnType.TIME:  # as numbers, which need no access to attributes
        return arrow.array(values, arrow.int64()).cast(wanted)
    return arrow.array(values, wanted)


def _all_equal(values: list[Any]) -> bool:
    """Return whether there is at least one value, and all are equal."""
    return bool(values) and values[0] == values[-1] and values.count(values[0]) == len(values)


def _repeated(column: Column, value: Any, count: int, wanted: pa.DataType) -> pa.Array:
    arrow = pyarrow()
    if value is None:
        return arrow.nulls(count, wanted)
    if column.type is ColumnType.WORD:
        return arrow.DictionaryArray.from_arrays(arrow.repeat(arrow.scalar(0, arrow.int32()), count), [value])
    return arrow.repeat(arrow.scalar(value, wanted), count)
