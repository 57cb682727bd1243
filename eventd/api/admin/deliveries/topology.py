"""The routing graph: its routers with their states, and a check, also as if routers were added or removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from pydantic import Field

from eventd.api.framework.operations import Params, Services
from eventd.egress.routers.drafts import read_draft
from eventd.egress.routers.graph import Graph, router_of
from eventd.egress.routers.projection import Router
from eventd.egress.routers.topology import GraphProblem, advise, find_loops, join, predict
from eventd.errors import NotFound
from eventd.log.topics.router_rows import RouterFilter, RouterRow, list_routers
from eventd.store.engine.database import Connection

MOST_ROUTERS: Final = 2000
"""Maximum number of routers that are looked at, the first by name."""
MOST_ROWS: Final = 500
"""Maximum number of routers, of problems and of predictions in an answer."""
LONGEST_SECONDS: Final = 0.2
"""How long a prediction computes."""


class ShowTopology(Params):
    """The routers to add and to remove before the check; nothing is changed."""

    narrows = True
    most_changes: ClassVar[int] = 20

    add: list[str] = Field(
        default=[],
        max_length=most_changes,
        description="Check as if this router were added: a->b or NAME=a->b, with ,fan_in ,allow_cycle ,exactly_once.",
    )
    remove: list[str] = Field(
        default=[], max_length=most_changes, description="Check as if the router of this name were removed."
    )
    contains: str = Field(
        default="",
        description="Show only routers with this text in their name, source or destination; all are checked.",
    )


async def show(services: Services, params: ShowTopology) -> dict[str, Any]:
    """Return the routers that the caller may access, the problems of their graph, and the copies of one record."""
    added = [read_draft(word) for word in params.add]
    choice = params.remove, params.contains.casefold()
    return await services.database.read(_check, added, *choice, services.sees, services.clock.monotonic)


def _check(
    conn: Connection,
    added: Sequence[Router],
    removed: Sequence[str],
    text: str,
    sees: Callable[[str], bool],
    clock: Callable[[], float],
) -> dict[str, Any]:
    def may_see(line: RouterRow) -> bool:
        return all(map(sees, (line.name, line.source, line.dest)))

    rows = list_routers(conn, RouterFilter("", "", "", may_see), after="", limit=MOST_ROUTERS)
    lines = {line.name: line for line in rows[:MOST_ROUTERS]}
    present = {name: router_of(line) for name, line in lines.items()}
    for name in removed:
        if present.pop(name, None) is None:
            raise NotFound(f"router {name} does not exist", hint="`routerctl router list` shows the routers")
    problems = [*join(present, added)]
    graph, until = Graph(present.values()), clock() + LONGEST_SECONDS
    timed_out = False

    def is_over() -> bool:
        nonlocal timed_out
        timed_out = clock() > until
        return timed_out

    forecast = [*predict(graph, is_over)]
    problems += find_loops(forecast)
    if text:  # also those beyond the ones that are checked
        chosen = RouterFilter(sees=lambda line: line.name not in removed and may_see(line) and _contains(line, text))
        lines = {line.name: line for line in list_routers(conn, chosen, after="", limit=MOST_ROUTERS)}
        routers = {name: router_of(line) for name, line in lines.items()}
        routers |= {router.name: router for router in added if _contains(router, text)}
    else:
        routers = dict(graph.routers)
    shown = [_show(router, lines.get(name)) for name, router in sorted(routers.items())]
    shown.sort(key=lambda one: not one["reason"])  # those with a problem are never left out
    return {
        "routers": sorted(shown[:MOST_ROWS], key=lambda one: str(one["router"])),
        "problems": [_problem(one) for one in problems[:MOST_ROWS]],
        "advice": advise(problems) if problems else "",
        "predicted": [_predicted(row) for row in forecast[:MOST_ROWS]],
        "complete": not timed_out and len(rows) <= MOST_ROUTERS and len(forecast) <= MOST_ROWS >= len(problems),
        "leftOut": max(0, len(shown) - MOST_ROWS),
    }


def _contains(one: Router | RouterRow, text: str) -> bool:
    return text in f"{one.name} {one.source} {one.dest}".casefold()


def _show(router: Router, line: RouterRow | None) -> dict[str, Any]:
    """Return a router; `line` is None for one that does not exist yet."""
    options = router.options
    return {
        "router": router.name,
        "source": router.source,
        "dest": router.dest,
        "exists": line is not None,
        "state": line.state if line else "",
        "reason": line.reason if line else "",
        "forwarded": line.forwarded if line else 0,
        "refused": line.refused if line else 0,
        "filter": None if options.filter is None else [*options.filter],
        "guarantee": options.guarantee.value,
        "fanIn": options.fan_in,
        "allowCycle": options.allow_cycle,
    }


def _problem(found: GraphProblem) -> dict[str, str]:
    return {"problem": found.problem, "at": found.at, "meaning": found.meaning}


def _predicted(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("topic", "dest", "copies", "duplicates", "endless")}
