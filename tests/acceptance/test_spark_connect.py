"""The audit, the views and the format "eventd" in sessions of Spark Connect, whose JVM is a server's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eventd.audit.generate import GeneratorSettings, generate
from eventd.runtime.clock import SECOND
from tests.support.processes import CONTROL, Processes
from tests.support.spark import require_spark
from tests.support.spark_cluster import ConnectServer, start_program

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
SECONDS = 300
BOOKS = GeneratorSettings(nodes=3, events=300, span=6 * 3600 * SECOND, lose=2)


def test_a_client_without_a_java_audits_and_queries_a_lake(processes: Processes, tmp_path: Path) -> None:
    require_spark()
    lake, out = str(tmp_path / "lake"), tmp_path / "report"
    truth = generate(BOOKS, lake)
    server = ConnectServer(processes)
    without_java = {"JAVA_HOME": str(tmp_path), "PATH": ""}
    program = start_program(processes, "remote", server.address, lake, str(out), env=without_java)
    assert program.wait_exit(seconds=SECONDS) == 0, program.log_tail()
    said = program.log().splitlines()
    assert [line for line in said if " ended with " in line] == [
        "audit stream ended with 0",
        "audit run ended with 4",
    ]
    streamed, read = (json.loads((out / name).read_text()) for name in ("streamed.json", "report.json"))
    assert streamed["totals"]["missing"] == 2
    assert read["findings"] == streamed["findings"]
    assert (streamed["settings"]["incremental"], read["settings"]["incremental"]) == (True, False)
    delivered = truth.totals["deliveries"]
    assert said[-1] == f"{delivered} deliveries by the source, {delivered} by the views"


def test_a_server_that_does_not_answer_is_named_without_its_token(processes: Processes, tmp_path: Path) -> None:
    require_spark()
    generate(BOOKS, str(tmp_path / "lake"))
    run = ["audit", "run", "--lake", str(tmp_path / "lake"), "--out", str(tmp_path / "report")]
    done = processes.run([*CONTROL, *run, "--master", "sc://127.0.0.1:1/;token=hush"], seconds=SECONDS)
    assert done.returncode == 1
    assert "no Spark master answers at sc://127.0.0.1:1 (127.0.0.1:1: Connection refused)" in done.stderr
    assert "hush" not in done.stderr
