"""The format "eventd" in a real Spark. What it reads and refuses in detail is tested without Spark in
`test_lake_rows`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming import StreamingQuery

from eventd.audit.source import EventdSource, register
from eventd.lake.layout import landing
from eventd.lake.schema import Ledger, arrow_schema
from eventd.lake.storage import Storage, connect, make_lake
from eventd.lake.writer import write_segment
from eventd.runtime.chance import SYSTEM
from tests.support.lakes import EPOCH, NOON, table
from tests.support.spark_plans import scanned

EVENTS = 400


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two nodes: site-a with 400 events in four segments, site-b with 50 in one."""
    storage = connect(str(tmp_path_factory.mktemp("lakes") / "lake"))
    make_lake(storage, NOON, SYSTEM)
    for after in range(0, EVENTS, 100):
        keep(storage, "site-a", after, after + 100)
    keep(storage, "site-b", 0, 50)
    return storage.url


def keep(storage: Storage, node: str, after: int, upto: int) -> None:
    numbered = [{"number": number, "position": number} for number in range(after + 1, upto + 1)]
    rows = table(Ledger.EVENTS, [{"node": node, "epoch": EPOCH, **row} for row in numbered])
    write_segment(storage, landing(Ledger.EVENTS, node, EPOCH, after, upto, at=NOON), rows, node=node, now=NOON)


def numbers(rows: DataFrame) -> list[tuple[str, int]]:
    return sorted((row.node, row.number) for row in rows.select("node", "number").collect())


def everything() -> Iterator[tuple[str, int]]:
    yield from (("site-a", number) for number in range(1, EVENTS + 1))
    yield from (("site-b", number) for number in range(1, 51))


def run_to_end(rows: DataFrame, folder: Path) -> StreamingQuery:
    """Take what is available, in batches; what was taken before is known from the checkpoint."""
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(folder / "rows"))
    query.awaitTermination()
    return query


def test_spark_finds_the_format_by_itself_and_reads_every_row_with_its_type(spark: SparkSession, lake: str) -> None:
    rows = spark.read.format("eventd").option("lake", lake).option("rowsPerPartition", "200").load()
    read = rows.toArrow()
    assert sorted(zip(read["node"].to_pylist(), read["number"].to_pylist(), strict=True)) == list(everything())
    for field, wanted in zip(read.schema, arrow_schema(Ledger.EVENTS), strict=True):
        kind = wanted.type.value_type if pa.types.is_dictionary(wanted.type) else wanted.type
        assert field.name == wanted.name
        assert field.type == (pa.binary() if pa.types.is_fixed_size_binary(kind) else kind)


def test_a_program_that_was_only_sent_along_registers_it(spark: SparkSession, lake: str) -> None:
    other = spark.newSession()
    register(other)
    rows = other.read.format(EventdSource.name()).schema("number long, node string").option("node", "site-b").load(lake)
    assert numbers(rows) == [("site-b", number) for number in range(1, 51)]


def filtering(spark: SparkSession) -> DataFrameReader:
    return spark.read.format("eventd").option("pushFilters", "true")


CONDITIONS = [
    ("node = 'site-b' AND own = false AND number > 45", 5),
    ("node IN ('site-b', 'site-c') AND number BETWEEN 41 AND 45", 5),
    ("node LIKE '%-a' AND NOT number < 399", 2),
    ("event_at = TIMESTAMP'2026-11-20 12:00:00' AND subject IS NOT NULL", 450),
    ("expires_at <=> NULL AND number = 1", 0),
    ("expires_at <=> TIMESTAMP'2026-11-20 12:00:00' AND number = 1", 2),
    (f"digest = X'{bytes(32).hex()}' AND recorded_at > TIMESTAMP'2026-11-20 11:00:00'", EVENTS + 50),
    ("digest = X'00' AND recorded_at > TIMESTAMP'2026-11-20 11:00:00'", 0),
]


@pytest.mark.parametrize(("condition", "count"), CONDITIONS)
def test_conditions_that_are_pushed_down_select_the_same_rows(
    spark: SparkSession, lake: str, condition: str, count: int
) -> None:
    assert filtering(spark).load(lake).where(condition).count() == count


def test_what_a_query_excludes_is_not_read(spark: SparkSession, lake: str) -> None:
    def partitions(condition: str) -> int:
        rows = filtering(spark).option("rowsPerPartition", "100").load(lake)
        return rows.where(condition).rdd.getNumPartitions()

    assert partitions("true") == 5
    assert partitions("node = 'site-b'") == 1
    assert partitions("number > 100 AND number <= 250 AND node = 'site-a'") == 2
    assert scanned(filtering(spark).load(lake).where("number = 7"), "numOutputRows") == 2
    assert scanned(filtering(spark).load(lake).where("group = 'w' AND id = 'nothing'"), "numOutputRows") == 0


def test_without_the_option_the_queries_of_one_data_frame_do_not_affect_each_other(
    spark: SparkSession, lake: str
) -> None:
    """Spark would apply the conditions of the first one to all later ones."""
    rows = spark.read.format("eventd").load(lake)
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert [rows.where(f"node = 'site-{name}'").count() for name in "ab"] == [EVENTS, 50]
    assert rows.count() == EVENTS + 50
    assert rows.where("node = 'site-a'").union(rows.where("node = 'site-b'")).count() == EVENTS + 50
    assert scanned(rows.where("node = 'site-b'"), "numOutputRows") == EVENTS + 50


def test_the_option_needs_the_setting_of_spark(spark: SparkSession, lake: str) -> None:
    own = spark.newSession()
    own.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    with pytest.raises(PySparkException, match="filterPushdown"):
        filtering(own).load(lake).where("number = 7").count()


def test_what_is_available_is_taken_in_batches_and_only_once(spark: SparkSession, lake: str, tmp_path: Path) -> None:
    rows = spark.readStream.format("eventd").option("lake", lake).option("maxRowsPerBatch", "200").load()
    first = run_to_end(rows, tmp_path)
    batches = [150, 200, 100] if tuple(map(int, spark.version.split(".")[:2])) >= (4, 2) else [EVENTS + 50]
    assert [progress.numInputRows for progress in first.recentProgress if progress.numInputRows] == batches
    again = run_to_end(rows, tmp_path)
    assert not [progress.numInputRows for progress in again.recentProgress if progress.numInputRows]
    assert numbers(spark.read.parquet(str(tmp_path / "rows"))) == list(everything())


def test_what_was_wrong_stands_in_what_spark_raises(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="there is no lake at"):
        spark.read.format("eventd").load(str(tmp_path)).count()
    with pytest.raises(PySparkException, match="did you mean book"):
        spark.read.format("eventd").option("boook", "events").load(str(tmp_path)).count()
