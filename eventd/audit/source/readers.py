"""The reader and the stream of a ledger, as Spark calls them; the origin locates the rows.

The offset of a stream is, for each ledger (`node/epoch/book`), the number up to which it was read. Spark keeps it in
the checkpoint, and requests the same numbers again after a crash: rows never change, so they are the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import types
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from eventd.audit.source.filters import number_bounds, read_conditions
from eventd.audit.source.open import open_origin
from eventd.audit.source.options import OnGap, SourceOptions, Starting
from eventd.audit.source.origin import LedgerExtent, LedgerPartition, Snapshot, UnreadableRows, rows_gone
from eventd.audit.source.spark_columns import arrow_names, batches, check_columns
from eventd.lake.layout import LedgerKey
from eventd.lake.schema import Ledger

if TYPE_CHECKING:
    import pyarrow as pa

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:  # Spark before 4.2 has no limits

    class ReadLimit:  # type: ignore[no-redef]
        """A stand-in for Spark's class of this name, which versions before 4.2 lack."""

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """A stand-in for Spark's class of this name, which versions before 4.2 lack."""


__all__ = ["LedgerReader", "LedgerStream", "Offset", "ReadLimit", "SupportsTriggerAvailableNow"]

Offset = dict[str, int]


class LedgerReader(DataSourceReader):
    """Reads once all rows of the selected ledgers that exist when the query is planned."""

    def __init__(self, options: SourceOptions, schema: types.StructType) -> None:
        check_columns(options.book, schema)
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        origin = open_origin(self._options)
        try:
            snapshot = origin.snapshot()
            _fail_on(self._options, snapshot.losses)
            return [
                partition
                for ledger, *span in snapshot.extents
                for partition in origin.split(ledger, *number_bounds(self._options.conditions, *span))
            ]
        finally:
            origin.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._schema, partition)


class FilteringReader(LedgerReader):
    """Reads like `LedgerReader`, but skips ledgers, segments and rows that do not meet the conditions of the query.

    Only for a DataFrame that a single query uses: Spark 4.1 to 4.3 keep the conditions, and the partitions that were
    planned by them, for all queries of a DataFrame.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Keep the filters that can be used, and return all filters, so that Spark checks them again."""
        conditions = tuple(read_conditions(filters, self._schema.names))
        self._options = self._options._replace(conditions=conditions)
        return filters


class LedgerStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streams new rows of the selected ledgers; without a checkpoint, it begins where `startingOffsets` says."""

    def __init__(self, options: SourceOptions, schema: types.StructType) -> None:
        check_columns(options.book, schema)
        self._options = options
        self._schema = schema
        self._origin = open_origin(options)
        self._last: Offset = {}
        self._target: Offset | None = None

    def initialOffset(self) -> Offset:
        if self._options.starting is Starting.EARLIEST:
            return {}
        self._last = _ends(self._origin.snapshot().extents)
        return dict(self._last)

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self._options.rows_per_batch
        return ReadMaxRows(rows) if rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = _ends(self._origin.snapshot().extents)

    def latestOffset(self, start: Mapping[str, int] | None = None, limit: ReadLimit | None = None) -> Offset:
        """Return the offset at the end of the next batch. Spark before 4.2 passes neither argument.

        Raises RowsGone for unread rows that are lost, unless `onGap=skip`.
        """
        began = dict(self._last if start is None else start)
        snapshot = self._origin.snapshot()
        ready = list(self._ready(began, snapshot))
        _fail_on(
            self._options,
            [*_evicted(began, snapshot), *_ended_epochs(began, snapshot), *_within(ready, snapshot.losses)],
        )
        rows = getattr(limit, "max_rows", 0)
        share = max(rows // len(ready), 1) if rows and ready else 0
        self._last = began | {extent.ledger.key: self._cut(extent, share) for extent in ready}
        return self._last

    def reportLatestOffset(self) -> Offset | None:
        return None

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        snapshot = self._origin.snapshot()
        firsts = {extent.ledger.key: (extent.ledger, extent.after) for extent in snapshot.extents}
        wanted = [
            LedgerExtent(ledger, start.get(key, first), end[key])
            for key, (ledger, first) in firsts.items()
            if key in end
        ]
        wanted = [extent for extent in wanted if extent.upto > extent.after]
        kept = {extent.ledger.key: extent.after for extent in wanted}
        _fail_on(self._options, [*_evicted(kept, snapshot), *_within(wanted, snapshot.losses)])
        partitions = [
            partition for ledger, after, upto in wanted for partition in self._origin.split(ledger, after, upto)
        ]
        for partition in partitions:
            partition.resumed = partition.ledger.key in start
        return partitions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._schema, partition)

    def commit(self, end: Mapping[str, int]) -> None:
        """Do nothing: neither nodes nor lakes keep rows for a reader."""

    def stop(self) -> None:
        self._origin.close()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state that is sent to tasks, which open their own origin."""
        return {"_options": self._options, "_schema": self._schema}

    def _ready(self, start: Mapping[str, int], snapshot: Snapshot) -> Iterator[LedgerExtent]:
        """Yield the unread part of each extent: after `start`, at most up to the target of an available-now query."""
        for ledger, first, last in snapshot.extents:
            after = max(start.get(ledger.key, first), first)
            upto = last if self._target is None else min(last, self._target.get(ledger.key, 0))
            if upto > after:
                yield LedgerExtent(ledger, after, upto)

    def _cut(self, extent: LedgerExtent, rows: int) -> int:
        return self._origin.limit(*extent, rows) if rows else extent.upto


def _read(options: SourceOptions, schema: types.StructType, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, LedgerPartition):
        return  # Spark creates its own partition if there is nothing to read
    origin = open_origin(options)
    try:
        for table in origin.read(partition, arrow_names(schema)):
            for condition in options.conditions:
                table = condition.select(table)
            yield from batches(table, schema, partition.after, partition.upto)
    finally:
        origin.close()


def _ends(extents: Iterable[LedgerExtent]) -> Offset:
    return {extent.ledger.key: extent.upto for extent in extents}


def _fail_on(options: SourceOptions, losses: Sequence[UnreadableRows]) -> None:
    if losses and options.on_gap is OnGap.FAIL:
        raise rows_gone(losses)


def _within(extents: Iterable[LedgerExtent], losses: Sequence[UnreadableRows]) -> Iterator[UnreadableRows]:
    """Yield the losses that overlap these extents."""
    for ledger, after, upto in extents:
        for loss in losses:
            if loss.ledger == ledger and loss.after < upto and (loss.upto is None or loss.upto > after):
                yield loss


def _evicted(start: Mapping[str, int], snapshot: Snapshot) -> Iterator[UnreadableRows]:
    """Yield a loss for each ledger of which retention evicted rows after `start`: the stream had not read them."""
    for ledger, after, _ in snapshot.extents:
        if (number := start.get(ledger.key, after)) < after:
            yield UnreadableRows(ledger, number, after, "retention has evicted them")


def _ended_epochs(start: Mapping[str, int], snapshot: Snapshot) -> Iterator[UnreadableRows]:
    """Yield a loss for each ledger of `start` that the origin no longer has, if its node has begun a new epoch.

    Whether that ledger had rows after the offset is unknown.
    """
    here = {extent.ledger for extent in snapshot.extents}
    for key, number in start.items():
        node, epoch, book = key.rsplit("/", 2)
        newer = [ledger for ledger in here if ledger.node == node and ledger.key not in start]
        if newer and LedgerKey(node, epoch, Ledger(book)) not in here:
            reason = f"the node has begun a new epoch, {newer[0].epoch}"
            yield UnreadableRows(LedgerKey(node, epoch, Ledger(book)), number, None, reason)
