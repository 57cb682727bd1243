"""routerctl actions: who did what."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from eventd.cli.gateway.session import Session, connected, only_calls
from eventd.cli.terminal.output import Column, moment, note, text


def _arguments(row: Mapping[str, Any]) -> str:
    return json.dumps(row["arguments"], ensure_ascii=False) if row["arguments"] else "-"


def _result(row: Mapping[str, Any]) -> str:
    return row["result"] if row["count"] == 1 else f"{row['result']} ×{row['count']}"


ACTIONS = (
    Column("TIME", moment("at")),
    Column("WHO", text("who")),
    Column("OPERATION", text("operation")),
    Column("OBJECT", text("object")),
    Column("RESULT", _result),
    Column("ARGUMENTS", _arguments),
    Column("ADDRESS", text("address"), wide=True),
    Column("KIND", text("kind"), wide=True),
    Column("REQUEST", text("requestId"), wide=True),
)


@connected
@only_calls
async def actions(
    session: Session,
    who: Annotated[str, typer.Option("--who", metavar="NAME", help="Only of this caller, by its whole name.")] = "",
    operation: Annotated[
        str, typer.Option("--operation", metavar="NAME", help="Only this operation, such as keys.create.")
    ] = "",
    object_prefix: Annotated[
        str, typer.Option("--object", metavar="PREFIX", help="Only objects that begin with PREFIX, such as peer core/.")
    ] = "",
    result: Annotated[
        str, typer.Option("--result", metavar="CODE", help="Only with this result: ok, started or an error's code.")
    ] = "",
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="Only since TIME: RFC 3339, or an age such as 15m.")
    ] = "",
    until: Annotated[
        str, typer.Option("--until", metavar="TIME", help="Only before TIME: RFC 3339, or an age such as 15m.")
    ] = "",
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=200, help="Maximum number of actions; the newest are shown.")
    ] = 50,
    after: Annotated[str, typer.Option("--after", metavar="TOKEN", help="Show the older actions after TOKEN.")] = "",
) -> None:
    """Show the record of actions: who did what, to what, with which result; the newest first."""
    filters = {"who": who, "operation": operation, "object": object_prefix, "result": result}
    answer = await session.call("actions.list", **filters, since=since, until=until, limit=limit, after=after)
    session.out.rows(ACTIONS, answer["actions"], name=lambda row: str(row["number"]))
    if answer["searchedTo"] is not None:
        note(f"note: searched back to {answer['searchedTo']}: continue with --after {answer['next']}")
    elif answer["next"] is not None:
        note(f"note: there are older actions: continue with --after {answer['next']}")
