"""Composes the report of an audit from the results of its stages."""

from __future__ import annotations

from collections.abc import Iterator

import eventd
from eventd.audit.assembly import receipt_report, report_details
from eventd.audit.assembly.assemble import StageResults, make_hours, make_pairs, make_totals
from eventd.audit.assembly.notices import make_notices
from eventd.audit.assembly.reach import add_reach, words_of_reach
from eventd.audit.engine.lake_reader import LakeReader
from eventd.audit.engine.request import AuditRequest
from eventd.audit.report.figures import nearest_time
from eventd.audit.report.report import MOST_HOURS, Hour, Lake, Period, Report, Settings, Totals, Work
from eventd.audit.review.marks import MarkResult
from eventd.audit.segments.cells import HOUR
from eventd.audit.spark.masters import without_parameters
from eventd.audit.spark.session import master_of
from eventd.lake.address import shown
from eventd.lake.inventory import lake_state
from eventd.lake.layout import MINUTE
from eventd.lake.reader import Survey
from eventd.lake.schema import SCHEMA_VERSION
from eventd.runtime.clock import SECOND, Clock
from federation.event import format_time


def compose_report(
    found: StageResults, marked: MarkResult, reader: LakeReader, request: AuditRequest, clock: Clock
) -> tuple[Report, list[Hour]]:
    """Return the report, without the time that the work took, and all hours, of which the report may leave some out."""
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
        proven_until=nearest_time(until) if (until := found.coverage.proven_until()) else None,
        period=_period(found, request),
        settings=_settings(request),
        totals=totals,
        findings=tuple(finding.shortened() for finding in marked.findings),
        pairs=tuple(pairs),
        hours=tuple(hours[:MOST_HOURS]),
        hours_left_out=max(0, len(hours) - MOST_HOURS),
        nodes=tuple(report_details.make_nodes(found)),
        trees=tuple(found.trees.reports),
        gaps=tuple(report_details.make_gaps(found)),
        keys=tuple(report_details.make_keys(found)),
        refusals=tuple(report_details.make_refusals(found)),
        receipts=tuple(receipt_report.make_receipts(found.summaries)),
        receipt_check=receipts,
        baseline=marked.baseline,
        acknowledgements=marked.acknowledgements,
        troubles=(
            *report_details.make_limitations(found, request.lake),
            *marked.problems,
            *report_details.rewritten(found.rewritten),
            *report_details.deleted_rows(found.survey, found.history.deleted),
            *report_details.history_limitations(found.history),
            *report_details.strays(found.survey.strays),
            *found.trees.doubts,
            *found.files.doubts,
        ),
        notices=tuple(make_notices(found, request.patience)),
        work=_work(reader),
    )
    return report, hours


def _conditions_met(found: StageResults, marked: MarkResult, request: AuditRequest, totals: Totals) -> Iterator[str]:
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
    return Period(first=format_time(begin), last=nearest_time(end)) if begin < end else Period()


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
        without_ledgers=request.without_ledgers,
        history=request.history,
        policy=tuple(key.name for key in request.policy or ()),
    )


def _work(reader: LakeReader) -> Work:
    return Work(
        segments_read=len(reader.read),
        segments_known=len({*reader.state.entries} - {job.name for job in reader.read}),
        segments_rechecked=reader.rechecked,
        oldest_read=None if reader.oldest is None else format_time(reader.oldest),
        digests_checked=sum(result.checked for _, result in reader.digest_results),
        rows_read=sum(job.manifest.rows for job in reader.read),
        spark=f"{reader.spark.version} on {without_parameters(master_of(reader.spark))}",
        version=eventd.__version__,
    )
