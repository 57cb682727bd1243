"""Writes and reads the files of cells in the state of an audit.

Where Python writes them, each task writes a Parquet file of cells. Where Spark does, it writes a folder of Parquet
files with one row each: the result of a task, and its cells as the content of such a file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import chain
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

import msgspec

from eventd.audit.segments.cells import cell_schema
from eventd.audit.segments.segment_jobs import TaskResult
from eventd.audit.segments.spark_tasks import FileShares, OpenFile, not_empty, run_on_files
from eventd.audit.spark.locations import Location
from eventd.lake.extra import parquet, pyarrow
from eventd.lake.file_sizes import TooLargeFile
from eventd.lake.storage import FileReader
from eventd.lake.stored_files import FileDraft, Written
from eventd.runtime.chance import SYSTEM

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as parquet_type
    from pyspark.sql import SparkSession

FOLDER: Final = "state"
_COLUMNS: Final = "result binary, cells binary"

Work = Callable[[Iterator[OpenFile], FileDraft], TaskResult]
"""Writes the cells of files to a draft; it must be picklable."""


def write_cells(spark: SparkSession, files: FileShares, work: Work, out: Location) -> list[TaskResult]:
    """Run `work` in Spark's tasks, write the cells of each task to a file of the state at `out`; return the results.

    Errors of Spark pass through unchanged.
    """
    name = f"{FOLDER}/cells-{SYSTEM.token(8).hex()}"
    if out.by_spark:
        return _written_by_spark(spark, files, work, out, name)

    def write(opened: Iterator[OpenFile]) -> bytes:
        first = next(opened)
        # The tasks share no file, so the first one names the file of cells, also if the task is repeated.
        file = f"{name}-{hashlib.sha256(first.path.encode()).hexdigest()[:16]}.parquet"
        with out.open().create(file) as draft:
            result = work(chain([first], opened), draft)
        result.file, result.written = file, draft.written
        return msgspec.msgpack.encode(result)

    return [msgspec.msgpack.decode(text, type=TaskResult) for text in run_on_files(spark, files, write)]


def _written_by_spark(
    spark: SparkSession, files: FileShares, work: Work, out: Location, folder: str
) -> list[TaskResult]:
    def carry(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrow = pyarrow()
        if (opened := not_empty(files.open(batches))) is None:
            return
        buffer = BytesIO()
        draft = FileDraft(buffer)
        result = work(opened, draft)
        result.written = draft.written
        columns = [arrow.array([data], arrow.binary()) for data in (msgspec.msgpack.encode(result), buffer.getvalue())]
        yield arrow.record_batch(columns, ["result", "cells"])

    if not files.shares:
        return []
    writer = files.frame(spark).mapInArrow(carry, _COLUMNS).write.option("compression", "none")
    writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(out.for_spark(folder))
    written = spark.read.schema(_COLUMNS).parquet(out.for_spark(folder))
    results = []
    for row in written.select("result", "_metadata.file_path", "_metadata.file_size").collect():
        result = msgspec.msgpack.decode(bytes(row.result), type=TaskResult)
        result.file = f"{folder}/{PurePosixPath(row.file_path).name}"
        result.written = Written(row.file_size, result.written.sha256)
        results.append(result)
    return results


def read_cells(storage: FileReader, file: str, size: int) -> bytes:
    """Return the Parquet file of cells that a file of the state is or holds; nothing for one of more than `size` bytes.

    Spark writes one row without compression, so that the cells take no more memory than the file: a file of another
    form could expand to any size, and is not read. Raises NotFound.
    """
    try:
        data = storage.read_within(file, size)
    except TooLargeFile:
        return b""
    if PurePosixPath(file).parent.name == FOLDER:
        return data
    arrow = pyarrow()
    try:
        content = parquet().ParquetFile(arrow.BufferReader(data))
        if not _is_plain_row(content.metadata):
            return b""
        table = content.read(columns=["cells"])
    except (arrow.ArrowException, OSError):
        return b""  # the digest of nothing is that of no file of cells
    cells = table["cells"].to_pylist() if table.column_names else []
    return cells[0] if len(cells) == 1 and isinstance(cells[0], bytes) else b""


def _is_plain_row(footer: parquet_type.FileMetaData) -> bool:
    """Return whether a file has one row in one row group, and no column is compressed."""
    if (footer.num_rows, footer.num_row_groups) != (1, 1):
        return False
    group = footer.row_group(0)
    return all(group.column(at).compression == "UNCOMPRESSED" for at in range(group.num_columns))


def parse_cells(data: bytes) -> pa.Table | None:
    """Return the cells in the content of a Parquet file; None if it is not a file of cells."""
    arrow = pyarrow()
    try:
        # Of one file in memory: `read_table` would look for a data set, and tasks run on all cores already.
        table = parquet().ParquetFile(arrow.BufferReader(data)).read(use_threads=False)
    except (arrow.ArrowException, OSError):
        return None
    return table.unify_dictionaries() if table.schema.equals(cell_schema()) else None
