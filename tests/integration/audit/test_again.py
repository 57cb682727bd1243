"""What an audit keeps for the next one: damaged, left by a killed task, or of segments that were compacted since."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from eventd.audit.generate import Settings, generate
from eventd.audit.report import Report
from eventd.audit.state import INDEX
from eventd.clock import SECOND
from eventd.lake.storage import connect
from eventd.lake.tidying import DAY, compacting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BOOKS = Settings(nodes=2, events=1500, span=6 * 3600 * SECOND, segment_rows=1000, lose=2, duplicate=2)
"""Two segments of each node's events."""


def audited(spark: SparkSession, folder: Path) -> Report:
    from eventd.audit.run import Request, run

    return run(spark, Request(lake=str(folder / "lake"), out=str(folder / "out")))


def told(report: Report) -> tuple[object, ...]:
    """What a report says of the books, however it came to it."""
    return (report.verdict, report.headline, report.totals, report.findings, report.pairs, report.hours, report.nodes)


def test_what_is_kept_may_be_damaged_and_is_not_heaped_up(spark: SparkSession, tmp_path: Path) -> None:
    generate(BOOKS, str(tmp_path / "lake"))
    first = audited(spark, tmp_path)
    index, state = tmp_path / "out" / INDEX, tmp_path / "out" / "state"
    kept = len(list(state.iterdir()))
    index.write_bytes(index.read_bytes()[:100])  # cut short
    (state / ".cells-00.parquet.1.tmp").touch()  # of a task that was killed
    (state / "cells-00.parquet").touch()  # of a run that was
    again = audited(spark, tmp_path)
    assert (again.work.segments_read, again.work.segments_known) == (first.lake.segments, 0)
    assert told(again) == told(first)
    assert len(list(state.iterdir())) == kept


def test_segments_that_were_compacted_are_read_again_and_count_once(spark: SparkSession, tmp_path: Path) -> None:
    generate(BOOKS, str(tmp_path / "lake"))
    first = audited(spark, tmp_path)
    nodes = [node.name for node in first.nodes]
    done = list(compacting(connect(str(tmp_path / "lake")), nodes, now=BOOKS.end + 2 * DAY, after=0))
    again = audited(spark, tmp_path)
    made = sum(1 for one in done if one.compacted)
    assert again.lake.segments < first.lake.segments
    assert (again.work.segments_read, again.work.segments_known) == (made, again.lake.segments - made)
    assert told(again) == told(first)
