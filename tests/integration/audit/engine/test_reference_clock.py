"""The end of the proof and the clocks of the nodes are given by one clock."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from eventd.audit.engine.request import AuditRequest
from eventd.audit.generate import GeneratorSettings, generate
from eventd.runtime.clock import SECOND
from tests.support.local_spark import run_audit

MINUTE = 60 * SECOND


def seconds(time: str | None) -> float:
    assert time is not None
    return datetime.fromisoformat(time).timestamp()


@pytest.mark.parametrize("skew", [40 * SECOND, 10 * MINUTE], ids=["40 s", "10 min"])
def test_the_ledgers_of_a_closed_lake_end_where_the_headline_says(tmp_path: Path, skew: int) -> None:
    lake = str(tmp_path / "lake")
    generate(GeneratorSettings(nodes=5, events=400, span=120 * MINUTE, skew=skew, seed=7), lake)
    report = run_audit(AuditRequest(lake, str(tmp_path / "out")))
    clocks = [node.skew for node in report.nodes if node.skew]
    assert len(clocks) == 5
    assert sorted(clock.ms for clock in clocks)[2] == 0.0, "the median clock is the reference"
    for node, clock in zip(report.nodes, clocks, strict=True):
        end = seconds(node.complete_until) - clock.ms / 1000
        assert end == pytest.approx(seconds(report.proven_until), abs=1 + 2 * clock.error_ms / 1000)
