"""Options that several commands of the audit have."""

from __future__ import annotations

from typing import Annotated

import typer

from eventd.cli.program.values import Duration, Size
from eventd.runtime.clock import SECOND
from eventd.text.size import MIB

SILENCE = Duration.read("15m")
MEMORY = Size.read("2GiB")

FailOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on",
        metavar="CONDITION",
        help="Exit with status 4 on this: a kind of finding, unproven, stale, or completeness<99.99; repeatable.",
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
