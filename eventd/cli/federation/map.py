"""routerctl federation map: the nodes and links of a group that a node knows of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from eventd.cli.gateway.selecting import GroupOption, one_group
from eventd.cli.gateway.session import Session, connected, only_calls
from eventd.cli.terminal.output import Column, note, show_span, span, text

ANSWERS = {
    "self": "this node",
    "answered": "reported",
    "relayed": "reported by a peer",
    "pending": "not asked yet",
    "older": "unknown (older program)",
    "not-shared": "not shared",
    "unreachable": "unknown (no answer)",
    "invalid": "unknown (invalid answer)",
    "unasked": "not asked",
}
"""The words of the table for how much is known of a node's links."""
_SILENT = ("unreachable", "invalid")
"""The answers of nodes whose last report may be out of date."""

Row = Mapping[str, Any]


def _at(end: str, name: str, show: Callable[[Any], str] = str) -> Callable[[Row], str]:
    """Return a function that shows a value reported by one end of a link; `-` if there is none."""

    def shown(row: Row) -> str:
        value = None if row[end] is None else row[end][name]
        return "-" if value is None or value == "" else show(value)

    return shown


def _state(row: Row) -> str:
    """Return the state that the sender reported, with its age if the sender does not answer now."""
    state = _at("sender", "state")(row)
    return f"{state} ({show_span(row['sender']['ageSeconds'])} ago)" if row.get("past") and row["sender"] else state


def _rate(end: str) -> Callable[[Row], str]:
    """Return a function that shows a rate; `-` unless the link runs: rates are means of a minute, and outlast it."""
    shown = _at(end, "eventsPerSecond")

    def current(row: Row) -> str:
        runs = row["sender"] is None or row["sender"]["state"] == "running"
        return shown(row) if runs and not row.get("past") else "-"

    return current


LINKS = (
    Column("FROM", text("from")),
    Column("TO", text("to")),
    Column("STATE", _state),
    Column("WAITING", _at("sender", "lagEvents")),
    Column("LAG", _at("sender", "lagSeconds", show_span)),
    Column("SENT/S", _rate("sender")),
    Column("RECEIVED/S", _rate("receiver")),
    Column("LAST_RECEIVED", _at("receiver", "silentSeconds", show_span)),
    Column("FINDING", lambda row: "; ".join(row["findings"]) or "-"),
    Column("SENDER_AGE", _at("sender", "ageSeconds", show_span), wide=True),
    Column("SENDER_VIA", _at("sender", "via"), wide=True),
    Column("RECEIVER_AGE", _at("receiver", "ageSeconds", show_span), wide=True),
    Column("RECEIVER_VIA", _at("receiver", "via"), wide=True),
)
NODES = (
    Column("NODE", text("node")),
    Column("LINKS", lambda row: ANSWERS.get(row["answer"], row["answer"])),
    Column("AGE", span("ageSeconds")),
    Column("VIA", text("via")),
    Column("CONSOLE", text("console")),
)


@connected
@only_calls
async def show_map(
    session: Session,
    group: GroupOption = "",
    wait: Annotated[
        int,
        typer.Option("--wait", metavar="SECONDS", min=0, max=5, help="Longest wait for the first answers of peers."),
    ] = 3,
) -> None:
    """Show the nodes and links of a group, as both ends of each link report it.

    The node asks its peers for their links, and passes on what these have learned of theirs a little later: so a map
    reaches two hops. A finding is a contradiction between the two ends of a link.
    """
    answer = await session.call("map.show", group=await one_group(session, group), wait=wait)
    if session.out.is_document:
        session.out.value(answer)
        return
    silent = {node["node"] for node in answer["nodes"] if node["answer"] in _SILENT}
    links = [link | {"past": link["from"] in silent} for link in answer["links"]]
    session.out.rows(LINKS, links, name=lambda row: f"{row['from']}/{row['to']}")
    if session.out.is_table:
        session.out.line()
        session.out.table(NODES, answer["nodes"])
        if answer["leftOut"]:
            note(f"note: {answer['leftOut']} more links are not shown")
        if not session.serving():
            note("note: no node serves this database now, so no peer was asked")
