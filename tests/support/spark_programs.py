"""Programs in processes of their own, because they are killed or need a Spark of their own.

python -m tests.support.spark_programs follow MASTER LAKE FOLDER   stream a lake into FOLDER/rows, until killed
python -m tests.support.spark_programs query SERVER LAKE            count deliveries through Spark Connect
python -m tests.support.spark_programs archive                     write the classes for a fast start, see `CLASSES`
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from eventd.audit.source import register
from eventd.audit.spark.session import open_session
from eventd.audit.views import register_views
from tests.support.spark import CLASSES, MEMORY, OPTIONS, QUICK, QUIET


def follow(master: str, lake: str, folder: str) -> None:
    with open_session(master, app="follow", memory=MEMORY, conf=QUICK) as spark:
        rows = spark.readStream.format("eventd").option("lake", lake).option("maxRowsPerBatch", "10").load()
        rows = rows.select("node", "number")
        writer = rows.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
        writer.start(f"{folder}/rows").awaitTermination()


def query(server: str, lake: str) -> None:
    with open_session(server, app="query") as spark:
        register(spark)
        rows = spark.read.format("eventd").option("book", "deliveries").load(lake).count()
        register_views(spark, lake)
        (seen,) = spark.sql("SELECT count(*) FROM deliveries").collect()
        print(f"{rows} deliveries by the source, {seen[0]} by the views")  # noqa: T201


def archive() -> None:
    """Write the archive of the classes that a session loads for what tests do: jobs in Python, Parquet, a stream."""
    part = CLASSES.with_suffix(".part")
    part.unlink(missing_ok=True)
    dump = {**QUICK, OPTIONS: f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit={part} {QUIET}"}
    with (
        tempfile.TemporaryDirectory() as folder,
        open_session("local[2]", app="archive", memory=MEMORY, conf=dump) as spark,
    ):
        numbers = spark.range(0, 20, 1, 2).mapInArrow(_unchanged, "id long")
        numbers.repartitionById(2, numbers.id.cast("int")).mapInArrow(_unchanged, "id long").collect()
        numbers.write.parquet(f"{folder}/numbers")
        read = spark.read.parquet(f"{folder}/numbers")
        read.where(read.id.isin(1, 2)).groupBy("id").pivot("id").count().orderBy("id").toPandas()
        stream = spark.readStream.schema("id long").parquet(f"{folder}/numbers").writeStream.format("parquet")
        stream = stream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
        stream.start(f"{folder}/rows").awaitTermination()
    if part.exists():  # a Java without an archive of its own classes cannot make one
        part.rename(CLASSES)


def _unchanged(batches: Iterator[Any]) -> Iterator[Any]:
    return batches


if __name__ == "__main__":
    {"follow": follow, "query": query, "archive": archive}[sys.argv[1]](*sys.argv[2:])
