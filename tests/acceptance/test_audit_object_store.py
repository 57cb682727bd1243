"""A lake and a report in an object store that speaks the protocol of S3, on one machine: through fsspec."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.object_store import BUCKET, KEYS, object_store, read_object
from tests.support.processes import CONTROL, Processes
from tests.support.spark import require_spark
from tests.support.spark_cluster import quick_spark

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
LAKE, OUT = f"s3://{BUCKET}/edge", f"s3://{BUCKET}/report"
SECONDS = 300


@pytest.fixture
def store() -> Iterator[dict[str, str]]:
    require_spark()
    with object_store() as variables:
        yield variables


def test_a_lake_is_written_checked_and_audited_where_it_is(
    processes: Processes, store: dict[str, str], tmp_path: Path
) -> None:
    env = {**store, **quick_spark(tmp_path)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return processes.run([*CONTROL, *words], env=env, seconds=SECONDS)

    made = run("audit", "generate", "--out", LAKE, "--nodes", "3", "--events", "300", "--lose", "2")
    assert made.returncode == 0, made.stderr
    assert run("lake", "check", "--lake", LAKE).returncode == 0

    followed = ["--checkpoint", str(tmp_path / "at"), "--once", "--fail-on", "missing", "--memory", "1GiB"]
    done = run("audit", "stream", "--lake", LAKE, "--out", OUT, *followed)
    assert done.returncode == 4, done.stderr
    report = json.loads(read_object(store, "report/report.json"))
    assert report["totals"]["by_kind"]["missing"] == report["totals"]["missing"] == 2
    assert report["work"]["segments_read"] == report["lake"]["segments"]
    assert "Traceback" not in done.stderr
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in done.stdout + done.stderr + json.dumps(report)
