"""`routerctl audit stream` as a user's command: what it refuses at once, how it notices new data, and how it ends."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from eventd.audit.generate import GeneratorSettings, generate
from eventd.cli.program.stopping import StopFlag
from eventd.runtime.clock import SECOND
from tests.integration.cli.conftest import Control
from tests.support.processes import CONTROL, Process, Processes
from tests.support.spark import require_spark
from tests.support.spark_cluster import quick_spark
from tests.support.waiting import wait_for

HOUR = 3600 * SECOND


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (["--every", "0"], 2, "'--every': must be at least 1s, not '0'"),
        (["--every", "often"], 2, "'--every': 'often' is not a duration; write 30s"),
        (["--watermark", "-1h"], 2, "'--watermark': must be at least 0s"),
        (["--from", "yesterday"], 2, "'--from': 'yesterday' is not a time"),
        (["--fail-on", "rain"], 2, "'--fail-on': 'rain' is not a condition"),
        (["--slo", "nowhere.yaml"], 1, "nowhere.yaml"),
        (["--fail-on", "new"], 2, "--fail-on new needs an earlier report: add --baseline REPORT"),
        (["--baseline", "nowhere"], 3, "nowhere: report.json is missing"),
        (["--sign", "nowhere.pem"], 1, "cannot read nowhere.pem"),
        (["--out", "memory://out"], 1, "add --checkpoint DIR"),
        ([], 3, "there is no lake at"),
        (["--once"], 3, "there is no lake at"),
    ],
)
def test_what_cannot_be_is_refused_before_spark_starts(
    control: Control, tmp_path: Path, options: list[str], code: int, told: str
) -> None:
    out = [] if "--out" in options else ["--out", str(tmp_path / "out")]
    ended = control("audit", "stream", "--lake", str(tmp_path / "lake"), *out, *options, code=code)
    assert told in ended.err
    assert len(ended.err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_who_is_told_to_stop_ends_what_it_has_started_and_who_is_told_twice_does_not() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopFlag() as stopping:
        signal.raise_signal(signal.SIGTERM)
        assert stopping.asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with StopFlag() as stopping:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # as Spark does when it starts
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before


def batches(stream: Process) -> list[dict[str, Any]]:
    assert stream.running, stream.log_tail()
    return [json.loads(line) for line in stream.log().splitlines() if line.startswith("{")]


@pytest.mark.spark
def test_it_tells_of_news_outlives_its_lake_and_ends_when_it_is_told_to(processes: Processes, tmp_path: Path) -> None:
    require_spark()
    lake, out = tmp_path / "lake", tmp_path / "out"
    generate(GeneratorSettings(nodes=2, events=200, span=HOUR, lose=1), str(lake))
    asked = ["audit", "stream", "--lake", str(lake), "--out", str(out), "--every", "1s", "-o", "json"]
    stream = processes.start("stream", [*CONTROL, *asked, "--memory", "1GiB"], env=quick_spark(tmp_path))
    (first,) = wait_for(lambda: batches(stream), "the first batch", seconds=300)
    assert {name: first[name] for name in ("verdict", "expected", "delivered", "missing", "findings", "failed")} == {
        **{"verdict": "incomplete", "expected": 200, "delivered": 199, "missing": 1},
        **{"findings": 1, "failed": []},
    }
    assert json.loads((out / "report.json").read_text())["totals"]["missing"] == 1
    second = processes.control("audit", "run", "--lake", str(lake), "--out", str(out))
    assert (second.returncode, f"process {stream.pid} writes an audit to {out}" in second.stderr) == (1, True)

    lake.rename(tmp_path / "away")
    wait_for(lambda: "trying again in" in stream.log(), "the lake to be missed", seconds=60)
    (tmp_path / "away").rename(lake)
    said = next(lake.glob("nodes/*/*.json"))
    state = json.loads(said.read_text())
    said.write_text(json.dumps({**state, "as_of": state["as_of"] + SECOND}))
    wait_for(lambda: (out / "checkpoint" / "offsets" / "1").exists(), "another batch to begin", seconds=60)
    assert stream.terminate(seconds=60) == 0
    log = stream.log()
    if "python_streaming_source_runner" in log:
        # Spark's own Python process, which reads the source, may find its connection closed as the stream ends: it
        # prints that itself, and shares the stream's stderr.
        log = log[: log.index("Traceback (most recent call last)")]
    told = [line for line in log.splitlines() if not line.startswith("{")]
    assert all(line.startswith("there is no lake at") for line in told), "no word of Java's"
