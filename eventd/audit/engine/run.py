"""Runs the audit from end to end: survey, small ledgers, cells, reconciliation, rows, report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import eventd
from eventd.audit.engine import receipt_report, report_details
from eventd.audit.engine.assemble import StageResults, make_hours, make_pairs, make_totals
from eventd.audit.engine.cells import HOUR
from eventd.audit.engine.clock_shifts import clock_shifts
from eventd.audit.engine.coverage import find_coverage
from eventd.audit.engine.delta_tables import TableFormat, prepare_delta
from eventd.audit.engine.erasures import find_erasures
from eventd.audit.engine.event_digests import digest_discrepancies
from eventd.audit.engine.hidden_events import count_damaged
from eventd.audit.engine.holes import find_holes, holes_by_ledger
from eventd.audit.engine.lake_reader import LakeReader
from eventd.audit.engine.mentions import find_mentions
from eventd.audit.engine.output_files import write_output
from eventd.audit.engine.output_lock import hold_location
from eventd.audit.engine.pair_figures import read_figures, read_senders, read_waiting
from eventd.audit.engine.plan import make_plan
from eventd.audit.engine.reach import add_reach, words_of_reach
from eventd.audit.engine.receipt_links import confirmed_links, verified_links
from eventd.audit.engine.receipt_terms import ReceiptKey, ReceiptTerms
from eventd.audit.engine.reconcile import add_pairs
from eventd.audit.engine.rollbacks import (
    add_blind_spots,
    add_uneven_batches,
    add_unknown_batches,
    find_rollbacks,
    promises_of,
)
from eventd.audit.engine.row_comparison import group_uneven
from eventd.audit.engine.silence import PATIENCE, find_silences
from eventd.audit.engine.state import State, forget_corrupt, keep, open_state, prepare_output
from eventd.audit.report.findings import group_findings, in_order
from eventd.audit.report.objectives import ANY, Condition, Objective, Objectives
from eventd.audit.report.report import MOST_HOURS, Hour, Lake, Period, Report, Settings, Totals, Work
from eventd.audit.review.acknowledgements import read_acknowledgements
from eventd.audit.review.earlier import EarlierReport
from eventd.audit.review.marks import MarkedFindings, check_baseline, mark_findings
from eventd.audit.spark.access import Access
from eventd.audit.spark.locations import Location
from eventd.audit.spark.masters import is_server, without_parameters
from eventd.audit.spark.session import (
    expected_master,
    is_remote,
    last_cause,
    master_of,
    open_session,
    own_session,
    quiet,
)
from eventd.errors import EventdError
from eventd.lake.address import shown
from eventd.lake.inventory import lake_state
from eventd.lake.layout import MINUTE
from eventd.lake.reader import Survey, survey
from eventd.lake.schema import SCHEMA_VERSION, Ledger
from eventd.lake.storage import open_lake
from eventd.runtime.clock import SECOND, Clock, SystemClock
from federation.event import format_time
from federation.keys import Key

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_ALL = (-(1 << 40), 1 << 40)
RECHECK = 5.0
"""Default percentage, by bytes, of the segments of earlier runs whose digests a run checks again."""
QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Spark settings that make the JVM start fast. Sums are computed outside of it, and its optimizing compiler would take
longer than it saves."""


@dataclass(frozen=True)
class AuditRequest:
    """A request for an audit. `lake` and `out` are paths or fsspec addresses.

    `since` and `until` are microseconds of the events' own time, widened to whole hours (None: no bound). `full`:
    discard the state of earlier audits, and read all segments of these hours. `master`: the Spark master, empty for
    this machine. `patience`: up to this age (microseconds), a node's last report is no silence, see `find_silences`.
    `recheck`: the percentage, by bytes, of known segments of these hours whose digests are checked again. `receipts`:
    the percentage of the receipts that are checked, `keys` the keys to verify them with. `digests`: the percentage of
    the events with payloads whose contents are compared with their digests.
    `memory`: what Spark may take on this machine, as Spark writes it.
    `access`: how the files of lake and output are reached. `baseline`: the report to compare the findings with.
    `count_acknowledged`: acknowledged findings meet conditions. `signing_key`: signs the report. `table_format`:
    whether its tables are written as Delta tables, too. `time_zone`: the zone of the times on the page.
    """

    lake: str
    out: str
    since: int | None = None
    until: int | None = None
    objectives: Objectives = field(default_factory=lambda: {ANY: Objective()})
    conditions: Sequence[Condition] = ()
    full: bool = False
    master: str = ""
    patience: int = PATIENCE
    recheck: float = RECHECK
    memory: str = "2g"
    access: Access = Access.AUTO
    baseline: EarlierReport | None = None
    count_acknowledged: bool = False
    signing_key: Key | None = None
    receipts: float = 100.0
    digests: float = 100.0
    keys: tuple[ReceiptKey, ...] = ()
    table_format: TableFormat = TableFormat.PARQUET
    time_zone: str = "UTC"

    @property
    def receipt_terms(self) -> ReceiptTerms:
        """Return the terms by which receipts are checked."""
        return ReceiptTerms(self.receipts, self.keys)

    def places(self, spark: SparkSession | None = None) -> Places:
        """Return where lake and output are, for a running Spark, or as far as it is known before it runs."""
        master = expected_master(self.master) if spark is None else master_of(spark)
        remote = is_server(self.master) if spark is None else is_remote(spark)
        lake = Location(self.lake, self.access.is_by_spark(self.lake, master))
        return Places(lake, Location(self.out, self.access.writes_by_spark(self.out, master, remote=remote)))

    @property
    def hours(self) -> tuple[int, int]:
        """Return the requested hours as [first, last), counted from 1970; a missing bound lies beyond all events."""
        first = _ALL[0] if self.since is None else self.since // HOUR
        return first, _ALL[1] if self.until is None else -(-self.until // HOUR)

    @property
    def end(self) -> int | None:
        """Return the end of the last requested hour (microseconds); None if the request has no `until`."""
        return None if self.until is None else self.hours[1] * HOUR


@dataclass
class _Stopwatch:
    """Measures how long each stage takes: `stages` has the seconds of those that did not fail, by name."""

    clock: Clock
    stages: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        begun = self.clock.monotonic()
        yield
        self.stages[name] = round(self.clock.monotonic() - begun, 3)


class Places(NamedTuple):
    """Where the lake and the output of an audit are."""

    lake: Location
    out: Location

    @property
    def by_spark(self) -> bool:
        """Return whether one of them is reached only once Spark runs."""
        return self.lake.by_spark or self.out.by_spark


class Audit(NamedTuple):
    """The result of an audit: the report, all hours (the report may leave some out), and the results of the stages."""

    report: Report
    hours: Sequence[Hour]
    found: StageResults


def audit(session: SparkSession, request: AuditRequest, *, clock: Clock) -> Audit:
    """Audit a lake; write report.json, report.html, the tables and the state for the next audit to `request.out`.

    `session` is one of `own_session`; the caller holds the lock of the output. Raises NotFound if there is no lake,
    LakeUnusable for one with another schema or a corrupt head, LakeUnavailable if lake or output cannot be reached, and
    Conflict if the output holds an audit of another lake (unless `full`). Errors of Spark pass through unchanged.
    """
    watch, begun = _Stopwatch(clock), clock.monotonic()
    places = request.places(session)
    out = places.out.open(session)
    with watch.stage("survey"):
        lake = places.lake.open(session)
        surveyed, known = survey(lake), read_acknowledgements(lake)
        if request.baseline is not None:
            check_baseline(request.baseline, surveyed.head.id)
        state = State(lake=surveyed.head.id) if request.full else open_state(out, surveyed.head)
    reader, found = _read_with_retry(session, request, places, surveyed, state, watch)
    _add_silences(found, request, clock.now())
    state.promises = promises_of(surveyed, state.promises)
    keep(out, state)
    with watch.stage("report"):
        marked = mark_findings(found.findings, request.baseline, known)
        report, hours = _report(found, marked, reader, request, clock)
        report.work.stages, report.work.rows_compared = watch.stages, found.comparison.compared
        report.work.seconds = round(clock.monotonic() - begun, 3)
        write_output(
            out,
            report,
            marked.findings,
            hours,
            found.survey.digests,
            key=request.signing_key,
            table_format=request.table_format,
        )
    return Audit(report, hours, found)


def _add_silences(found: StageResults, request: AuditRequest, now: int) -> None:
    coverage, patience = found.coverage, request.patience
    coverage.shifts = clock_shifts(found.survey, found.plan.clocks, now, patience)
    coverage.silences = find_silences(
        found.survey,
        now=now,
        until=request.end,
        patience=patience,
        shifts=coverage.shifts,
        mentions=found.mentions.latest,
    )


def _read_with_retry(
    session: SparkSession, request: AuditRequest, places: Places, survey: Survey, state: State, watch: _Stopwatch
) -> tuple[LakeReader, StageResults]:
    """Return a reader of the lake, and the results of `_read`; it is retried once if files of cells are corrupt."""
    for retried in (False, True):
        terms, now = request.receipt_terms, watch.clock.now()
        reader = LakeReader(session, places.lake, places.out, survey, state, request.hours, now, terms, request.digests)
        try:
            return reader, _read(reader, watch, request.recheck)
        except Exception:  # Spark's exceptions have no common base class
            if retried or not forget_corrupt(places.out.open(session), state):
                raise
    raise AssertionError("the second try neither returned nor raised")


def run_on(request: AuditRequest, *, progress: bool = False, record: bool = False) -> Report:
    """Audit a lake like `audit`, on a Spark session that is opened for it, and return the report.

    `record`: keep the classes of Java for a faster start, see `open_session`.
    Raises like `audit`, `open_session` and `prepare_delta`, and Conflict if another process writes to the output; a
    failure inside of Spark is an EventdError with a message of one line.
    """
    places = request.places()
    if request.table_format is TableFormat.DELTA:  # report errors before Spark starts
        prepare_delta(request.out)
    if not places.by_spark:
        prepare_output(places.out.open(), open_lake(places.lake.open()), full=request.full)
    with (
        hold_location(places.out),
        open_session(
            request.master or None,
            app="routerctl audit",
            memory=request.memory,
            progress=progress,
            conf=QUICK,
            record=record,
        ) as spark,
        quiet(spark),
    ):
        try:
            return audit(own_session(spark), request, clock=SystemClock()).report
        except EventdError:
            raise
        except Exception as error:  # Spark's exceptions have no common base class
            raise EventdError(f"the audit failed in Spark: {last_cause(str(error))}") from None


def _read(reader: LakeReader, watch: _Stopwatch, recheck: float) -> StageResults:
    """Check some known segments again, run all stages up to the comparison of rows, and return their results."""
    with watch.stage("recheck"):
        reader.recheck(recheck)
    with watch.stage("small ledgers"):
        summaries = reader.summarize_small()
        plan = make_plan(reader.survey, summaries)
    with watch.stage("cells"):
        jobs = reader.read_large(plan)
        coverage = find_coverage(reader.survey, plan, summaries, reader.unreadable)
        coverage.since = reader.hours[0] * HOUR
        coverage.verified = verified_links(summaries, coverage.with_damage(Ledger.RECEIPTS))
        rollbacks = find_rollbacks(reader.survey, reader.state.promises, summaries, coverage)
        coverage.holes = holes_by_ledger(find_holes(reader.survey, reader.runs, summaries, rollbacks.found))
    with watch.stage("balance"):
        parts = reader.reconcile(coverage)
        found = StageResults(
            survey=reader.survey,
            plan=plan,
            coverage=coverage,
            summaries=summaries,
            figures=read_figures(_rows(add_pairs(parts["pairs"])) if parts else []),
            hours=[row for table in parts.get("hours", ()) for row in _rows(table)],
            waiting=read_waiting(row for table in parts.get("waiting", ()) for row in _rows(table)),
            senders=read_senders(row for table in parts.get("senders", ()) for row in _rows(table)),
            mentions=find_mentions(
                (row for table in parts.get("latest", ()) for row in _rows(table)), summaries, coverage
            ),
        )
    found.rewritten = reader.state.rewritten
    with watch.stage("rows"):
        unknown = [row for table in parts.get("unknown", ()) for row in _rows(table)]
        unknown = add_unknown_batches(rollbacks, unknown, reader.survey, coverage)
        uneven = [row for table in parts.get("batches", ()) for row in _rows(table)]
        add_uneven_batches(rollbacks, uneven, reader.survey)
        add_blind_spots(coverage, reader.survey, rollbacks)
        found.damaged = count_damaged(reader.survey, reader.unreadable) + rollbacks.rows
        found.comparison = reader.compare(group_uneven(parts.get("uneven", ())), jobs, coverage)
        first, last = (hour * HOUR for hour in reader.hours)
        found.erasures = find_erasures(coverage.holes, found.comparison.located, (first, last))
        found.confirmed = confirmed_links(summaries, unknown)
        forged = [*receipt_report.faults(summaries)]
        batches = [*reader.receipt_discrepancies(unknown, coverage), *reader.batch_discrepancies(uneven, summaries)]
        altered = digest_discrepancies(reader.digest_results, found.erasures.others)
        faults = [*forged, *receipt_report.without_repeats(batches, forged)]
        discrepancies = [*found.erasures.others, *altered, *faults]
        lake = report_details.lake_findings(reader.survey, reader.unreadable)
        found.findings = in_order(
            [*group_findings(discrepancies), *found.erasures.findings, *rollbacks.findings(), *lake]
        )
    return found


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return list(table.to_pylist())


def _report(
    found: StageResults, marked: MarkedFindings, reader: LakeReader, request: AuditRequest, clock: Clock
) -> tuple[Report, list[Hour]]:
    pairs, hours = make_pairs(found, request.objectives), make_hours(found)
    add_reach(found, pairs)
    totals = make_totals(found, pairs)
    totals.acknowledged = marked.acknowledged
    sure = totals.completeness is not None
    receipts = receipt_report.make_check(found.summaries, request.receipt_terms)
    verdict = (
        "incomplete" if found.findings or totals.missing or totals.disputed else "complete" if sure else "unproven"
    )
    now = clock.now()
    report = Report(
        made_at=format_time(now),
        verdict=verdict,  # type: ignore[arg-type]
        headline=(
            *report_details.headline(
                totals,
                found.findings,
                sure=sure,
                doubts=[*report_details.make_doubts(found), *words_of_reach(found, pairs, now)],
                receipts=receipts.statement,
            ),
            *marked.sentences,
        ),
        failed=tuple(_conditions_met(found, marked, request, totals)),
        lake=_lake(found.survey, request),
        proven_until=format_time(until) if (until := found.coverage.proven_until()) else None,
        period=_period(found, request),
        settings=_settings(request),
        totals=totals,
        findings=tuple(finding.shortened() for finding in marked.findings),
        pairs=tuple(pairs),
        hours=tuple(hours[:MOST_HOURS]),
        hours_left_out=max(0, len(hours) - MOST_HOURS),
        nodes=tuple(report_details.make_nodes(found)),
        gaps=tuple(report_details.make_gaps(found)),
        keys=tuple(report_details.make_keys(found)),
        refusals=tuple(report_details.make_refusals(found)),
        receipts=tuple(receipt_report.make_receipts(found.summaries)),
        receipt_check=receipts,
        baseline=marked.baseline,
        acknowledgements=marked.acknowledgements,
        troubles=(
            *report_details.make_limitations(found),
            *marked.problems,
            *report_details.rewritten(found.rewritten),
            *report_details.strays(found.survey.strays),
        ),
        notices=tuple(report_details.make_notices(found)),
        work=_work(reader),
    )
    return report, hours


def _conditions_met(
    found: StageResults, marked: MarkedFindings, request: AuditRequest, totals: Totals
) -> Iterator[str]:
    counted = marked.findings if request.count_acknowledged else marked.open
    for one in request.conditions:
        if one.is_met(totals, counted, stale=bool(found.coverage.silences)):
            yield one.text


def _lake(survey: Survey, request: AuditRequest) -> Lake:
    segments = [one.manifest for one in survey.segments]
    return Lake(
        url=shown(request.lake),
        segments=len(segments),
        rows=sum(one.rows for one in segments),
        bytes=sum(one.bytes for one in segments),
        schema=SCHEMA_VERSION,
        id=survey.head.id,
        state=lake_state(survey.digests),
    )


def _period(found: StageResults, request: AuditRequest) -> Period:
    """Return the period of all events in the lake, to the minute, cut to the requested hours; empty if none is left."""
    slots = [one.manifest.slots for one in found.survey.segments if one.manifest.slots]
    if not slots:
        return Period()
    first, last = request.hours
    begin = max(min(slot[0] for slot in slots) * MINUTE, first * HOUR)
    end = min((max(slot[1] for slot in slots) + 1) * MINUTE, last * HOUR)
    return Period(first=format_time(begin), last=format_time(end)) if begin < end else Period()


def _settings(request: AuditRequest) -> Settings:
    return Settings(
        slo={group: objective._asdict() for group, objective in request.objectives.items()},
        fail_on=tuple(one.text for one in request.conditions),
        since=None if request.since is None else format_time(request.since),
        until=None if request.until is None else format_time(request.until),
        master=without_parameters(request.master),
        patience=request.patience / SECOND,
        recheck=request.recheck,
        receipts=request.receipts,
        digests=request.digests,
        keys=request.receipt_terms.names,
        out=shown(request.out),
        memory=request.memory,
        access=request.access.value,
        baseline=request.baseline.url if request.baseline else "",
        count_acknowledged=request.count_acknowledged,
        signing_key=request.signing_key.id if request.signing_key else "",
        incremental=not request.full,
        table_format=request.table_format.value,
        time_zone=request.time_zone,
    )


def _work(reader: LakeReader) -> Work:
    return Work(
        segments_read=len(reader.read),
        segments_known=len({*reader.state.entries} - {job.name for job in reader.read}),
        segments_rechecked=reader.rechecked,
        oldest_read=None if reader.oldest is None else format_time(reader.oldest),
        digests_checked=sum(result.checked for _, result in reader.digest_results),
        rows_read=sum(job.manifest.rows for job in reader.read),
        spark=f"{reader.spark.version} on {master_of(reader.spark)}",
        version=eventd.__version__,
    )


__all__ = ["QUICK", "Audit", "AuditRequest", "audit", "own_session", "run_on"]
