"""Runs the audit from end to end: survey, small ledgers, cells, reconciliation, rows, report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from eventd.audit.assembly import receipt_report, report_details
from eventd.audit.assembly.assemble import HistoryUse, StageResults
from eventd.audit.assembly.delta_tables import TableFormat, prepare_delta
from eventd.audit.assembly.output_files import write_output
from eventd.audit.coverage.absent_ledgers import pairs_without_ledgers
from eventd.audit.coverage.clock_shifts import clock_shifts
from eventd.audit.coverage.coverage import Coverage, find_coverage
from eventd.audit.coverage.file_trees import judge_files
from eventd.audit.coverage.holes import find_holes, holes_by_ledger
from eventd.audit.coverage.mentions import find_mentions
from eventd.audit.coverage.receipt_links import (
    LinkKey,
    deliveries_with_unkept_receipts,
    deliveries_without_receipt,
    verified_links,
)
from eventd.audit.coverage.recording_times import RecordingTimes
from eventd.audit.coverage.rollbacks import (
    Rollbacks,
    add_blind_spots,
    add_uneven_batches,
    add_unknown_batches,
    find_rollbacks,
    promises_of,
)
from eventd.audit.coverage.silence import find_silences
from eventd.audit.engine.compose_report import compose_report
from eventd.audit.engine.history import AuditHistory, Resumption, keep_history, resume
from eventd.audit.engine.lake_reader import LakeReader
from eventd.audit.engine.output_lock import hold_location
from eventd.audit.engine.request import AuditRequest, Places
from eventd.audit.engine.state import forget_corrupt, keep, prepare_output
from eventd.audit.report.findings import (
    Discrepancy,
    DiscrepancyKey,
    Kind,
    group_findings,
    in_order,
    unnamed_findings,
)
from eventd.audit.report.report import Hour, Report
from eventd.audit.review.acknowledgements import known_by, read_acknowledgements
from eventd.audit.review.marks import check_baseline, mark_findings
from eventd.audit.segments.cells import HOUR
from eventd.audit.segments.damaged_segment import damage_in
from eventd.audit.segments.event_digests import DigestResult, digest_discrepancies, unnamed_alterations
from eventd.audit.segments.ledger_summaries import LedgerSummary
from eventd.audit.segments.plan import NodeEpoch, make_plan, unkept_numbers
from eventd.audit.segments.segment_jobs import SegmentJob
from eventd.audit.spark.session import last_cause, open_session, own_session, quiet
from eventd.audit.verdicts.batch_verdicts import batch_discrepancies
from eventd.audit.verdicts.erased_leaves import find_held, with_held
from eventd.audit.verdicts.erasures import find_erasures
from eventd.audit.verdicts.hidden_events import count_damaged
from eventd.audit.verdicts.hourly_figures import add_pairs
from eventd.audit.verdicts.leaf_verdicts import judge_leaves, limit_comparison
from eventd.audit.verdicts.ledger_rows import DeclaredLosses
from eventd.audit.verdicts.node_trees import Trees
from eventd.audit.verdicts.pair_figures import read_figures, read_senders, read_waiting
from eventd.audit.verdicts.receipt_verdicts import receipt_discrepancies
from eventd.audit.verdicts.refused_events import unanswered_events, with_slots
from eventd.audit.verdicts.row_comparison import group_uneven
from eventd.audit.verdicts.selection_verdicts import selection_discrepancies
from eventd.audit.verdicts.squatted_ids import find_squatted
from eventd.audit.verdicts.tree_findings import judge_trees
from eventd.audit.verdicts.unclaimed_batches import unclaimed_discrepancies
from eventd.errors import EventdError
from eventd.lake.reader import Survey, survey
from eventd.lake.schema import Ledger
from eventd.lake.storage import open_lake
from eventd.runtime.clock import Clock, SystemClock

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Spark settings that make the JVM start fast. Sums are computed outside of it, and its optimizing compiler would take
longer than it saves."""


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


class Audit(NamedTuple):
    """The result of an audit: the report, all hours (the report may leave some out), and the results of the stages."""

    report: Report
    hours: Sequence[Hour]
    found: StageResults


def audit(session: SparkSession, request: AuditRequest, *, clock: Clock) -> Audit:
    """Audit a lake; write report.json, report.html, the tables and the state for the next audit to `request.out`.

    `session` is one of `own_session`; the caller holds the lock of the output. Raises NotFound if there is no lake,
    LakeUnusable for one with another schema or a corrupt head, LakeUnavailable if lake or output cannot be reached, and
    Conflict if the output holds an audit of another lake, unless the request discards it. Errors of Spark pass through
    unchanged.
    """
    watch, begun = _Stopwatch(clock), clock.monotonic()
    places = request.places(session)
    out = places.out.open(session)
    with watch.stage("survey"):
        lake = places.lake.open(session)
        surveyed, known = survey(lake), read_acknowledgements(lake)
        if request.baseline is not None:
            check_baseline(request.baseline, surveyed.head.id)
        resumed = resume(out, surveyed.head, request, clock.now())
        resumed.history.meet(surveyed, clock.now())
    reader, found = _read_with_retry(session, request, places, surveyed, resumed, watch)
    _add_silences(found, request, clock.now())
    _add_history(found, resumed, reader)
    keep_history(out, resumed.history)
    with watch.stage("report"):
        in_force = known_by(known, clock.now())
        marked = mark_findings(found.findings, request.baseline, in_force, RecordingTimes(found.coverage).until)
        report, hours = compose_report(found, marked, reader, request, clock)
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
        clock_change=coverage.clock_change,
    )


def _add_history(found: StageResults, resumed: Resumption, reader: LakeReader) -> None:
    """Compare the lake with its history, add what it shows to the results, and the present lake to the history."""
    history = resumed.history
    history.compare(reader.survey, reader.sums, reader.now)
    history.promises = promises_of(reader.survey, history.promises)
    history.file_trees = found.files.seen
    found.rewritten = history.rewritten
    found.history = HistoryUse(
        lost_at=history.lost_at, lost=history.lost, cleared=resumed.cleared, deleted=history.deleted
    )


def _read_with_retry(
    session: SparkSession, request: AuditRequest, places: Places, survey: Survey, resumed: Resumption, watch: _Stopwatch
) -> tuple[LakeReader, StageResults]:
    """Return a reader of the lake, and the results of `_read`, which is retried without files that turned out to be
    damaged.

    Corrupt files of cells are forgotten, once. A damaged segment of the lake is forgotten, too, so that the next
    attempt reports it as corrupt; there may be others, so all known segments are checked. Raises like `_read`, and
    EventdError with the name of a segment that turns out to be damaged each time.
    """
    state, history, percent, forgot = resumed.state, resumed.history, request.recheck, False
    damaged: dict[str, str] = {}
    while True:
        reader = LakeReader(
            session,
            places.lake,
            places.out,
            survey,
            state,
            request.hours,
            watch.clock.now(),
            receipts=request.receipt_terms,
            digests=request.digests,
            ranges=history.wanted(survey),
            sample=request.history,
            unreadable=dict(damaged),
        )
        try:
            return reader, _read(reader, history, watch, percent, request)
        except Exception as error:  # Spark's exceptions have no common base class
            if (damage := damage_in(error)) is None:
                if forgot or not forget_corrupt(places.out.open(session), state):
                    raise
                forgot = True
                continue
            if damage.name in damaged:
                raise EventdError(
                    f"segment {damage.name} of the lake cannot be read: {damage.reason}",
                    hint="check the lake with routerctl lake check",
                ) from None
            percent = 0 if damaged else 100
            damaged[damage.name] = damage.reason
            state.entries.pop(damage.name, None)


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
        prepare_output(places.out.open(), open_lake(places.lake.open()), discards=request.discards)
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
            raise EventdError(f"the audit failed in Spark: {last_cause(str(error), *request.addresses)}") from None


def _read(
    reader: LakeReader, history: AuditHistory, watch: _Stopwatch, recheck: float, request: AuditRequest
) -> StageResults:
    """Check some known segments again, run all stages up to the comparison of rows, and return their results.

    `recheck`: see `LakeReader.recheck`.
    The state is stored as soon as segments were checked or read, so that an audit which fails does not repeat that.
    """
    out = reader.out.open(reader.spark)
    with watch.stage("recheck"):
        reader.recheck(recheck)
        if reader.rechecked:
            keep(out, reader.state)
    with watch.stage("small ledgers"):
        summaries = reader.summarize_small()
        plan, trees = make_plan(reader.survey, summaries), Trees.of(summaries, request.policy)
    with watch.stage("cells"):
        reader.check_skipped()
        jobs = reader.read_large(plan, trees)
        keep(out, reader.state)
        coverage = find_coverage(reader.survey, plan, summaries, reader.unreadable)
        coverage.since, coverage.without_ledgers = reader.hours[0] * HOUR, frozenset(request.without_ledgers)
        coverage.verified = verified_links(summaries, coverage.with_damage(Ledger.RECEIPTS))
        rollbacks = find_rollbacks(reader.survey, history.promises, summaries, coverage)
        coverage.holes = holes_by_ledger(find_holes(reader.survey, reader.runs, summaries, rollbacks.found))
    with watch.stage("reconcile"):
        tables = _Tables(reader.reconcile(coverage, unkept_numbers(reader.survey, summaries, Ledger.RECEIPTS)))
        coverage.without_receipt = deliveries_without_receipt(tables.rows("without_receipt"), tables.rows("questioned"))
        coverage.unkept_receipts = deliveries_with_unkept_receipts(tables.rows("without_receipt"))
        found = StageResults(
            survey=reader.survey,
            plan=plan,
            coverage=coverage,
            summaries=summaries,
            figures=read_figures(_rows(add_pairs([*tables.parts["pairs"]])) if tables.parts else []),
            hours=tables.rows("hours"),
            waiting=read_waiting(tables.rows("waiting")),
            senders=read_senders(tables.rows("senders")),
            mentions=find_mentions(tables.rows("latest"), summaries, coverage),
            without_ledgers=pairs_without_ledgers(tables.rows("latest"), tables.rows("received"), coverage),
        )
    with watch.stage("rows"):
        _compare_rows(reader, found, rollbacks, tables, jobs)
    if trees.evidence:
        with watch.stage("trees"):
            _judge_trees(reader, found, trees)
    lake = reader.lake.open(reader.spark)
    found.files = judge_files(lake, reader.survey, trees.file_keys(), history.file_trees)
    found.findings = in_order([*found.findings, *found.files.findings])
    return found


def _judge_trees(reader: LakeReader, found: StageResults, trees: Trees) -> None:
    """Add what the trees of all nodes show to the findings, and store which leaves were compared."""
    coverage, compared = found.coverage, reader.state.compared
    erased = [one for one in found.findings if one.kind is Kind.ERASED and not one.peer]
    found.trees = judge_trees(trees, reader.leaves, reader.survey, coverage, erased, reader.unread)
    held = find_held(found.trees.holes, reader.leaves_by_segment, reader.rows)
    findings = [*with_held([*found.findings, *found.trees.findings], held)]
    findings += find_squatted(reader.taken_ids, reader.rows, found.trees.reports)
    others = reader.compare_leaves(found.trees.reports)
    found.trees.doubts += limit_comparison(others.cut)
    findings += group_findings(judge_leaves(others.rows, reader.find_own, findings, coverage, reader.unread))
    found.findings = in_order(findings)
    if reader.state.compared != compared:
        keep(reader.out.open(reader.spark), reader.state)


def _compare_rows(
    reader: LakeReader, found: StageResults, rollbacks: Rollbacks, tables: _Tables, jobs: Sequence[SegmentJob]
) -> None:
    """Add the comparison of rows and the findings to the results; `jobs` are those of the large ledgers."""
    coverage, summaries, uneven = found.coverage, found.summaries, tables.rows("batches")
    requested = (row for row in tables.rows("questioned") if row["requested"])
    questioned = add_unknown_batches(rollbacks, requested, reader.survey, coverage)
    add_uneven_batches(rollbacks, uneven, reader.survey)
    add_blind_spots(coverage, reader.survey, rollbacks)
    found.damaged = count_damaged(reader.survey, reader.unreadable, reader.hours[0] * HOUR) + rollbacks.rows
    rows, known, losses = reader.rows, reader.known, DeclaredLosses(reader.survey, summaries)
    unanswered = unanswered_events(tables.rows("refused"), reader.survey, known, rows, reader.hours, losses)
    coverage.unanswered = frozenset(unanswered)
    slots = with_slots(group_uneven(tables.parts.get("uneven", ())), unanswered)
    found.comparison = reader.compare(slots, jobs, coverage)
    first, last = (hour * HOUR for hour in reader.hours)
    found.erasures = find_erasures(coverage.holes, found.comparison.located, (first, last))
    altered, of_rows = _altered_rows(reader.digest_results, found)
    faults, of_receipts = _receipt_faults(reader, coverage, summaries, questioned)
    of_batches = batch_discrepancies(uneven, reader.survey, known, rows, losses)
    faults += receipt_report.without_repeats(of_batches, faults)
    unclaimed, progress = tables.parts.get("unclaimed", ()), reader.progress_by_segment()
    of_peers = unclaimed_discrepancies(
        unclaimed, reader.survey, summaries, coverage, rows, reader.hours, progress, faults
    )
    coverage.unclaimed = frozenset(LinkKey(pair.group, pair.source, pair.peer) for pair in of_peers.pairs)
    faults += of_peers.named
    discrepancies = [*found.erasures.others, *altered, *faults, *selection_discrepancies(found.plan)]
    lake = report_details.lake_findings(reader.survey, reader.unreadable)
    named = [*group_findings(discrepancies), *found.erasures.findings]
    unnamed = unnamed_findings(of_rows + of_receipts + of_peers.unnamed)
    found.findings = in_order([*named, *unnamed, *rollbacks.findings(), *lake])


def _altered_rows(
    results: Sequence[tuple[str, DigestResult]], found: StageResults
) -> tuple[list[Discrepancy], Counter[DiscrepancyKey]]:
    """Return the altered rows that only the check of digests names, and the discrepancies of rows that are not named.

    `results`: those of the check, each with the node of its segment.
    """
    compared, counted = found.erasures.others, found.comparison.unnamed_counts
    altered = [*digest_discrepancies(results, compared)]
    return altered, counted + unnamed_alterations(results, counted, compared)


def _receipt_faults(
    reader: LakeReader,
    coverage: Coverage,
    summaries: Mapping[NodeEpoch, Sequence[LedgerSummary]],
    questioned: Iterable[Mapping[str, Any]],
) -> tuple[list[Discrepancy], Counter[DiscrepancyKey]]:
    """Return the discrepancies of receipts, and those that are not named; `questioned`: receipts of these hours."""
    faults = [*receipt_report.faults(summaries)]
    judged = receipt_discrepancies(questioned, coverage, reader.rows, reader.receipts)
    others = [*receipt_report.without_repeats(judged, faults)]
    return [*faults, *others], receipt_report.unnamed_faults(summaries, others)


class _Tables(NamedTuple):
    """The tables of `reconcile.reconcile`: by name, one for each part; empty for a lake without cells."""

    parts: Mapping[str, Sequence[pa.Table]]

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of the tables of this name."""
        return [row for table in self.parts.get(name, ()) for row in _rows(table)]


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return list(table.to_pylist())
