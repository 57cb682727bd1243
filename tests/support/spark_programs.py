"""Programs in processes of their own, because they are killed or need a Spark of their own.

python -m tests.support.spark_programs follow MASTER LAKE FOLDER   stream a lake into FOLDER/rows, until killed
python -m tests.support.spark_programs remote SERVER LAKE OUT       audit and query a lake through Spark Connect
python -m tests.support.spark_programs archive                     write the classes for a fast start, see `CLASSES`
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from eventd.audit.source import register
from eventd.audit.spark.session import open_session
from eventd.audit.views import register_views
from eventd.cli.routerctl import main
from tests.support.spark import CLASSES, MEMORY, OPTIONS, QUICK, QUIET


def follow(master: str, lake: str, folder: str) -> None:
    with open_session(master, app="follow", memory=MEMORY, conf=QUICK) as spark:
        rows = spark.readStream.format("eventd").option("lake", lake).option("maxRowsPerBatch", "10").load()
        rows = rows.select("node", "number")
        writer = rows.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
        writer.start(f"{folder}/rows").awaitTermination()


def remote(server: str, lake: str, out: str) -> None:
    """One program for all of it, because a client takes seconds to start: a stream, an audit, and two queries."""
    there = ("--lake", lake, "--out", out, "--master", server)
    _type("audit", "stream", *there, "--once")
    shutil.copy(f"{out}/report.json", f"{out}/streamed.json")
    # The storage that Spark reads by itself, which has no JVM here to write with.
    _type("audit", "run", *there, "--storage", "spark", "--full", "--fail-on", "missing")
    with open_session(server, app="query") as spark:
        register(spark)
        rows = spark.read.format("eventd").option("book", "deliveries").load(lake).count()
        register_views(spark, lake)
        (seen,) = spark.sql("SELECT count(*) FROM deliveries").collect()
        print(f"{rows} deliveries by the source, {seen[0]} by the views")  # noqa: T201


def _type(*words: str) -> None:
    """Run a command, and print its status."""
    sys.argv = ["routerctl", *words]
    try:
        main()
    except SystemExit as ended:
        print(f"{' '.join(words[:2])} ended with {ended.code or 0}")  # noqa: T201


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
    {"follow": follow, "remote": remote, "archive": archive}[sys.argv[1]](*sys.argv[2:])
