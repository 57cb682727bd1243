"""The audit as a program, and Spark under failures: a killed stream, workers that die during a job."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from eventd.audit.generate import GeneratorSettings, generate
from eventd.audit.report.findings import Finding
from eventd.audit.spark.packing import CODE, write_code
from eventd.audit.spark.session import LOGGING
from eventd.lake.storage import connect
from eventd.runtime.clock import SECOND
from tests.support.lakes import ship
from tests.support.processes import CONTROL, Process, Processes
from tests.support.source import ROOT
from tests.support.spark import STARTS_FAST, require_spark
from tests.support.spark_cluster import (
    Cluster,
    installed_spark,
    link_environment,
    quick_spark,
    start_program,
    without_java,
)
from tests.support.spark_mounts import mount_settings
from tests.support.waiting import wait_for

SEGMENTS = 20
ROWS = 10
BOOKS = GeneratorSettings(
    nodes=4, events=2000, span=6 * 3600 * SECOND, skew=40 * SECOND, lose=8, duplicate=5, forge=3, loop=3
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
SECONDS = 300
"""Several JVMs start at the same time, on a shared machine."""


@pytest.fixture
def lake(tmp_path: Path) -> str:
    """A lake with 200 events in 20 segments."""
    require_spark()
    storage = connect(str(tmp_path / "lake"))
    for after in range(0, SEGMENTS * ROWS, ROWS):
        ship(storage, after, after + ROWS)
    return storage.url


class Books:
    """A lake with injected faults, and the findings that audits of it must report."""

    def __init__(self, folder: Path) -> None:
        self.url = str(folder / "books")
        self._truth = msgspec.json.decode(generate(BOOKS, self.url).to_json())["findings"]

    def require_found(self, out: Path, spark: str) -> None:
        """Check that an audit reported all faults and nothing else."""
        report = json.loads((out / "report.json").read_text())
        assert _bare(report["findings"]) == _bare(self._truth)
        assert report["work"]["spark"] == spark
        assert (report["work"]["segments_read"], report["failed"]) == (report["lake"]["segments"], ["missing"])


def _bare(findings: list[dict[str, Any]]) -> list[Finding]:
    """Return findings without their texts and evidence."""
    return sorted((msgspec.convert({**one, "detail": "", "evidence": ()}, Finding) for one in findings), key=repr)


@pytest.fixture
def books(tmp_path: Path) -> Books:
    require_spark()
    return Books(tmp_path)


def test_a_lake_is_audited_on_a_machine_without_a_java(processes: Processes, books: Books, tmp_path: Path) -> None:
    """Python packages are enough: the Java comes with the wheel."""
    master = "local[2]"
    here = {**without_java(tmp_path), **quick_spark(tmp_path)}
    places = ["--lake", books.url, "--out", str(tmp_path / "report"), "--master", master]
    run = [*CONTROL, "audit", "run", *places, "--memory", "1GiB", "--fail-on", "missing"]
    done = processes.run(run, env=here, seconds=SECONDS)
    assert done.returncode == 4, done.stderr
    # Spark's output is not for users, so none of it is on the terminal.
    assert [line.split()[0] for line in done.stderr.splitlines()] == ["written", "error:"]
    books.require_found(tmp_path / "report", f"{version('pyspark')} on {master}")


def test_a_worker_that_is_killed_in_the_middle_of_an_audit_costs_nothing(
    processes: Processes, books: Books, tmp_path: Path
) -> None:
    """The audit as it is submitted loses one of two workers. It reads and writes addresses that only Spark resolves."""
    cluster, report = Cluster(processes), tmp_path / "report"
    cluster.start_two_workers()
    run = ["--lake", "viewfs://audit/data/books", "--out", "viewfs://audit/data/report", "--fail-on", "missing"]
    submitted = submit(processes, cluster, tmp_path, *run, env=quick_spark(tmp_path))
    cluster.kill_a_worker_of(submitted, there(submitted, report, "state/cells-*"))
    assert submitted.wait_exit(seconds=SECONDS) == 4, submitted.log_tail()
    books.require_found(report, f"{version('pyspark')} on {cluster.address}")


def test_a_stream_that_is_killed_goes_on_where_it_was(
    spark: SparkSession, processes: Processes, lake: str, tmp_path: Path
) -> None:
    sink = tmp_path / "sink"
    stream = start_program(processes, "follow", "local[1]", lake, str(sink))
    batches = there(stream, sink, "rows/_spark_metadata/[0-9]*")
    wait_for(lambda: batches() > 1, "the stream to be under way", seconds=SECONDS)
    stream.kill9()
    stream.destroy()
    assert len(list(sink.glob("rows/_spark_metadata/[0-9]*"))) < SEGMENTS
    follow_to_the_end(spark, lake, sink)


def follow_to_the_end(spark: SparkSession, lake: str, sink: Path) -> None:
    """Resume a killed stream to the end; every row must be there, once."""
    rows = spark.readStream.format("eventd").option("lake", lake).load().select("node", "number")
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(sink / "checkpoint"))
    writer.trigger(availableNow=True).start(str(sink / "rows")).awaitTermination()
    read = spark.read.parquet(str(sink / "rows")).select("number").collect()
    assert sorted(row.number for row in read) == list(range(1, SEGMENTS * ROWS + 1))


def submit(processes: Processes, cluster: Cluster, folder: Path, *run: str, env: dict[str, str]) -> Process:
    """Start the audit through spark-submit, on executors whose Python has only the packages that are sent along."""
    write_code(folder / CODE)
    link_environment(folder / "environment.tar.gz")
    (mount,) = mount_settings("audit", folder).items()
    options = {
        "--master": cluster.address,
        "--py-files": str(folder / CODE),
        "--archives": f"{folder}/environment.tar.gz#environment",
        "--conf": "spark.executorEnv.PYTHONPATH=environment",
        "--driver-java-options": f"{STARTS_FAST} -Dlog4j2.configurationFile={LOGGING.as_uri()}",
        "--driver-memory": "1g",
    }
    bare = os.path.realpath(sys.executable)
    around = {**cluster.env, **env, "PYSPARK_PYTHON": bare, "PYSPARK_DRIVER_PYTHON": sys.executable}
    words = [word for option in options.items() for word in option]
    words += ["--conf", "spark.hadoop.{}={}".format(*mount)]
    program = str(ROOT / "deploy" / "spark" / "audit.py")
    command = [str(installed_spark() / "bin" / "spark-submit"), *words, program, "run", *run]
    return processes.start("submitted", command, env=around)


def there(process: Process, folder: Path, pattern: str) -> Callable[[], int]:
    """Return a function that counts files; it fails if the process that writes them has exited."""

    def count() -> int:
        assert process.running, f"{process.name} has ended:\n{process.log_tail()}"
        return len(list(folder.glob(pattern)))

    return count
