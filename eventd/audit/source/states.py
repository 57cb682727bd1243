"""The states of the nodes of a lake: how far their ledgers reach, and up to which time they are complete.

The offset of a stream is, for each `node/epoch`, the `as_of` of the latest state that was read. A node writes its state
at every shipping interval, even if it has nothing to ship: so a stream of states has a batch whenever the lake may have
changed. The lake keeps only the latest state, so a repeated batch may read a later one than before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import types
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from eventd.audit.source.options import STATES, OnGap, SourceOptions, Starting
from eventd.audit.source.origin import RowsGone
from eventd.audit.source.readers import Offset, ReadLimit, SupportsTriggerAvailableNow
from eventd.audit.source.spark_columns import arrow_shape, check_among
from eventd.errors import Invalid
from eventd.lake.manifest import NodeState
from eventd.lake.schema import Ledger
from eventd.lake.state_files import state_files
from eventd.lake.storage import connect, open_lake

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS: Final[Mapping[str, types.DataType]] = {
    **dict.fromkeys(("node", "epoch", "instance"), types.StringType()),
    **dict.fromkeys(("began_at", "as_of", "complete_until"), types.TimestampType()),
    "head": types.LongType(),
    "book": types.StringType(),
    "upto": types.LongType(),
}


def states_schema() -> types.StructType:
    """Return the Spark schema of states, which have a row for each node, epoch and ledger (`book`)."""
    return types.StructType([types.StructField(name, kind, False) for name, kind in _COLUMNS.items()])


class StatePartition(InputPartition):
    """The states that one task reads from the lake `place`: of each `node/epoch` in `keys`; None: all selected."""

    def __init__(self, place: str, keys: frozenset[str] | None = None) -> None:
        self.place = place
        self.keys = keys


class StatesReader(DataSourceReader):
    """Reads the latest state of each node and epoch."""

    def __init__(self, options: SourceOptions, schema: types.StructType) -> None:
        check_among(states_schema(), STATES, schema)
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        _states_by_lake(self._options)
        return [StatePartition(place) for place in self._options.places]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._schema, partition)


class StatesStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streams the states that nodes write; a state that is replaced before a batch reads it is skipped."""

    def __init__(self, options: SourceOptions, schema: types.StructType) -> None:
        check_among(states_schema(), STATES, schema)
        self._options = options
        self._schema = schema
        self._last: Offset = {}
        self._target: Offset | None = None

    def initialOffset(self) -> Offset:
        if self._options.starting is Starting.EARLIEST:
            return {}
        self._last = _offset(_states_by_lake(self._options))
        return dict(self._last)

    def getDefaultReadLimit(self) -> ReadLimit:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,  # Spark before 4.2 has no limits, and does not call this
        )

        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = _offset(_states_by_lake(self._options))

    def latestOffset(self, start: Mapping[str, int] | None = None, limit: ReadLimit | None = None) -> Offset:
        """Return the offset at the end of the next batch. Spark before 4.2 passes neither argument."""
        began = dict(self._last if start is None else start)
        now = _offset(_states_by_lake(self._options)) if self._target is None else self._target
        # Spark compares offsets as text, so their order must not depend on the lakes. A node whose state is gone keeps
        # its offset.
        self._last = dict(sorted((began | now).items()))
        return self._last

    def reportLatestOffset(self) -> Offset | None:
        return None

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        # After a clock was set back, a new state has an earlier time.
        fresh = {key for key, as_of in end.items() if start.get(key) != as_of}
        found = {place: fresh & states.keys() for place, states in _states_by_lake(self._options).items()}
        return [StatePartition(place, frozenset(keys)) for place, keys in found.items() if keys]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._schema, partition)

    def commit(self, end: Mapping[str, int]) -> None:
        """Do nothing: a lake keeps nothing for a reader."""

    def stop(self) -> None:
        """Do nothing: no connection is kept."""


def _states_by_lake(options: SourceOptions) -> dict[str, dict[str, NodeState]]:
    """Return the states that the options select, by lake and `node/epoch`.

    Raises like `_states`, and Invalid for a state that is in two lakes.
    """
    found: dict[str, dict[str, NodeState]] = {}
    for place in options.places:
        states = _states(options, place)
        for other, seen in found.items():
            for key in seen.keys() & states.keys():
                lakes = f"{connect(other).url} and {connect(place).url}"
                raise Invalid(f"the node {states[key].node} is in two lakes, {lakes}", hint="give only one of them")
        found[place] = states
    return found


def _offset(found: Mapping[str, Mapping[str, NodeState]]) -> Offset:
    return {key: state.as_of for states in found.values() for key, state in states.items()}


def _states(options: SourceOptions, place: str) -> dict[str, NodeState]:
    """Return the states in a lake of the nodes and epochs that the options select, by `node/epoch`.

    Raises NotFound, LakeUnusable, LakeUnavailable, and unless `onGap=skip`, RowsGone if any node's state is unreadable.
    """
    storage = connect(place)
    open_lake(storage)
    found = {}
    for file in state_files(storage):
        if isinstance(file.state, NodeState):
            if options.wants(file.state.node, file.epoch):
                found[f"{file.state.node}/{file.epoch}"] = file.state
        elif options.on_gap is OnGap.FAIL:
            raise RowsGone(
                f"the state of the node {file.slug} (epoch {file.epoch}) {file.state}",
                hint="onGap=skip skips states that cannot be read",
            )
    return found


def _read(options: SourceOptions, schema: types.StructType, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    if not isinstance(partition, StatePartition):
        return  # Spark creates its own partition if there is nothing to read
    states = _states(options, partition.place)
    rows = [
        row
        for key, state in sorted(states.items())
        if partition.keys is None or key in partition.keys
        for row in _rows(state)
    ]
    shape = arrow_shape(schema)
    arrays = [pa.array([row[field.name] for row in rows], field.type) for field in shape]
    yield pa.RecordBatch.from_arrays(arrays, schema=shape)


def _rows(state: NodeState) -> Iterator[dict[str, Any]]:
    shared = {name: getattr(state, name) for name in _COLUMNS if name not in ("book", "upto")}
    for book in Ledger:
        yield {**shared, "book": book.value, "upto": state.books.get(book, 0)}
