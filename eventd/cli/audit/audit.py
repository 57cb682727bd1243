"""routerctl audit: run, stream, generate."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventd.cli.gateway.lake_choice import LakeOption, lake_address
from eventd.cli.gateway.options import SHOW
from eventd.cli.gateway.session import Session, offline
from eventd.cli.program.stopping import StopFlag
from eventd.cli.program.values import Duration, Size
from eventd.cli.terminal.bar import Bar
from eventd.cli.terminal.output import Column, moment, note, text
from eventd.errors import CheckFailed
from eventd.runtime.clock import SECOND
from eventd.text.plural import counted
from eventd.text.size import MIB

if TYPE_CHECKING:
    from eventd.audit.engine.stream import StreamBatch
    from eventd.audit.report.report import Report
    from eventd.errors import LakeUnavailable

SILENCE = Duration.read("15m")
EVERY = Duration.read("30s")
WATERMARK = Duration.read("1h")
SPAN = Duration.read("24h")
NO_SKEW = Duration(0)
MEMORY = Size.read("2GiB")

EveryOption = Annotated[
    Duration,
    typer.Option("--every", metavar="DURATION", min=SECOND, help="Time between two looks for new data in the lake."),
]
WatermarkOption = Annotated[
    Duration,
    typer.Option(
        "--watermark",
        metavar="DURATION",
        min=0,
        help="An hour can be final once all ledgers reach this long past its end.",
    ),
]
FailOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on",
        metavar="CONDITION",
        help="Exit with status 4 on this: a kind of finding, unproven, or completeness<99.99; repeatable.",
    ),
]
SloOption = Annotated[
    str, typer.Option("--slo", metavar="FILE", help="File with FederationSLO documents to check deliveries against.")
]
SilenceOption = Annotated[
    Duration,
    typer.Option(
        "--silence",
        metavar="AGE",
        min=SECOND,
        help="A node that reports nothing for this long, and for 3 shipping intervals, is silent: its later events are"
        " unproven.",
    ),
]
RecheckOption = Annotated[
    float,
    typer.Option(
        "--recheck",
        metavar="PERCENT",
        min=0,
        max=100,
        help="Share of the data of earlier runs whose digests are checked again.",
    ),
]
MasterOption = Annotated[
    str, typer.Option("--master", metavar="MASTER", help="Spark master (default: all cores of this machine).")
]
MemoryOption = Annotated[
    Size,
    typer.Option("--memory", metavar="SIZE", min=MIB, help="Memory that Spark may take on this machine, such as 2GiB."),
]


@offline("output")
def run(
    session: Session,
    out: Annotated[
        str, typer.Option("--out", metavar="DIR", help="Folder or address for the report; created if it is missing.")
    ],
    lake: LakeOption = "",
    since: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Only events from TIME on, rounded down to a full hour: RFC 3339, or an age such as 36h.",
        ),
    ] = "",
    until: Annotated[
        str, typer.Option("--to", metavar="TIME", help="Only events before TIME, rounded up to a full hour.")
    ] = "",
    fail_on: FailOption = None,
    slo: SloOption = "",
    master: MasterOption = "",
    memory: MemoryOption = MEMORY,
    silence: SilenceOption = SILENCE,
    recheck: RecheckOption = 5.0,
    full: Annotated[bool, typer.Option("--full", help="Read all data again, not only new data.")] = False,
) -> None:
    """Audit the delivery ledgers of all nodes in a lake; write findings to report.json, report.html and tables."""
    from eventd.audit.spark.extra import require

    require()
    from eventd.api.framework.moments import read_span
    from eventd.audit.engine.run import AuditRequest, run_on
    from eventd.audit.report.objectives import read_conditions, read_objectives
    from eventd.runtime.clock import SystemClock

    first, last = read_span(since, until, SystemClock().now(), names=("--from", "--to"))
    request = AuditRequest(
        lake=lake_address(lake),
        out=out,
        since=first,
        until=last,
        objectives=read_objectives(slo or None),
        conditions=read_conditions(fail_on or []),
        full=full,
        master=master,
        patience=silence,
        recheck=recheck,
    )
    report = run_on(request, memory=f"{memory // MIB}m", progress=session.out.is_table and sys.stderr.isatty())
    _show(session, report, out)
    if report.failed:
        raise CheckFailed(f"the audit fails on {', '.join(report.failed)}", hint=f"see report.html in {out}")


def _show(session: Session, report: Report, out: str) -> None:
    """Print the verdict and the findings; with a table, also name the files in `out`."""
    if session.out.is_table:
        from rich.console import Console

        from eventd.audit.report.summary import summary

        console = Console(highlight=False)
        with console.capture() as shown:
            console.print(summary(report))
        session.out.line(shown.get().rstrip("\n"))  # `line` escapes what the stream cannot encode
        session.out.flush()
        note(f"written to {out}: report.html, report.json, tables")
        return
    import msgspec

    document = msgspec.to_builtins(report)
    session.out.value({name: document[name] for name in ("verdict", "headline", "failed", "totals", "findings")})


@offline(*SHOW)
def stream(
    session: Session,
    out: Annotated[
        str, typer.Option("--out", metavar="DIR", help="Folder or address for the findings; created if it is missing.")
    ],
    lake: LakeOption = "",
    every: EveryOption = EVERY,
    watermark: WatermarkOption = WATERMARK,
    since: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Only events from TIME on, rounded down to a full hour: RFC 3339, or a moving window such as 48h.",
        ),
    ] = "",
    fail_on: FailOption = None,
    slo: SloOption = "",
    checkpoint: Annotated[
        str,
        typer.Option("--checkpoint", metavar="DIR", help="Where Spark keeps its progress (default: in --out)."),
    ] = "",
    master: MasterOption = "",
    memory: MemoryOption = MEMORY,
    silence: SilenceOption = SILENCE,
    recheck: RecheckOption = 0.1,
    once: Annotated[bool, typer.Option("--once", help="Audit the present data, then exit.")] = False,
) -> None:
    """Keep the audit of a lake up to date as nodes ship data, until Ctrl-C or a condition of --fail-on."""
    from eventd.audit.spark.extra import require

    require()
    from eventd.api.framework.moments import read_moment
    from eventd.audit.engine.run import AuditRequest
    from eventd.audit.engine.stream import StreamRequest, stream_on
    from eventd.audit.report.objectives import read_conditions, read_objectives
    from eventd.runtime.clock import SystemClock

    clock = SystemClock()
    read_moment("--from", since, clock.now())
    request = AuditRequest(
        lake=lake_address(lake),
        out=out,
        objectives=read_objectives(slo or None),
        conditions=read_conditions(fail_on or []),
        master=master,
        patience=silence,
        recheck=recheck,
    )
    continuous = StreamRequest(
        request,
        since=lambda: read_moment("--from", since, clock.now()),
        every=every,
        watermark=watermark,
        checkpoint=checkpoint,
        once=once,
    )
    with StopFlag() as stopping:
        stream_on(continuous, _Listener(session, stopping), memory=f"{memory // MIB}m")


def _number(name: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: f"{row[name]:,}"


_BATCH: tuple[Column, ...] = (
    Column("TIME", moment("time")),
    Column("VERDICT", text("verdict")),
    Column("DELIVERED", lambda row: f"{row['delivered']:,} of {row['expected']:,}"),
    *(Column(name.upper(), _number(name)) for name in ("missing", "pending", "findings", "final")),
    Column("SECONDS", lambda row: f"{row['seconds']:.1f}"),
)


class _Listener:
    """Prints a row for each batch of an audit stream; `ended` tells the stream to end after a signal."""

    def __init__(self, session: Session, stopping: StopFlag) -> None:
        self._show = session.out.stream_rows(_BATCH, name=lambda row: str(row["time"]))
        self._stopping = stopping

    @property
    def ended(self) -> bool:
        return self._stopping.asked

    def listen(self) -> None:
        self._stopping.listen()

    def batch(self, batch: StreamBatch) -> None:
        report = batch.report
        totals = {name: getattr(report.totals, name) for name in ("delivered", "expected", "missing", "pending")}
        row = {"time": report.made_at, "verdict": report.verdict, **totals, "findings": report.totals.findings}
        self._show([{**row, "final": batch.final, "seconds": batch.seconds, "failed": list(report.failed)}])

    def trouble(self, error: LakeUnavailable, seconds: float) -> None:
        note(f"{error}; trying again in {seconds:.0f} s")


@offline("output")
def generate(
    session: Session,
    out: Annotated[str, typer.Option("--out", metavar="LAKE", help="Empty folder or address for the lake.")],
    truth: Annotated[
        Path | None,
        typer.Option("--truth", metavar="FILE", help="Write to FILE the findings that a correct audit reports."),
    ] = None,
    nodes: Annotated[int, typer.Option(metavar="N", help="Number of nodes.")] = 5,
    events: Annotated[int, typer.Option(metavar="N", help="Number of events that all nodes together emit.")] = 100_000,
    span: Annotated[Duration, typer.Option(metavar="DURATION", help="Time that the ledgers cover.")] = SPAN,
    skew: Annotated[
        Duration, typer.Option(metavar="DURATION", help="Maximum error of a node's clock, in either direction.")
    ] = NO_SKEW,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Seed: the same options and seed generate the same ledgers.")
    ] = 1,
    lose: Annotated[int, typer.Option(metavar="N", help="Number of lost events, each missing at one peer.")] = 0,
    duplicate: Annotated[int, typer.Option(metavar="N", help="Number of deliveries made twice.")] = 0,
    forge: Annotated[int, typer.Option(metavar="N", help="Number of forged events and receipts.")] = 0,
    loop: Annotated[
        int, typer.Option(metavar="N", help="Number of looped deliveries: back to the source, or by a second sender.")
    ] = 0,
) -> None:
    """Generate the delivery ledgers of an imaginary federation, with known faults, to practise the audit on."""
    from eventd.audit.spark.extra import GENERATING, require

    require(*GENERATING)
    from eventd.audit.generate import GeneratorSettings
    from eventd.audit.generate import generate as write

    settings = GeneratorSettings(
        nodes=nodes,
        events=events,
        span=span,
        skew=skew,
        seed=seed,
        lose=lose,
        duplicate=duplicate,
        forge=forge,
        loop=loop,
    )
    # A file that cannot be written is reported before the work, not after it.
    with truth.open("wb") if truth is not None else nullcontext() as file:
        with Bar() as bar:
            show = partial(bar.show, "generating ledgers", of=nodes)
            show(0)
            made = write(settings, out, progress=show)
        if file is not None:
            file.write(made.to_json())
    session.out.outcome(
        {"lake": out, "totals": made.totals, "findings": len(made.findings)},
        f"{out}: the ledgers of {counted(nodes, 'node')}, {counted(made.totals['events'], 'event')}, "
        f"{counted(len(made.findings), 'expected finding')}",
        name=lambda row: str(row["lake"]),
    )
