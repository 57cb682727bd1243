"""routerctl audit sql."""

from __future__ import annotations

import sys
from typing import Annotated

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


@offline("no_headers", output=(_FormatOption, "table"))
def sql(
    session: Session,
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="Query in Spark's SQL; - reads it from standard input.")
    ],
    lake: LakeOption = "",
    master: MasterOption = "",
    memory: MemoryOption = MEMORY,
) -> None:
    """Query the ledgers of all nodes in a lake with SQL."""
    from eventd.audit.spark.extra import require

    require()
    from eventd.audit.views.query import query_lake

    text = (sys.stdin.read() if query == "-" else query).strip().rstrip(";")
    if not text:
        raise Invalid("the query is empty", hint='write for example "SELECT node, count(*) FROM events GROUP BY node"')
    show_progress = session.out.is_table and sys.stderr.isatty()
    result = query_lake(lake_address(lake), text, master=master, memory=f"{memory // MIB}m", progress=show_progress)
    if session.out.format in ("json", "yaml") and len({*result.names}) < len(result.names):
        raise Invalid("two columns of the result have the same name", hint="name them apart with AS")
    session.out.records(result.names, result.rows)
    if troubles := result.views.troubles:
        note(
            f"the views lack rows: {troubles[0].name}: {troubles[0].message}; problems in all: {len(troubles)}"
            " (`routerctl lake check` lists them)"
        )
