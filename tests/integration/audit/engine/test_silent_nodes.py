"""A node that stopped shipping, or was killed for good, is not audited as complete: the report dates its silence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from eventd.audit.engine import stream
from eventd.audit.engine.request import AuditRequest
from eventd.audit.engine.stream import Stream, StreamBatch, StreamRequest, checkpoint_of
from eventd.audit.generate import GeneratorSettings
from eventd.audit.report.objectives import read_conditions
from eventd.audit.report.report import Report
from eventd.audit.spark.session import quiet
from eventd.errors import LakeUnavailable
from eventd.lake.close import close_node
from eventd.lake.reader import survey
from eventd.lake.storage import connect
from eventd.lake.writer import write_state
from eventd.runtime.clock import SECOND
from eventd.testing import ManualClock
from tests.support.federations import copy_generated
from tests.support.local_spark import LocalSpark, run_audit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR = 3600 * SECOND
BOOKS = GeneratorSettings(nodes=3, events=600, span=2 * HOUR)
LATER = BOOKS.end + 3 * HOUR


@pytest.fixture
def lake(tmp_path: Path) -> str:
    """The ledgers of three nodes that are in service; their last reports are of the end of the span."""
    place = str(tmp_path / "lake")
    copy_generated(BOOKS, place)
    for state in survey(connect(place)).nodes:
        write_state(connect(place), msgspec.structs.replace(state, closed_at=0))
    return place


def report_idle(lake: str, *nodes: str, now: int) -> None:
    """These nodes looked for something to ship, had nothing, and say so."""
    for state in survey(connect(lake)).nodes:
        if state.node in nodes:
            write_state(connect(lake), msgspec.structs.replace(state, as_of=now, complete_until=now - 10 * SECOND))


def audit(
    lake: str, *, now: int, since: int | None = None, until: int | None = None, fail_on: str = "unproven"
) -> Report:
    conditions = read_conditions([fail_on])
    asked = AuditRequest(lake, f"{lake}-out", since=since, until=until, conditions=conditions)
    return run_audit(asked, clock=ManualClock(now))


def test_a_node_that_stopped_is_unproven_and_its_silence_has_an_age(lake: str) -> None:
    early = audit(lake, now=BOOKS.end + 300 * SECOND)
    assert (early.verdict, early.troubles, early.totals.completeness) == ("complete", (), 100.0)

    report_idle(lake, "site-01", "site-02", now=LATER)
    report = audit(lake, now=LATER)
    assert (report.verdict, report.failed, report.totals.completeness) == ("unproven", ("unproven",), None)
    (trouble,) = report.troubles
    assert (trouble.kind, trouble.where) == ("silent", "site-03")
    told = "silent since 2026-01-05 02:00:00 UTC (3 h): its ledger ends at 2026-01-05 01:59:59 UTC"
    assert trouble.message == told
    assert report.headline[1] == f"Not proven: site-03 is {told}."
    judged = {(one.source, one.peer): one.completeness for one in report.pairs}
    assert judged == {names: None if "site-03" in names else 100.0 for names in judged}
    assert len(judged) == 6
    silent = {node.name: (node.silent_since, node.silent_for) for node in report.nodes}
    assert silent["site-03"] == ("2026-01-05T02:00:00Z", 3 * 3600.0)
    assert silent["site-01"] == (None, None)
    of_dead = [hour for hour in report.hours if "site-03" in (hour.source, hour.peer)]
    assert {hour.completeness for hour in of_dead if hour.hour.startswith("2026-01-05T00")} == {100.0}
    assert {hour.completeness for hour in of_dead if hour.hour.startswith("2026-01-05T01")} == {None}
    page = Path(f"{lake}-out", "report.html").read_text(encoding="utf-8")
    assert "silent since 2026-01-05 02:00:00 UTC" in page
    assert "silent for 3 h" in page


def test_a_lake_in_which_nobody_reports_any_more_is_unproven(lake: str) -> None:
    report = audit(lake, now=LATER)
    assert (report.verdict, report.failed) == ("unproven", ("unproven",))
    assert [one.where for one in report.troubles] == ["site-01", "site-02", "site-03"]
    before = audit(lake, now=LATER, until=BOOKS.start + HOUR - 1)
    assert (before.verdict, before.troubles) == ("complete", ())


def test_a_node_that_is_out_of_service_is_not_waited_for(lake: str) -> None:
    report_idle(lake, "site-01", "site-02", now=LATER)
    close_node(connect(lake), "site-03", now=LATER)
    report = audit(lake, now=LATER)
    assert (report.verdict, report.troubles) == ("complete", ())
    assert [node.closed_at for node in report.nodes] == [None, None, "2026-01-05T05:00:00Z"]


def test_a_report_says_if_all_nodes_are_closed(lake: str) -> None:
    """No age of a report makes its audit unproven."""
    report_idle(lake, "site-01", now=LATER)
    for node in ("site-02", "site-03"):
        close_node(connect(lake), node, now=LATER)
    assert audit(lake, now=LATER).notices == ()
    close_node(connect(lake), "site-01", now=LATER + 600 * SECOND)
    report = audit(lake, now=LATER + 1000 * HOUR)
    (notice,) = report.notices
    assert (report.verdict, notice.kind, notice.source) == ("complete", "closed", "")
    assert notice.message == (
        "all nodes say that they are closed (site-01, site-02, site-03), the last since 2026-01-05 05:10:00 UTC: the"
        " audit expects no reports, and does not notice that the lake was taken back to an earlier hour"
    )


def test_a_report_names_the_nodes_that_say_that_they_ship_seldom(lake: str) -> None:
    report_idle(lake, "site-01", "site-02", "site-03", now=LATER)
    for state in survey(connect(lake)).nodes:
        interval = {"site-02": HOUR, "site-03": 300 * SECOND}.get(state.node, 0)
        write_state(connect(lake), msgspec.structs.replace(state, interval=interval))
    (notice,) = audit(lake, now=LATER + 600 * SECOND).notices
    assert (notice.kind, notice.source) == ("interval", "site-02")
    assert notice.message == (
        "site-02 says that it ships every 1 h: it counts as silent after 3 h without a report, and not after 15 min"
        " (--silence)"
    )


def cut(lake: str, node: str, *, seconds: int, closed_at: int) -> None:
    """The state of a node whose last rows were not shipped."""
    (state,) = (one for one in survey(connect(lake)).nodes if one.node == node)
    until = BOOKS.end - seconds * SECOND
    write_state(connect(lake), msgspec.structs.replace(state, complete_until=until, closed_at=closed_at))


def test_the_hours_before_and_after_the_last_rows_of_a_lost_node_are_judged_without_it(lake: str) -> None:
    """What to do about a lost disk, as the pages say: its ledger ends at 01:30, others have later batches from it."""
    report_idle(lake, "site-01", "site-02", now=LATER)
    cut(lake, "site-03", seconds=1800, closed_at=LATER)
    (trouble,) = audit(lake, now=LATER).troubles
    assert "--to" in trouble.hint
    assert "--from" in trouble.hint
    before = audit(lake, now=LATER, until=BOOKS.start + HOUR)
    assert (before.verdict, before.troubles, before.failed) == ("complete", (), ())
    assert audit(lake, now=LATER, since=BOOKS.end).troubles == ()
    between = audit(lake, now=LATER, since=BOOKS.start + HOUR, until=BOOKS.end)
    judged = {(one.source, one.peer): one.completeness for one in between.pairs}
    assert judged == {names: None if "site-03" in names else 100.0 for names in judged}


def test_a_node_that_was_closed_before_it_had_shipped_its_last_rows_is_behind(lake: str) -> None:
    report_idle(lake, "site-01", "site-02", now=LATER)
    cut(lake, "site-03", seconds=1800, closed_at=LATER)
    report = audit(lake, now=LATER, fail_on="stale")
    assert (report.verdict, report.failed, report.totals.completeness) == ("unproven", ("stale",), None)
    (trouble,) = report.troubles
    assert (trouble.kind, trouble.where) == ("behind", "site-03")
    assert trouble.message == (
        "behind: it is closed, but its ledger ends at 2026-01-05 01:30:00 UTC, before it acknowledged a batch of "
        "site-02 at 2026-01-05 01:38:15 UTC"
    )
    assert "start the node once more" in trouble.hint


def test_the_ledger_of_a_peer_proves_what_it_shows_although_it_is_complete_only_until_earlier(lake: str) -> None:
    cut(lake, "site-03", seconds=1500, closed_at=0)
    report = run_audit(AuditRequest(lake, f"{lake}-out", patience=HOUR), clock=ManualClock(BOOKS.end + 60 * SECOND))
    assert report.troubles == ()
    reach = {(one.source, one.peer): (one.proof, one.proven_until, one.claims_after) for one in report.pairs}
    assert reach["site-01", "site-03"] == ("books", "2026-01-05T01:35:00Z", 0)
    assert reach["site-01", "site-02"] == ("books", "2026-01-05T01:59:59Z", 0)
    assert report.proven_until == "2026-01-05T01:35:00Z"
    assert report.totals.claimed == 0
    assert "claim" not in "".join(report.headline)
    ends = "The ledgers of all nodes are complete until 2026-01-05 01:35:00 UTC, 26 min before this report."
    assert report.headline[1] == ends


def test_what_others_have_from_a_node_after_the_requested_time_is_not_asked_for(lake: str) -> None:
    cut(lake, "site-03", seconds=3000, closed_at=LATER)
    report_idle(lake, "site-01", "site-02", now=LATER)
    report = audit(lake, now=LATER, until=BOOKS.start + HOUR, fail_on="stale")
    assert (report.verdict, report.troubles, report.failed) == ("complete", (), ())


class Heard:
    """Moves the clock once a report is there, and ends the stream with the second one."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.batches: list[StreamBatch] = []

    @property
    def ended(self) -> bool:
        return len(self.batches) == 2

    def listen(self) -> None:
        """Nothing is to be done."""

    def batch(self, batch: StreamBatch) -> None:
        self.batches.append(batch)
        self._clock.advance(3 * 3600)

    def trouble(self, error: LakeUnavailable, seconds: float) -> None:
        raise error


class Query:
    """Stands in for a query of Spark, which has one batch, and then no news."""

    isActive = True

    def __init__(self, on_batch: Callable[[], None]) -> None:
        self._on_batch = on_batch
        self._has_begun = False

    def awaitTermination(self, seconds: float) -> bool:
        if not self._has_begun:
            self._on_batch()
        self._has_begun = True
        return False

    def stop(self) -> None:
        self.isActive = False


def test_a_stream_tells_of_silence_though_nothing_arrives(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock(BOOKS.end + 300 * SECOND)
    heard = Heard(clock)
    following = StreamRequest(AuditRequest(lake, f"{lake}-out"), every=SECOND)
    following = replace(following, checkpoint=checkpoint_of(following))
    followed = Stream(cast("SparkSession", LocalSpark()), following, heard, clock=clock)
    query = Query(followed._audit)
    monkeypatch.setattr(followed, "_start", lambda: query)
    monkeypatch.setattr(stream, "silence_log", lambda _: None)
    followed.follow()
    assert not query.isActive
    first, second = (batch.report for batch in heard.batches)
    assert (first.verdict, first.troubles) == ("complete", ())
    assert (second.verdict, {one.kind for one in second.troubles}) == ("unproven", {"silent"})


@pytest.fixture
def no_leaks() -> None:
    """The threads over which Spark calls Python back stay as long as Spark itself does."""
    return


def test_a_query_of_spark_without_news_does_not_hide_silence(spark: SparkSession, lake: str, no_leaks: None) -> None:
    clock = ManualClock(BOOKS.end + 300 * SECOND)
    heard = Heard(clock)
    following = StreamRequest(AuditRequest(lake, f"{lake}-out"), every=SECOND)
    with quiet(spark):
        Stream(spark, replace(following, checkpoint=checkpoint_of(following)), heard, clock=clock).follow()
    first, second = (batch.report for batch in heard.batches)
    assert (first.verdict, first.troubles) == ("complete", ())
    assert (second.verdict, {one.kind for one in second.troubles}) == ("unproven", {"silent"})
