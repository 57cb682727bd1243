"""routerctl topology check: checks the existing routers, as if others were added or removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from eventd.cli.gateway.session import Session, connected
from eventd.cli.terminal.documents import read_documents
from eventd.cli.terminal.output import Column, note, text
from eventd.cli.topics.routers import ends_of
from eventd.errors import CheckFailed, Invalid, NotFound
from eventd.text.invisible import printable
from eventd.text.plural import counted

if TYPE_CHECKING:
    from eventd.client import Client, RouterState
    from eventd.egress.routers.graph import Graph
    from eventd.egress.routers.projection import Router

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
_FLAGS = ("allow_cycle", "fan_in", "exactly_once")


class GraphProblem(NamedTuple):
    """A problem of the routing graph: its kind, the router or the two topics, and the consequence."""

    problem: str
    at: str
    meaning: str


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

    added = [*_from_files(filename or []), *map(_from_flag, add or [])]
    client = await session.client()
    present = {router.name: router for router in await _present(client)}
    for name in remove or []:
        if present.pop(name, None) is None:
            raise NotFound(f"router {name} does not exist", hint="`routerctl router list` shows the routers")
    findings = list(_join(present, added))
    graph = Graph(present.values())
    forecast = list(_predict(graph))
    findings += _loops(forecast)
    _show(session, graph, findings, forecast)
    if findings:
        raise CheckFailed(f"{counted(len(findings), 'problem')} found", hint=_advice(findings))


async def _present(client: Client) -> list[Router]:
    return [_router(row) async for row in client.routers.list()]


def _router(state: RouterState) -> Router:
    return _make(
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


def _make(name: str, source: str, dest: str, given: Mapping[str, Any]) -> Router:
    import msgspec

    from eventd.egress.routers.projection import Options, Router
    from eventd.log.topics.predicate import parse
    from eventd.log.topics.topics import require_name

    for topic in (source, dest):
        require_name(topic)
    options = {key: value for key, value in given.items() if value is not None}
    try:
        if "filter" in options:
            options["filter"] = parse(options["filter"]).shown()
        return Router(name, source, dest, msgspec.convert(options, Options))
    except msgspec.ValidationError as error:
        raise Invalid(f"router {name}: {error}") from None


def _from_files(filenames: Sequence[str]) -> Iterator[Router]:
    for filename in filenames:
        for document in read_documents(filename):
            for entry in document if isinstance(document, list) else [document]:
                yield _from_entry(entry, filename)


def _from_entry(entry: Any, filename: str) -> Router:
    """Return the router that an entry of a file describes in the API's form. Raises `Invalid`."""
    if not isinstance(entry, dict):
        raise Invalid(
            f"{filename}: each router is a mapping", hint="write `router: a->b`, or the fields router, source and dest"
        )
    given = dict(entry)
    name, source, dest = (str(given.pop(key, "") or "") for key in ("router", "source", "dest"))
    name = name or f"{source}->{dest}"
    source, dest = ends_of(name, source, dest)
    for shown in ("forwarded_total", "refused_total", "refused", "lag", "state", "reason"):
        given.pop(shown, None)  # members that only `router list` and `router get` show
    known = ("preserve_node", "preserve_tag", "create_dest", "filter", "allow_cycle", "guarantee", "fan_in", "map")
    for key in given:
        if key not in known:
            raise Invalid(f"{filename}: router {name}: a router has no field {str(key)[:60]!r}")
    given.pop("create_dest", None)
    return _make(name, source, dest, given)


def _from_flag(word: str) -> Router:
    """Return the router that `a->b` or `NAME=a->b` describes, with flags after commas, as in `a->b,fan_in`."""
    ends, *flags = (part.strip() for part in word.split(","))
    name, equals, named = ends.partition("=")
    if unknown := [flag for flag in flags if flag not in _FLAGS]:
        raise Invalid(f"--add: {unknown[0][:60]!r} is not one of {', '.join(_FLAGS)}")
    source, dest = ends_of(named if equals else name)
    given: dict[str, Any] = {flag: True for flag in flags if flag != "exactly_once"}
    if "exactly_once" in flags:
        given["guarantee"] = "exactly_once"
    return _make(name, source, dest, given)


# --- findings -------------------------------------------------------------------------------------------------------


def _join(present: dict[str, Router], added: Sequence[Router]) -> Iterator[GraphProblem]:
    """Add each new router to `present`, except those that a node would refuse: yield the problems of these."""
    from eventd.egress.routers.graph import Graph

    for router in added:
        refused = list(_clashes(present.get(router.name), Graph({**present, router.name: router}.values()), router))
        yield from refused
        if not refused:
            present[router.name] = router


def _clashes(before: Router | None, graph: Graph, router: Router) -> Iterator[GraphProblem]:
    if before is not None and (before.source, before.dest) != (router.source, router.dest):
        meaning = f"the name belongs to a router from {before.source} to {before.dest}: the new router would be refused"
        yield GraphProblem("re-pointed", router.name, meaning)
    elif router.source == router.dest:
        yield GraphProblem("cycle", router.name, "source and destination are the same: the new router would be refused")
    else:
        if cycle := graph.cycle_closed_by(router):
            yield GraphProblem("cycle", router.name, f"{' -> '.join(cycle)}: the new router would be refused")
        if other := graph.meets(router):
            meaning = f"{other.name} also copies from {other.source} to {router.dest}: the new router would be refused"
            yield GraphProblem("fan-in", router.name, meaning)


def _predict(graph: Graph) -> Iterator[dict[str, Any]]:
    """Yield for each source topic and each topic it reaches how many copies of one record arrive there."""
    for topic in sorted({router.source for router in graph.routers.values()}):
        for dest, copies in graph.predict(topic).items():
            yield {"topic": topic, "dest": dest, **copies._asdict()}


def _loops(forecast: Iterable[Mapping[str, Any]]) -> Iterator[GraphProblem]:
    for row in forecast:
        at = f"{row['topic']} => {row['dest']}"
        if row["topic"] == row["dest"] and row["copies"]:
            yield GraphProblem("loop", at, f"a record written to the topic returns {_times(row)}")
        elif row["duplicates"]:
            yield GraphProblem("duplicates", at, f"one record is copied there {_times(row)}")


def _times(row: Mapping[str, Any]) -> str:
    if row["endless"]:
        return f"more than {counted(row['copies'], 'time')}"
    return "once" if row["copies"] == 1 else f"{row['copies']} times"


def _advice(findings: Sequence[GraphProblem]) -> str:
    problems = {finding.problem for finding in findings}
    if problems & {"cycle", "fan-in", "loop", "duplicates"}:
        return "give each of these routers fan_in: they may then close cycles, as a topic accepts each record only once"
    return "use another name, or delete the router of that name first"


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
