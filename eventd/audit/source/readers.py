"""A book read at once, and a book followed. Spark calls these; where the rows are is the origin's matter.

The offset of a stream is, for each line (`node/epoch/book`), the number up to which it was read. Spark keeps it in the
checkpoint, and asks for the same numbers again after a crash: rows never change, so they are the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import types
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from eventd.audit.source.columns import arrow_names, batches, check_columns
from eventd.audit.source.open import open_origin
from eventd.audit.source.options import OnGap, Options, Starting
from eventd.audit.source.origin import Line, Look, Loss, Piece, Reach, gone
from eventd.lake.schema import Book

if TYPE_CHECKING:
    import pyarrow as pa

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:  # Spark before 4.2 asks without a limit, and takes all there is

    class ReadLimit:  # type: ignore[no-redef]
        """Unknown there."""

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Unknown there."""


__all__ = ["BookReader", "BookStream", "Offset", "ReadLimit", "SupportsTriggerAvailableNow"]

Offset = dict[str, int]


class BookReader(DataSourceReader):
    """All rows that there are when the query is planned."""

    def __init__(self, options: Options, schema: types.StructType) -> None:
        check_columns(options.book, schema)
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        origin = open_origin(self._options)
        try:
            look = origin.look()
            _refuse(self._options, look.losses)
            return [piece for line, after, upto in look.reaches for piece in origin.split(line, after, upto)]
        finally:
            origin.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._schema, partition)


class BookStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """All rows, as they come."""

    def __init__(self, options: Options, schema: types.StructType) -> None:
        check_columns(options.book, schema)
        self._options = options
        self._schema = schema
        self._origin = open_origin(options)
        self._last: Offset = {}
        self._target: Offset | None = None

    def initialOffset(self) -> Offset:
        if self._options.starting is Starting.EARLIEST:
            return {}
        self._last = _ends(self._origin.look().reaches)
        return dict(self._last)

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self._options.rows_per_batch
        return ReadMaxRows(rows) if rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = _ends(self._origin.look().reaches)

    def latestOffset(self, start: Mapping[str, int] | None = None, limit: ReadLimit | None = None) -> Offset:
        """The end of the next batch. Spark before 4.2 gives neither argument."""
        began = dict(self._last if start is None else start)
        look = self._origin.look()
        ready = list(self._ready(began, look))
        _refuse(self._options, [*_outlived(began, look), *_broken_off(began, look), *_within(ready, look.losses)])
        rows = getattr(limit, "max_rows", 0)
        share = max(rows // len(ready), 1) if rows and ready else 0
        self._last = began | {reach.line.key: self._cut(reach, share) for reach in ready}
        return self._last

    def reportLatestOffset(self) -> Offset | None:
        return None

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        look = self._origin.look()
        firsts = {reach.line.key: (reach.line, reach.after) for reach in look.reaches}
        wanted = [Reach(line, start.get(key, first), end[key]) for key, (line, first) in firsts.items() if key in end]
        wanted = [reach for reach in wanted if reach.upto > reach.after]
        kept = {reach.line.key: reach.after for reach in wanted}
        _refuse(self._options, [*_outlived(kept, look), *_within(wanted, look.losses)])
        pieces = [piece for line, after, upto in wanted for piece in self._origin.split(line, after, upto)]
        for piece in pieces:
            piece.goes_on = piece.line.key in start
        return pieces

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._schema, partition)

    def commit(self, end: Mapping[str, int]) -> None:
        """Nothing is kept for a reader: what a book holds is the node's and the lake's own matter."""

    def stop(self) -> None:
        self._origin.close()

    def __getstate__(self) -> dict[str, Any]:
        """What goes along to the tasks, which open an origin of their own."""
        return {"_options": self._options, "_schema": self._schema}

    def _ready(self, start: Mapping[str, int], look: Look) -> Iterator[Reach]:
        """What has come since `start`, up to where a query that takes what is available has to stop."""
        for line, first, last in look.reaches:
            after = max(start.get(line.key, first), first)
            upto = last if self._target is None else min(last, self._target.get(line.key, 0))
            if upto > after:
                yield Reach(line, after, upto)

    def _cut(self, reach: Reach, rows: int) -> int:
        return self._origin.limit(*reach, rows) if rows else reach.upto


def _read(options: Options, schema: types.StructType, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, Piece):
        return  # where there is nothing to read Spark makes a partition of its own
    origin = open_origin(options)
    try:
        for table in origin.read(partition, arrow_names(schema)):
            yield from batches(table, schema, partition.after, partition.upto)
    finally:
        origin.close()


def _ends(reaches: Iterable[Reach]) -> Offset:
    return {reach.line.key: reach.upto for reach in reaches}


def _refuse(options: Options, losses: Sequence[Loss]) -> None:
    if losses and options.on_gap is OnGap.FAIL:
        raise gone(losses)


def _within(reaches: Iterable[Reach], losses: Sequence[Loss]) -> Iterator[Loss]:
    """The losses that lie in what is to be read."""
    for line, after, upto in reaches:
        for loss in losses:
            if loss.line == line and loss.after < upto and (loss.upto is None or loss.upto > after):
                yield loss


def _outlived(start: Mapping[str, int], look: Look) -> Iterator[Loss]:
    """What retention took before the stream had read it."""
    for line, after, _ in look.reaches:
        if (number := start.get(line.key, after)) < after:
            yield Loss(line, number, after, "retention has taken them")


def _broken_off(start: Mapping[str, int], look: Look) -> Iterator[Loss]:
    """Histories that ended unseen: the node has begun another one, and the rest of the old one is nowhere."""
    here = {reach.line for reach in look.reaches}
    for key, number in start.items():
        node, epoch, book = key.rsplit("/", 2)
        newer = [line for line in here if line.node == node and line.key not in start]
        if newer and Line(node, epoch, Book(book)) not in here:
            told = f"the node has begun a new history, epoch {newer[0].epoch}"
            yield Loss(Line(node, epoch, Book(book)), number, None, told)
