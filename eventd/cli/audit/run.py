"""routerctl audit run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from eventd.cli.audit.options import (
    AuditOptions,
    RecheckOption,
    check_time,
    checked_by,
    request_of,
    with_audit_options,
    wrong_use,
)
from eventd.cli.gateway.session import Session, offline
from eventd.cli.terminal.output import note
from eventd.errors import CheckFailed, Invalid
from eventd.lake.address import shown

if TYPE_CHECKING:
    from eventd.audit.report.report import Report


@offline("output")
@with_audit_options
def run(
    session: Session,
    options: AuditOptions,
    out: Annotated[
        str, typer.Option("--out", metavar="DIR", help="Folder or address for the report; created if it is missing.")
    ],
    since: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Only events from TIME on, rounded down to a full hour: RFC 3339, or an age such as 36h.",
            callback=checked_by(check_time),
        ),
    ] = "",
    until: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="TIME",
            help="Only events before TIME, rounded up to a full hour.",
            callback=checked_by(check_time),
        ),
    ] = "",
    recheck: RecheckOption = 5.0,
    full: Annotated[
        bool,
        typer.Option("--full", help="Read all data again, and accept it as it is, unless --from or --to is given."),
    ] = False,
    table_format: Annotated[
        Literal["parquet", "delta"],
        typer.Option("--table-format", help="Write the tables as Parquet, or also as Delta tables."),
    ] = "parquet",
) -> None:
    """Audit the delivery ledgers of all nodes in a lake; write findings to report.json, report.html and tables."""
    from eventd.api.framework.moments import read_span
    from eventd.audit.spark.extra import require
    from eventd.runtime.clock import SystemClock

    try:
        first, last = read_span(since, until, SystemClock().now(), names=("--from", "--to"))
    except Invalid as error:
        raise wrong_use(error) from None
    require()
    from eventd.audit.assembly.delta_tables import TableFormat
    from eventd.audit.engine.run import run_on

    own = {"since": first, "until": last, "recheck": recheck, "full": full}
    request = request_of(options, out, **own, table_format=TableFormat(table_format))
    report = run_on(request, progress=session.out.is_table and sys.stderr.isatty())
    _show(session, report, out)
    if report.failed:
        raise CheckFailed(f"the audit fails on {', '.join(report.failed)}", hint=f"see report.html in {shown(out)}")


def _show(session: Session, report: Report, out: str) -> None:
    """Print the verdict and the findings; with a table, also name the files in `out`."""
    if session.out.is_table:
        from rich.console import Console

        from eventd.audit.report.summary import summary

        console = Console(highlight=False)
        with console.capture() as captured:
            console.print(summary(report))
        session.out.line(captured.get().rstrip("\n"))  # `line` escapes what the stream cannot encode
        session.out.flush()
        signature = ", report.sig" if report.settings.signing_key else ""
        note(f"written to {shown(out)}: report.html, report.json, tables{signature}")
        return
    import msgspec

    document = msgspec.to_builtins(report)
    shown_fields = ("verdict", "headline", "failed", "totals", "baseline", "findings")
    session.out.value({name: document[name] for name in shown_fields})
