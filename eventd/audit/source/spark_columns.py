"""The columns of a ledger as Spark types, and rows converted to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import types

from eventd.errors import Invalid
from eventd.lake.schema import COLUMNS, ColumnType, Ledger, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

_TYPES: Final[dict[ColumnType, types.DataType]] = {
    ColumnType.INT64: types.LongType(),
    ColumnType.INT32: types.IntegerType(),
    ColumnType.INT16: types.ShortType(),
    ColumnType.BOOL: types.BooleanType(),
    ColumnType.STRING: types.StringType(),
    ColumnType.WORD: types.StringType(),
    ColumnType.TIME: types.TimestampType(),
    ColumnType.DIGEST: types.BinaryType(),
}
BATCH_ROWS: Final = 32_768
"""Rows per Arrow batch for Spark."""


def spark_schema(book: Ledger) -> types.StructType:
    """Return the columns of a ledger as a Spark schema."""
    fields = [types.StructField(column.name, _TYPES[column.type], column.null) for column in COLUMNS[book]]
    return types.StructType(fields)


def check_columns(book: Ledger, schema: types.StructType) -> None:
    """Check that the user's schema has only columns of the ledger, of the same types. Raises Invalid."""
    check_among(spark_schema(book), book.value, schema)


def check_among(columns: types.StructType, book: str, schema: types.StructType) -> None:
    """Check that the user's schema has only these columns, of the same types. Raises Invalid."""
    known = {field.name: field.dataType for field in columns}
    for field in schema:
        if field.name not in known:
            raise Invalid(f"the ledger {book} has no column {field.name}", hint=f"it has: {', '.join(known)}")
        if field.dataType != known[field.name]:
            wanted = known[field.name].simpleString()
            given = field.dataType.simpleString()
            raise Invalid(
                f"the column {field.name} of the ledger {book} is of type {wanted}, not {given} as in the given schema"
            )


def arrow_names(schema: types.StructType) -> Sequence[str]:
    """Return the names of the columns to read. `number` is always among them: rows are selected by it."""
    return list(dict.fromkeys(["number", *schema.names]))


def tabulate(book: Ledger, columns: Mapping[str, Sequence[Any]], names: Sequence[str]) -> pa.Table:
    """Return an Arrow table of the columns `names`, built from lists: times in microseconds, digests as bytes."""
    import pyarrow as pa

    schema = arrow_schema(book)
    fields = [schema.field(name) for name in names]
    kinds = [pa.string() if pa.types.is_dictionary(field.type) else field.type for field in fields]
    arrays = [pa.array(columns[field.name], kind) for field, kind in zip(fields, kinds, strict=True)]
    return pa.Table.from_arrays(arrays, names=list(names))


def arrow_shape(schema: types.StructType) -> pa.Schema:
    """Return the Arrow schema in which Spark expects the columns of `schema`.

    Spark's own function for it differs between the versions of Spark.
    """
    import pyarrow as pa

    kinds: dict[type[types.DataType], pa.DataType] = {
        types.LongType: pa.int64(),
        types.IntegerType: pa.int32(),
        types.ShortType: pa.int16(),
        types.BooleanType: pa.bool_(),
        types.StringType: pa.string(),
        types.BinaryType: pa.binary(),
        types.TimestampType: pa.timestamp("us", tz="UTC"),
    }
    return pa.schema([pa.field(field.name, kinds[type(field.dataType)], field.nullable) for field in schema])


def batches(table: pa.Table, schema: types.StructType, after: int, upto: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows with numbers in (after, upto], in batches for Spark of at most `BATCH_ROWS`.

    They have the columns of `schema` in its order, and exactly of its types.
    """
    import pyarrow as pa
    from pyarrow import compute

    number = table["number"]
    bounds = compute.min_max(number)
    if table.num_rows and (bounds["min"].as_py() <= after or bounds["max"].as_py() > upto):
        table = table.filter(compute.and_(compute.greater(number, after), compute.less_equal(number, upto)))
    shape = arrow_shape(schema)
    for batch in table.select(schema.names).to_batches(max_chunksize=BATCH_ROWS):
        yield pa.RecordBatch.from_arrays(
            [_plain(*pair) for pair in zip(batch.columns, shape.types, strict=True)], schema=shape
        )


def _plain(column: pa.Array, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column if column.type == kind else column.cast(kind)
