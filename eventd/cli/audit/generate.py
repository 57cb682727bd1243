"""routerctl audit generate."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from eventd.cli.gateway.session import Session, offline
from eventd.cli.program.values import Duration
from eventd.cli.terminal.bar import Bar
from eventd.lake.address import shown
from eventd.text.plural import counted

SPAN = Duration.read("24h")
NO_SKEW = Duration(0)


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
        {"lake": shown(out), "totals": made.totals, "findings": len(made.findings)},
        f"{shown(out)}: the ledgers of {counted(nodes, 'node')}, {counted(made.totals['events'], 'event')}, "
        f"{counted(len(made.findings), 'expected finding')}",
        name=lambda row: str(row["lake"]),
    )
