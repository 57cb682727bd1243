"""routerctl audit sql."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from eventd.cli.audit.options import MEMORY, MasterOption, MemoryOption
from eventd.cli.gateway.lake_choice import LakeOption, lake_address
from eventd.cli.gateway.session import Session, offline
from eventd.cli.terminal.output import RecordsFormat, note
from eventd.errors import Invalid
from eventd.text.size import MIB

_FormatOption = Annotated[
    RecordsFormat, typer.Option("-o", "--output", rich_help_panel="Output", help="Output format.")
]

_MOST_ROWS: Final = 2**31 - 2
"""Maximum of `--limit`: Spark counts rows with 32 bits, and one row more than the limit is read."""


@offline("no_headers", output=(_FormatOption, "table"))
def sql(
    session: Session,
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="Query in Spark's SQL; - reads it from standard input.")
    ],
    lake: LakeOption = "",
    master: MasterOption = "",
    memory: MemoryOption = MEMORY,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", metavar="N", min=1, max=_MOST_ROWS, help="Maximum number of rows; a larger result is an error."
        ),
    ] = 100_000,
) -> None:
    """Query the ledgers of all nodes in a lake with SQL."""
    from eventd.audit.spark.extra import require

    require()
    from eventd.audit.views.query import query_lake

    text = (sys.stdin.read() if query == "-" else query).strip().rstrip(";")
    if not text:
        raise Invalid("the query is empty", hint='write for example "SELECT node, count(*) FROM events GROUP BY node"')
    show_progress = session.out.is_table and sys.stderr.isatty()
    result = query_lake(
        lake_address(lake), text, limit=limit, master=master, memory=f"{memory // MIB}m", progress=show_progress
    )
    if session.out.is_document and (shared := _shared_name(result.names)) is not None:
        raise Invalid(f"two columns of the result are called {shared!r}", hint="name them apart with AS")
    session.out.records(result.names, result.rows)
    if not result.names:
        note("the statement has no result")
    if troubles := result.views.troubles:
        note(
            f"the views lack rows: {troubles[0].name}: {troubles[0].message}; problems in all: {len(troubles)}"
            " (`routerctl lake check` lists them)"
        )


def _shared_name(names: Sequence[str]) -> str | None:
    """Return the first name that two columns share; None if all names are distinct."""
    return next((name for at, name in enumerate(names) if name in names[:at]), None)
