"""routerctl topology check: checks the existing routers, as if others were added or removed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventd.cli.gateway.session import Session, connected
from eventd.cli.terminal.documents import read_documents
from eventd.cli.terminal.output import Column, note, text
from eventd.errors import CheckFailed, Invalid, NotFound
from eventd.text.invisible import printable
from eventd.text.plural import counted

if TYPE_CHECKING:
    from eventd.client import Client, RouterState
    from eventd.egress.routers.graph import Graph
    from eventd.egress.routers.projection import Router
    from eventd.egress.routers.topology import GraphProblem

FINDINGS = (
    Column("PROBLEM", text("problem")),
    Column("AT", text("at")),
    Column("MEANING", text("meaning")),
)
FORECAST = (
    Column("WRITTEN_TO", text("topic")),
    Column("DEST", text("dest")),
    Column("COPIES", lambda row: ("more than " if row["endless"] else "") + str(row["copies"])),
    Column("DUPLICATES", lambda row: str(row["duplicates"])),
)


@connected
async def check(
    session: Session,
    filename: Annotated[
        list[str] | None,
        typer.Option(
            "--filename",
            "-f",
            metavar="FILE",
            help="Check as if the routers in this file (YAML or JSON; -: standard input) were added; repeatable.",
        ),
    ] = None,
    add: Annotated[
        list[str] | None,
        typer.Option(
            "--add",
            metavar="ROUTER",
            help="Check as if this router were added: 'a->b' or 'NAME=a->b', with ,fan_in ,allow_cycle ,exactly_once;"
            " repeatable.",
        ),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option("--remove", metavar="ROUTER", help="Check as if this router were removed; repeatable."),
    ] = None,
) -> None:
    """Show the routing graph and check it; exits with status 4 if a check fails. Changes nothing."""
    from eventd.egress.routers.graph import Graph
    from eventd.egress.routers.topology import advise, find_loops, join, predict

    added = [*_from_files(filename or []), *map(_from_flag, add or [])]
    client = await session.client()
    present = {router.name: router for router in await _present(client)}
    for name in remove or []:
        if present.pop(name, None) is None:
            raise NotFound(f"router {name} does not exist", hint="`routerctl router list` shows the routers")
    findings = list(join(present, added))
    graph = Graph(present.values())
    forecast = list(predict(graph))
    findings += find_loops(forecast)
    _show(session, graph, findings, forecast)
    if findings:
        raise CheckFailed(f"{counted(len(findings), 'problem')} found", hint=advise(findings))


async def _present(client: Client) -> list[Router]:
    return [_router(row) async for row in client.routers.list()]


def _router(state: RouterState) -> Router:
    from eventd.egress.routers.drafts import make_router

    return make_router(
        state.router,
        state.source,
        state.dest,
        {
            "allow_cycle": state.allow_cycle,
            "fan_in": state.fan_in,
            "guarantee": state.guarantee,
            "filter": state.filter,
        },
    )


def _from_files(filenames: Sequence[str]) -> Iterator[Router]:
    for filename in filenames:
        for document in read_documents(filename):
            for entry in document if isinstance(document, list) else [document]:
                yield _from_entry(entry, filename)


def _from_entry(entry: Any, filename: str) -> Router:
    """Return the router that an entry of a file describes in the API's form. Raises `Invalid`."""
    from eventd.egress.routers.drafts import ends_of, make_router

    if not isinstance(entry, dict):
        raise Invalid(
            f"{filename}: each router is a mapping", hint="write `router: a->b`, or the fields router, source and dest"
        )
    given = dict(entry)
    name, source, dest = (str(given.pop(key, "") or "") for key in ("router", "source", "dest"))
    name = name or f"{source}->{dest}"
    source, dest = ends_of(name, source, dest)
    for shown in ("forwarded_total", "refused_total", "refused", "lag", "state", "reason", "managed"):
        given.pop(shown, None)  # members that only `router list` and `router get` show
    known = ("preserve_node", "preserve_tag", "create_dest", "filter", "allow_cycle", "guarantee", "fan_in", "map")
    for key in given:
        if key not in known:
            raise Invalid(f"{filename}: router {name}: a router has no field {str(key)[:60]!r}")
    given.pop("create_dest", None)
    return make_router(name, source, dest, given)


def _from_flag(word: str) -> Router:
    """Return the router that a word of `--add` describes. Raises `Invalid`."""
    from eventd.egress.routers.drafts import FLAGS, read_draft

    if unknown := [flag for flag in map(str.strip, word.split(",")[1:]) if flag not in FLAGS]:
        raise Invalid(f"--add: {unknown[0][:60]!r} is not one of {', '.join(FLAGS)}")
    return read_draft(word)


def _show(
    session: Session, graph: Graph, findings: Sequence[GraphProblem], forecast: Sequence[Mapping[str, Any]]
) -> None:
    out = session.out
    rows = [finding._asdict() for finding in findings]
    if out.format == "name":
        for finding in findings:
            out.line(f"{finding.problem}/{finding.at}")
    elif not out.is_table:
        out.value({"routers": sorted(graph.routers), "problems": rows, "foretold": list(forecast)})
    else:
        for line in graph.draw().splitlines():
            out.line(printable(line))
        if forecast and out.format == "wide":
            out.line()
            out.table(FORECAST, forecast)
        if rows:
            out.line()
            out.table(FINDINGS, rows)
        if not graph.routers:
            note("no routers")
