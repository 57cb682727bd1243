"""routerctl audit stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventd.cli.audit.options import (
    AuditOptions,
    RecheckOption,
    check_time,
    checked_by,
    request_of,
    with_audit_options,
)
from eventd.cli.gateway.options import SHOW
from eventd.cli.gateway.session import Session, offline
from eventd.cli.program.stopping import StopFlag
from eventd.cli.program.values import Duration
from eventd.cli.terminal.output import Column, moment, note, text
from eventd.runtime.clock import SECOND

if TYPE_CHECKING:
    from eventd.audit.engine.stream import StreamBatch
    from eventd.errors import LakeUnavailable

EVERY = Duration.read("30s")
WATERMARK = Duration.read("1h")

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


@offline(*SHOW)
@with_audit_options
def stream(
    session: Session,
    options: AuditOptions,
    out: Annotated[
        str, typer.Option("--out", metavar="DIR", help="Folder or address for the findings; created if it is missing.")
    ],
    every: EveryOption = EVERY,
    watermark: WatermarkOption = WATERMARK,
    since: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Only events from TIME on, rounded down to a full hour: RFC 3339, or a moving window such as 48h.",
            callback=checked_by(check_time),
        ),
    ] = "",
    checkpoint: Annotated[
        str,
        typer.Option("--checkpoint", metavar="DIR", help="Where Spark keeps its progress (default: in --out)."),
    ] = "",
    recheck: RecheckOption = 0.1,
    once: Annotated[bool, typer.Option("--once", help="Audit the present data, then exit.")] = False,
) -> None:
    """Keep the audit of a lake up to date as nodes ship data, until Ctrl-C or a condition of --fail-on."""
    from eventd.audit.spark.extra import require

    require()
    from eventd.api.framework.moments import read_moment
    from eventd.audit.engine.stream import StreamRequest, stream_on
    from eventd.runtime.clock import SystemClock

    clock = SystemClock()
    continuous = StreamRequest(
        request_of(options, out, recheck=recheck),
        since=lambda: read_moment("--from", since, clock.now()),
        every=every,
        watermark=watermark,
        checkpoint=checkpoint,
        once=once,
    )
    with StopFlag() as stopping:
        stream_on(continuous, _Listener(session, stopping))


def _number(name: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: f"{row[name]:,}"


_BATCH: tuple[Column, ...] = (
    Column("TIME", moment("time")),
    Column("VERDICT", text("verdict")),
    Column("DELIVERED", lambda row: f"{row['delivered']:,} of {row['expected']:,}"),
    *(Column(name.upper(), _number(name)) for name in ("claimed", "missing", "pending", "findings", "final")),
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
        counted = ("delivered", "claimed", "expected", "missing", "pending")
        totals = {name: getattr(report.totals, name) for name in counted}
        row = {"time": report.made_at, "verdict": report.verdict, **totals, "findings": report.totals.findings}
        self._show([{**row, "final": batch.final, "seconds": batch.seconds, "failed": list(report.failed)}])

    def trouble(self, error: LakeUnavailable, seconds: float) -> None:
        note(f"{error}; trying again in {seconds:.0f} s")
