"""Distributes files to Spark's tasks, and rows by key.

Spark distributes, moves and retries. Each row that it moves is a whole Arrow table, whose rows are made, divided and
summed outside of the JVM, which would need ten times as long per row.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import numpy as np

from eventd.audit.arrays.columns import Columns, Numbers
from eventd.audit.arrays.row_hash import ODD
from eventd.audit.spark.locations import Location
from eventd.audit.spark.session import last_cause
from eventd.audit.spark.spark_storage import path_below
from eventd.errors import LakeUnavailable
from eventd.lake.extra import pyarrow
from eventd.lake.storage import EndReader, Storage
from eventd.lake.stored_files import FileInMemory

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

TaskT = TypeVar("TaskT")
_PARTED: Final = "part int, data binary"
_NAMED: Final = "name string, data binary"
_MOST_ROWS: Final = 262_144
"""Maximum number of rows of a table that is moved as one."""


class OpenFile(NamedTuple):
    """A file that a task is to read: its path, and where it is read from."""

    path: str
    storage: EndReader


@dataclass(frozen=True)
class FileShares:
    """Files at a location, by path, in shares of about the same size: one for each task.

    If Spark reads the files, it makes shares of its own.
    """

    at: Location
    shares: Sequence[Sequence[str]]

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return a frame of the shares' numbers, or of files and their contents if Spark reads them.

        Raises LakeUnavailable if Spark cannot reach the files, or one was deleted meanwhile.
        """
        if not self.at.by_spark:
            return spark.range(0, len(self.shares), 1, len(self.shares))
        paths = [self.at.for_spark(path) for share in self.shares for path in share]
        try:
            return spark.read.format("binaryFile").load(paths).select("path", "content")
        except Exception as error:  # Spark's and Java's exceptions have no common base class
            raise LakeUnavailable(
                f"Spark cannot read the files at {self.at.address}: {last_cause(str(error), self.at.url)}"
            ) from None

    def open(self, batches: Iterator[pa.RecordBatch]) -> Iterator[OpenFile]:
        """Yield the files of a task, which has these batches of the frame. A file is in memory only while it is used.

        Raises like `Location.open`.
        """
        if not self.at.by_spark:
            storage = self.at.connect()
            for batch in batches:
                for share in batch.column(0).to_pylist():
                    yield from (OpenFile(path, storage) for path in self.shares[share])
            return
        folder = urlsplit(self.at.spark_url).path
        for batch in batches:
            for address, content in zip(*batch.columns, strict=True):
                path = path_below(folder, address.as_py())
                yield OpenFile(path, FileInMemory(path, content.as_py()))


def run_on_files(spark: SparkSession, files: FileShares, work: Callable[[Iterator[OpenFile]], bytes]) -> list[bytes]:
    """Return the results of `work`, one for each task that has files, in no particular order. It must be picklable."""

    def carry(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrow = pyarrow()
        if (opened := not_empty(files.open(batches))) is not None:
            yield arrow.record_batch([arrow.array([work(opened)], arrow.binary())], names=["result"])

    if not files.shares:
        return []
    return [bytes(row.result) for row in files.frame(spark).mapInArrow(carry, "result binary").collect()]


def run_tasks(
    spark: SparkSession, at: Location, tasks: Sequence[TaskT], work: Callable[[TaskT, Storage], bytes]
) -> list[bytes]:
    """Return the results of `work`, one for each task, in no particular order. It, and the tasks, must be picklable.

    Where Spark reads the files, it would divide those of a task: then the tasks are done here, one after the other.
    """
    if at.by_spark:
        storage = at.open(spark)
        return [work(task, storage) for task in tasks]

    def carry(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrow, lake = pyarrow(), at.connect()
        for batch in batches:
            found = [work(tasks[number], lake) for number in batch.column(0).to_pylist()]
            yield arrow.record_batch([arrow.array(found, arrow.binary())], names=["result"])

    if not tasks:
        return []
    frame = spark.range(0, len(tasks), 1, len(tasks))
    return [bytes(row.result) for row in frame.mapInArrow(carry, "result binary").collect()]


def group_files(
    spark: SparkSession,
    files: FileShares,
    make: Callable[[Iterator[OpenFile]], Iterable[pa.Table]],
    keys: Callable[[Columns], Numbers],
    work: Callable[[pa.Table], Mapping[str, pa.Table]],
    parts: int,
) -> dict[str, list[pa.Table]]:
    """Return the tables that `work` makes of each part: by name, one for each part that has rows.

    `make` makes the rows of a task's files. `keys` returns a number for each row, and all rows with the same number are
    in one of the `parts` parts. `make`, `keys` and `work` must be picklable. A part has to fit into the memory of a
    task.
    """

    def parted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in make(files.open(batches)):
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

    if not files.shares:
        return {}
    moved = files.frame(spark).mapInArrow(parted, _PARTED).repartitionById(parts, "part")
    found: dict[str, list[pa.Table]] = {}
    for row in moved.mapInArrow(joined, _NAMED).collect():
        found.setdefault(row.name, []).append(from_bytes(bytes(row.data)))
    return found


def not_empty(files: Iterator[OpenFile]) -> Iterator[OpenFile] | None:
    """Return an iterator of the same files; None if there are none."""
    first = next(files, None)
    return None if first is None else chain([first], files)


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
        found = (found ^ np.array([zlib.crc32(text.encode()) for text in column.values], np.int64)[column.codes]) * ODD
    for values in numbers:
        found = (found ^ values) * ODD
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
