"""The audit from end to end: survey, small books, cells, balance, rows, report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import eventd
from eventd.audit.engine import environment
from eventd.audit.engine.assemble import Found, make_hours, make_pairs, make_totals
from eventd.audit.engine.coverage import look
from eventd.audit.engine.link_figures import read_lines, read_senders, read_waiting
from eventd.audit.engine.plan import make_plan
from eventd.audit.engine.reconcile import add_lines
from eventd.audit.engine.run_lock import holding
from eventd.audit.engine.silence import PATIENCE, find_silences
from eventd.audit.engine.stages import Reader
from eventd.audit.engine.state import State, claim, forget_spoilt, keep, open_state
from eventd.audit.engine.suspects import uneven_of
from eventd.audit.engine.tables import write_tables
from eventd.audit.report.findings import Finding, group_findings, in_order
from eventd.audit.report.html import render
from eventd.audit.report.objectives import ANY, Condition, Objective, Objectives
from eventd.audit.report.report import MOST_HOURS, Hour, Lake, Period, Report, Settings, Work, to_json
from eventd.errors import EventdError
from eventd.lake.address import shown
from eventd.lake.layout import MINUTE
from eventd.lake.reader import Survey, survey
from eventd.lake.schema import SCHEMA_VERSION
from eventd.lake.storage import Storage, connect, open_lake
from eventd.runtime.clock import SECOND, Clock, SystemClock
from federation.event import format_time

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_AN_HOUR = 60 * MINUTE
_ALL = (-(1 << 40), 1 << 40)
RECHECK = 5.0
"""Percent of what earlier runs read whose digests a run checks again."""
QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""The sums are made outside of the JVM: a better compiler takes longer than it saves."""


@dataclass(frozen=True)
class Request:
    """What to audit. `lake` and `out` are paths or fsspec addresses.

    `since` and `until` are microseconds of the events' own time, widened to whole hours. `full`: read everything anew.
    `recheck`: the percentage of what earlier runs read whose digests are checked again.
    `patience`: how old a node's last report may be before the node counts as silent (microseconds).
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

    @property
    def hours(self) -> tuple[int, int]:
        """The hours [first, last) since 1970 that are looked at."""
        first = _ALL[0] if self.since is None else self.since // _AN_HOUR
        return first, _ALL[1] if self.until is None else -(-self.until // _AN_HOUR)

    @property
    def end(self) -> int | None:
        """The end of the last hour that was asked for (microseconds); None: the present."""
        return None if self.until is None else self.hours[1] * _AN_HOUR


@dataclass
class _Watch:
    """How long each stage took."""

    clock: Clock
    stages: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        begun = self.clock.monotonic()
        yield
        self.stages[name] = round(self.clock.monotonic() - begun, 3)


class Audited(NamedTuple):
    """What an audit came to: the report, all of its hours, and what they were made of."""

    report: Report
    hours: Sequence[Hour]
    found: Found


def run(spark: SparkSession, request: Request, *, clock: Clock | None = None) -> Report:
    """Audit a lake, and write report.json, report.html and the tables to `request.out`.

    Raises NotFound where there is no lake, LakeUnusable for one of another schema, LakeUnavailable where lake or output
    cannot be reached, and Conflict where the output holds an audit of another lake, or another process writes there.
    """
    open_lake(connect(request.lake))  # where there is none, no folder is made for what it comes to
    with holding(connect(request.out)):
        return audit(own_session(spark), request, clock=clock or SystemClock()).report


def audit(session: SparkSession, request: Request, *, clock: Clock) -> Audited:
    """The same on a session of `own_session`, for who holds the output already. Raises as `run`."""
    watch, out = _Watch(clock), connect(request.out)
    begun = clock.monotonic()
    with watch.stage("survey"):
        found_there = survey(connect(request.lake))
        state = State(lake=found_there.head.id) if request.full else open_state(out, found_there.head)
    reader, found = _read_once_more(session, request, found_there, state, watch)
    found.sight.silences = find_silences(found_there, now=clock.now(), until=request.end, patience=request.patience)
    keep(out, state)
    with watch.stage("report"):
        report, hours = _report(found, reader, request, clock)
        report.work.stages, report.work.rows_compared = watch.stages, found.judged.compared
        report.work.seconds = round(clock.monotonic() - begun, 3)
        _write(out, report, found.findings, hours)
    return Audited(report, hours, found)


def _read_once_more(
    session: SparkSession, request: Request, survey: Survey, state: State, watch: _Watch
) -> tuple[Reader, Found]:
    """Read; once more where that failed because files of the state were spoilt, which are then made anew."""
    for spoilt in (False, True):
        reader = Reader(session, request.lake, request.out, survey, state, request.hours, watch.clock.now())
        try:
            return reader, _read(reader, watch, request.recheck)
        except Exception:  # of Spark, which has no common base
            if spoilt or not forget_spoilt(connect(request.out), state):
                raise
    raise AssertionError("the second try neither returned nor raised")


def run_on(request: Request, *, memory: str = "2g", progress: bool = False) -> Report:
    """Audit a lake on a Spark of its own; what Spark makes of a failure is told in one line.

    Raises as `run`, and as `open_session`.
    """
    from eventd.audit.spark.session import last_cause, open_session, quiet

    out = connect(request.out)
    claim(out, open_lake(connect(request.lake)), anew=request.full)  # what is wrong is told before Spark starts
    with (
        holding(out),
        open_session(
            request.master or None, app="routerctl audit", memory=memory, progress=progress, conf=QUICK
        ) as spark,
        quiet(spark),
    ):
        try:
            return audit(own_session(spark), request, clock=SystemClock()).report
        except EventdError:
            raise
        except Exception as error:  # Spark's errors have no common base
            raise EventdError(f"the audit failed in Spark: {last_cause(str(error))}") from None


def own_session(spark: SparkSession) -> SparkSession:
    """A session of our own on the same Spark: what is set here is nobody else's business. Spark never forgets one."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    # The sums are made outside of the JVM; what is left there is moving rows, which no compiled plan makes faster.
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.adaptive.enabled", "false")
    return session


def _read(reader: Reader, watch: _Watch, recheck: float) -> Found:
    """Stages 0 to 3."""
    with watch.stage("recheck"):
        reader.recheck(recheck)
    with watch.stage("small books"):
        facts = reader.small_books()
        plan = make_plan(reader.survey, facts)
    with watch.stage("cells"):
        jobs = reader.large_books(plan)
        sight = look(reader.survey, plan, facts, reader.unreadable)
        sight.asked = reader.hours[0] * _AN_HOUR
    with watch.stage("balance"):
        reach = {node: until + sight.margin for node, until in sight.until.items()}
        parts = reader.balance(reach)
        found = Found(
            survey=reader.survey,
            plan=plan,
            sight=sight,
            facts=facts,
            lines=read_lines(_rows(add_lines(parts["lines"])) if parts else []),
            hours=[row for table in parts.get("hours", ()) for row in _rows(table)],
            waiting=read_waiting(row for table in parts.get("waiting", ()) for row in _rows(table)),
            senders=read_senders(row for table in parts.get("senders", ()) for row in _rows(table)),
        )
    found.rewritten = reader.state.rewritten
    with watch.stage("rows"):
        found.judged = reader.compare(uneven_of(parts.get("uneven", ())), jobs, sight)
        unknown = [row for table in parts.get("unknown", ()) for row in _rows(table)]
        facts_of_all = [*found.judged.facts, *reader.forged_receipts(unknown, sight)]
        lake = environment.lake_findings(reader.survey, reader.unreadable)
        found.findings = in_order([*group_findings(facts_of_all), *lake])
    return found


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return list(table.to_pylist())


def _report(found: Found, reader: Reader, request: Request, clock: Clock) -> tuple[Report, list[Hour]]:
    pairs, hours = make_pairs(found, request.objectives), make_hours(found)
    totals = make_totals(found, pairs)
    sure = totals.completeness is not None
    verdict = (
        "incomplete" if found.findings or totals.missing or totals.disputed else "complete" if sure else "unproven"
    )
    segments = [one.manifest for one in found.survey.segments]
    report = Report(
        made_at=format_time(clock.now()),
        verdict=verdict,  # type: ignore[arg-type]
        headline=environment.headline(totals, found.findings, sure=sure, doubts=environment.make_doubts(found)),
        failed=tuple(one.text for one in request.conditions if one.is_met(totals, found.findings)),
        lake=Lake(
            url=shown(request.lake),
            segments=len(segments),
            rows=sum(one.rows for one in segments),
            bytes=sum(one.bytes for one in segments),
            schema=SCHEMA_VERSION,
        ),
        period=_period(found, request),
        settings=_settings(request),
        totals=totals,
        findings=tuple(finding.shortened() for finding in found.findings),
        pairs=tuple(pairs),
        hours=tuple(hours[:MOST_HOURS]),
        hours_left_out=max(0, len(hours) - MOST_HOURS),
        nodes=tuple(environment.make_nodes(found)),
        gaps=tuple(environment.make_gaps(found)),
        keys=tuple(environment.make_keys(found)),
        refusals=tuple(environment.make_refusals(found)),
        receipts=tuple(environment.make_receipts(found)),
        troubles=(*environment.make_troubles(found), *environment.rewritten(found.rewritten)),
        work=_work(reader),
    )
    return report, hours


def _period(found: Found, request: Request) -> Period:
    """From the first to the last event there is, as far as they were asked for."""
    slots = [one.manifest.slots for one in found.survey.segments if one.manifest.slots]
    if not slots:
        return Period()
    first, last = request.hours
    begin = max(min(slot[0] for slot in slots) * MINUTE, first * _AN_HOUR)
    end = min((max(slot[1] for slot in slots) + 1) * MINUTE, last * _AN_HOUR)
    return Period(first=format_time(begin), last=format_time(end)) if begin < end else Period()


def _settings(request: Request) -> Settings:
    return Settings(
        slo={group: objective._asdict() for group, objective in request.objectives.items()},
        fail_on=tuple(one.text for one in request.conditions),
        since=None if request.since is None else format_time(request.since),
        until=None if request.until is None else format_time(request.until),
        master=request.master,
        patience=request.patience / SECOND,
        incremental=not request.full,
    )


def _work(reader: Reader) -> Work:
    return Work(
        segments_read=len(reader.read),
        segments_known=len({*reader.state.entries} - {job.name for job in reader.read}),
        segments_rechecked=reader.rechecked,
        oldest_read=None if reader.oldest is None else format_time(reader.oldest),
        rows_read=sum(job.manifest.rows for job in reader.read),
        spark=f"{reader.spark.version} on {reader.spark.sparkContext.master}",
        version=eventd.__version__,
    )


def _write(out: Storage, report: Report, findings: Sequence[Finding], hours: Sequence[Hour]) -> None:
    write_tables(out, report, findings, hours)
    out.put("report.html", render(report).encode())
    out.put("report.json", to_json(report))  # last: whoever finds it finds all


__all__ = ["QUICK", "Audited", "Request", "audit", "own_session", "run", "run_on"]
