"""Distributes work to Spark's tasks, and rows by key.

Spark distributes, moves and retries. Each row that it moves is a whole Arrow table, whose rows are made, divided and
summed outside of the JVM, which would need ten times as long per row.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from eventd.audit.engine.columns import Columns, Numbers
from eventd.lake.extra import pyarrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_PARTED: Final = "part int, data binary"
_NAMED: Final = "name string, data binary"
_MOST_ROWS: Final = 262_144
"""Maximum number of rows of a table that is moved as one."""
_PRIME: Final = 0x9E3779B97F4A7C15 - (1 << 64)


def run_pieces(spark: SparkSession, work: Callable[[int], bytes], pieces: int) -> list[bytes]:
    """Return the results of `work` for the numbers below `pieces`, each in its own task, in no particular order."""

    def carry(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrow = pyarrow()
        for piece in _pieces(batches):
            yield arrow.record_batch([arrow.array([work(piece)], arrow.binary())], names=["result"])

    if not pieces:
        return []
    return [bytes(row.result) for row in _numbers(spark, pieces).mapInArrow(carry, "result binary").collect()]


def group_pieces(
    spark: SparkSession,
    make: Callable[[int], Iterable[pa.Table]],
    pieces: int,
    keys: Callable[[Columns], Numbers],
    work: Callable[[pa.Table], Mapping[str, pa.Table]],
    parts: int,
) -> dict[str, list[pa.Table]]:
    """Return the tables that `work` makes of each part: by name, one for each part that has rows.

    `make` makes the rows, for each number below `pieces` in its own task. `keys` returns a number for each row, and all
    rows with the same number are in one of the `parts` parts. `make`, `keys` and `work` must be picklable. A part has
    to fit into the memory of a task.
    """

    def parted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for piece in _pieces(batches):
            for table in make(piece):
                yield from _in_parts(table, keys(Columns(table)), parts)

    def joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrow = pyarrow()
        tables = [from_bytes(data.as_buffer()) for batch in batches for data in batch.column(1)]
        if tables:
            made = work(arrow.concat_tables(tables).unify_dictionaries())
            texts = [to_bytes(table) for table in made.values()]
            yield arrow.record_batch(
                [arrow.array([*made], arrow.string()), arrow.array(texts, arrow.binary())], _names(_NAMED)
            )

    if not pieces:
        return {}
    moved = _numbers(spark, pieces).mapInArrow(parted, _PARTED).repartitionById(parts, "part")
    found: dict[str, list[pa.Table]] = {}
    for row in moved.mapInArrow(joined, _NAMED).collect():
        found.setdefault(row.name, []).append(from_bytes(bytes(row.data)))
    return found


def _numbers(spark: SparkSession, pieces: int) -> DataFrame:
    return spark.range(0, pieces, 1, pieces)


def _pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _names(columns: str) -> list[str]:
    return [column.split()[0] for column in columns.split(", ")]


def _in_parts(table: pa.Table, keys: Numbers, parts: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table by part: the part's number, and the bytes of a table of at most `_MOST_ROWS` rows."""
    arrow = pyarrow()
    part = (keys.view(np.uint64) >> np.uint64(33)) % np.uint64(parts)
    order = np.argsort(part, kind="stable")
    bounds = np.searchsorted(part[order], np.arange(parts + 1, dtype=np.uint64))
    rows = table.take(arrow.array(order))
    for at in range(parts):
        for first in range(int(bounds[at]), int(bounds[at + 1]), _MOST_ROWS):
            data = to_bytes(rows.slice(first, min(_MOST_ROWS, int(bounds[at + 1]) - first)))
            yield arrow.record_batch(
                [arrow.array([at], arrow.int32()), arrow.array([data], arrow.binary())], _names(_PARTED)
            )


def keys_of(table: Columns, words: Sequence[str], *numbers: Numbers) -> Numbers:
    """Return a hash of each row, of its texts in the columns `words` and its `numbers`; the same on every machine."""
    found = np.zeros(table.rows, np.int64)
    for name in words:
        column = table.words(name)
        found = (
            found ^ np.array([zlib.crc32(text.encode()) for text in column.values], np.int64)[column.codes]
        ) * _PRIME
    for values in numbers:
        found = (found ^ values) * _PRIME
    return found


def to_bytes(table: pa.Table) -> bytes:
    """Serialize a table as a compressed Arrow stream."""
    arrow = pyarrow()
    sink = arrow.BufferOutputStream()
    options = arrow.ipc.IpcWriteOptions(compression="lz4", unify_dictionaries=True)
    with arrow.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def from_bytes(data: object) -> pa.Table:
    """Deserialize a table that `to_bytes` wrote."""
    return pyarrow().ipc.open_stream(data).read_all()
