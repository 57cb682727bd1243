"""A stand-in for Spark in this process: an audit in a fraction of a second, without Java.

The audit uses few of Spark's methods, all of them to run Python functions on Arrow batches in executors. Here they run
one after the other, each on a pickled copy, as Spark sends them. the campaign shows that both find the same. A
segment that this process has read before is not read again, see `known_cells`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyspark import cloudpickle

from eventd.audit.engine.output_lock import hold_location
from eventd.audit.engine.request import AuditRequest
from eventd.audit.engine.run import audit
from eventd.audit.report.report import Report
from eventd.audit.spark.session import own_session
from eventd.runtime.clock import Clock, SystemClock
from tests.support.known_cells import knowing_cells

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Batches = Iterator[pa.RecordBatch]
Partition = list[pa.RecordBatch]


def run_audit(
    request: AuditRequest, spark: SparkSession | None = None, *, clock: Clock | None = None, cores: int = 1
) -> Report:
    """Audit a lake by the stand-in, unless Spark is given."""
    session = own_session(spark or cast("SparkSession", LocalSpark(cores)))
    with hold_location(request.places(session).out), nullcontext() if spark else knowing_cells():
        return audit(session, request, clock=clock or SystemClock()).report


class LocalSpark:
    """Stands in for a `SparkSession`.

    `cores` is also the number of tasks, and of the parts of what they exchange. With more than one, most of the time
    goes to their files; `test_exactness` shows that an audit finds the same with any number.
    """

    version = "stand-in"

    def __init__(self, cores: int = 1) -> None:
        self.sparkContext = SimpleNamespace(defaultParallelism=cores, master="this process")

    def newSession(self) -> LocalSpark:
        return self

    @property
    def conf(self) -> SimpleNamespace:
        return SimpleNamespace(set=lambda name, value: None, get=lambda name: "local[2]")

    def range(self, start: int, end: int, step: int, partitions: int) -> LocalFrame:
        numbers = list(range(start, end, step))
        cores = self.sparkContext.defaultParallelism
        parts = [numbers[at::cores] for at in range(min(cores, partitions))]
        return LocalFrame([[pa.record_batch([pa.array(part, pa.int64())], names=["id"])] for part in parts])


class LocalFrame:
    """Stands in for a `DataFrame`."""

    def __init__(self, partitions: list[Partition]) -> None:
        self._partitions = partitions

    def mapInArrow(self, function: Callable[[Batches], Batches], schema: str) -> LocalFrame:
        names = [column.split()[0] for column in schema.split(", ")]
        pickled: Any = cloudpickle
        sent = pickled.dumps(function)
        made = [list(pickled.loads(sent)(iter(partition))) for partition in self._partitions]
        assert all(batch.schema.names == names for partition in made for batch in partition)
        return LocalFrame(made)

    def repartitionById(self, partitions: int, column: str) -> LocalFrame:
        moved: list[Partition] = [[] for _ in range(partitions)]
        for batch in (batch for partition in self._partitions for batch in partition):
            for row, to in enumerate(batch.column(column).to_pylist()):
                moved[to].append(batch.slice(row, 1))
        return LocalFrame(moved)

    def collect(self) -> list[SimpleNamespace]:
        rows = (row for partition in self._partitions for batch in partition for row in batch.to_pylist())
        return [SimpleNamespace(**row) for row in rows]
