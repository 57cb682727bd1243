"""routerctl audit: run, stream, generate."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventd.cli.gateway.session import Session, offline
from eventd.cli.program.stopping import Stopping
from eventd.cli.terminal.output import Column, count, moment, note, text
from eventd.errors import CheckFailed, Invalid
from eventd.runtime.clock import SECOND

if TYPE_CHECKING:
    from eventd.audit.engine.stream import Batch
    from eventd.audit.report.report import Report
    from eventd.errors import LakeUnavailable

LakeOption = Annotated[str, typer.Option("--lake", metavar="LAKE", help="Folder or address of the lake. [EVENTD_LAKE]")]
FailOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on",
        metavar="WHAT",
        help="End with 4 if this is found: a kind of finding, unproven, completeness<99.99; repeatable.",
    ),
]
SloOption = Annotated[
    str, typer.Option("--slo", metavar="FILE", help="FederationSLO documents to hold deliveries against.")
]
SilenceOption = Annotated[
    str,
    typer.Option("--silence", metavar="AGE", help="A node whose last report is older is silent: unproven."),
]
RecheckOption = Annotated[
    float,
    typer.Option(
        "--recheck",
        metavar="PERCENT",
        min=0,
        max=100,
        help="Share of what earlier runs read whose digests are checked again.",
    ),
]
MasterOption = Annotated[
    str, typer.Option("--master", metavar="MASTER", help="Where Spark works; all cores of this machine by default.")
]
MemoryOption = Annotated[str, typer.Option("--memory", metavar="SIZE", help="What Spark may take on this machine.")]


@offline
def run(
    session: Session,
    out: Annotated[
        str, typer.Option("--out", metavar="DIR", help="Folder or address for the report; it is made if it is missing.")
    ],
    lake: LakeOption = "",
    since: Annotated[
        str,
        typer.Option("--from", metavar="TIME", help="Events of that hour or later: RFC 3339, or how long ago (36h)."),
    ] = "",
    until: Annotated[str, typer.Option("--to", metavar="TIME", help="Events before the end of that hour.")] = "",
    fail_on: FailOption = None,
    slo: SloOption = "",
    master: MasterOption = "",
    memory: MemoryOption = "2g",
    silence: SilenceOption = "15m",
    recheck: RecheckOption = 5.0,
    full: Annotated[bool, typer.Option("--full", help="Read everything again, not only what is new.")] = False,
) -> None:
    """Balance the books of all nodes in a lake, and write what was found to report.json, report.html and tables."""
    from eventd.audit.spark.extra import require

    require()
    from eventd.api.framework.moments import read_span
    from eventd.audit.engine.run import Request, run_on
    from eventd.audit.report.objectives import read_conditions, read_objectives
    from eventd.runtime.clock import SystemClock

    first, last = read_span(since, until, SystemClock().now(), names=("--from", "--to"))
    request = Request(
        lake=_lake(session, lake),
        out=out,
        since=first,
        until=last,
        objectives=read_objectives(slo or None),
        conditions=read_conditions(fail_on or []),
        full=full,
        master=master,
        patience=_micros("--silence", silence, least=SECOND),
        recheck=recheck,
    )
    report = run_on(request, memory=memory, progress=session.out.is_table and sys.stderr.isatty())
    _show(session, report, out)
    if report.failed:
        raise CheckFailed(f"the audit fails on {', '.join(report.failed)}", hint=f"see report.html in {out}")


def _show(session: Session, report: Report, out: str) -> None:
    """What matters most: the verdict and the findings."""
    if session.out.is_table:
        from rich.console import Console

        from eventd.audit.report.summary import summary

        console = Console(highlight=False)
        with console.capture() as shown:
            console.print(summary(report))
        session.out.line(shown.get().rstrip("\n"))  # which spells out what the stream cannot hold
        session.out.flush()
        note(f"written to {out}: report.html, report.json, tables")
        return
    import msgspec

    told = msgspec.to_builtins(report)
    session.out.value({name: told[name] for name in ("verdict", "headline", "failed", "totals", "findings")})


@offline
def stream(
    session: Session,
    out: Annotated[
        str, typer.Option("--out", metavar="DIR", help="Folder or address for what is found; made if it is missing.")
    ],
    lake: LakeOption = "",
    every: Annotated[str, typer.Option("--every", metavar="TIME", help="How often to look for news.")] = "30s",
    watermark: Annotated[
        str, typer.Option("--watermark", metavar="TIME", help="How long after its end an hour may become final.")
    ] = "1h",
    since: Annotated[
        str,
        typer.Option(
            "--from", metavar="TIME", help="Events of that hour or later: RFC 3339, or a window that moves (48h)."
        ),
    ] = "",
    fail_on: FailOption = None,
    slo: SloOption = "",
    checkpoint: Annotated[
        str,
        typer.Option("--checkpoint", metavar="DIR", help="Where Spark keeps what was seen; in --out by default."),
    ] = "",
    master: MasterOption = "",
    memory: MemoryOption = "2g",
    silence: SilenceOption = "15m",
    recheck: RecheckOption = 0.1,
    once: Annotated[bool, typer.Option("--once", help="Look at what is there now, and end.")] = False,
) -> None:
    """Keep the audit of a lake up to date: whenever a node has said something new, until Ctrl-C."""
    from eventd.audit.spark.extra import require

    require()
    from eventd.api.framework.moments import read_moment
    from eventd.audit.engine.run import Request
    from eventd.audit.engine.stream import Following, stream_on
    from eventd.audit.report.objectives import read_conditions, read_objectives
    from eventd.runtime.clock import SystemClock

    clock = SystemClock()
    read_moment("from", since, clock.now())
    request = Request(
        lake=_lake(session, lake),
        out=out,
        objectives=read_objectives(slo or None),
        conditions=read_conditions(fail_on or []),
        master=master,
        patience=_micros("--silence", silence, least=SECOND),
        recheck=recheck,
    )
    following = Following(
        request,
        since=lambda: read_moment("from", since, clock.now()),
        every=_micros("--every", every, least=SECOND),
        watermark=_micros("--watermark", watermark, least=0),
        checkpoint=checkpoint,
        once=once,
    )
    with Stopping() as stopping:
        stream_on(following, _Listener(session, stopping), memory=memory)


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
    """Shows what a stream tells, a line for each batch, and has it end when somebody said so."""

    def __init__(self, session: Session, stopping: Stopping) -> None:
        self._show = session.out.stream_rows(_BATCH)
        self._stopping = stopping

    @property
    def ended(self) -> bool:
        return self._stopping.asked

    def listen(self) -> None:
        self._stopping.listen()

    def batch(self, batch: Batch) -> None:
        report = batch.report
        totals = {name: getattr(report.totals, name) for name in ("delivered", "expected", "missing", "pending")}
        row = {"time": report.made_at, "verdict": report.verdict, **totals, "findings": report.totals.findings}
        self._show([{**row, "final": batch.final, "seconds": batch.seconds, "failed": list(report.failed)}])

    def trouble(self, error: LakeUnavailable, seconds: float) -> None:
        note(f"{error}; trying again in {seconds:.0f} s")


def _lake(session: Session, named: str) -> str:
    """The lake that is named, or that of the settings. Raises Invalid where there is none."""
    from eventd.settings.model import load

    url = load({**session.where.flags(), "lake": named or None}).lake
    if not url:
        raise Invalid("no lake is named", hint="say --lake FOLDER, or set EVENTD_LAKE")
    return url


@offline
def generate(
    session: Session,
    out: Annotated[str, typer.Option("--out", metavar="LAKE", help="An empty folder or address for the lake.")],
    truth: Annotated[
        Path | None, typer.Option("--truth", metavar="FILE", help="Write the findings of a correct audit to FILE.")
    ] = None,
    nodes: Annotated[int, typer.Option(metavar="N", help="Nodes.")] = 5,
    events: Annotated[int, typer.Option(metavar="N", help="Events that all nodes together emit.")] = 100_000,
    span: Annotated[str, typer.Option(metavar="TIME", help="Time that the ledgers cover.")] = "24h",
    skew: Annotated[str, typer.Option(metavar="TIME", help="Largest error of a node's clock, either way.")] = "0s",
    seed: Annotated[int, typer.Option(metavar="N", help="The same seed makes the same ledgers.")] = 1,
    lose: Annotated[int, typer.Option(metavar="N", help="Events that one peer never gets.")] = 0,
    duplicate: Annotated[int, typer.Option(metavar="N", help="Deliveries that are made twice.")] = 0,
    forge: Annotated[int, typer.Option(metavar="N", help="Forged events and receipts.")] = 0,
    loop: Annotated[int, typer.Option(metavar="N", help="Deliveries to the source, or by a second sender.")] = 0,
) -> None:
    """Generate the delivery ledgers of an imaginary federation, with known faults, to practise the audit on."""
    from eventd.audit.spark.extra import GENERATING, require

    require(*GENERATING)
    from eventd.audit.generate import Settings
    from eventd.audit.generate import generate as write

    settings = Settings(
        nodes=nodes,
        events=events,
        span=_micros("--span", span),
        skew=_micros("--skew", skew),
        seed=seed,
        lose=lose,
        duplicate=duplicate,
        forge=forge,
        loop=loop,
    )
    # A file that cannot be written is reported before the work, not after it.
    with truth.open("wb") if truth is not None else nullcontext() as file:
        with _bar(nodes, shown=session.out.is_table and sys.stderr.isatty()) as progress:
            made = write(settings, out, progress=progress)
        if file is not None:
            file.write(made.to_json())
    if session.out.is_table:
        sums = f"{made.totals['events']:,} event{'' if made.totals['events'] == 1 else 's'}"
        session.out.line(
            f"{out}: the ledgers of {count(nodes, 'node')}, {sums}, {count(len(made.findings), 'finding')}"
        )
    else:
        session.out.value({"lake": out, "totals": made.totals, "findings": len(made.findings)})


@contextmanager
def _bar(total: int, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr; yields the function that moves it."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, disable=not shown) as bar:
        task = bar.add_task("nodes", total=total)
        yield lambda done: bar.update(task, completed=done)


def _micros(option: str, text: str, *, least: int | None = None) -> int:
    """A duration as microseconds, no shorter than `least`. Raises BadParameter."""
    from eventd.text.duration import BadDuration, parse_duration

    try:
        found = parse_duration(text)
    except BadDuration as error:
        raise typer.BadParameter(f"{option}: {error}") from None
    if least is not None and found < least:
        raise typer.BadParameter(f"{option} must be at least {least // SECOND}s, and is {text}")
    return found
