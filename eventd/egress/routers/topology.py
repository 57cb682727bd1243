"""Checks of the routing graph: what a node would refuse, and where records return or are duplicated. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from eventd.egress.routers.graph import Graph
from eventd.egress.routers.projection import Router
from eventd.text.plural import counted


class GraphProblem(NamedTuple):
    """A problem of the routing graph: its kind, the router or the two topics, and the consequence."""

    problem: str
    at: str
    meaning: str


def join(present: dict[str, Router], added: Sequence[Router]) -> Iterator[GraphProblem]:
    """Add each new router to `present`, except those that a node would refuse: yield the problems of these."""
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


def predict(graph: Graph, is_over: Callable[[], bool] = lambda: False) -> Iterator[dict[str, Any]]:
    """Yield for each source topic and each topic it reaches how many copies of one record arrive there.

    Ends before the next source topic as soon as `is_over` returns true.
    """
    for topic in sorted({router.source for router in graph.routers.values()}):
        if is_over():
            return
        for dest, copies in graph.predict(topic).items():
            yield {"topic": topic, "dest": dest, **copies._asdict()}


def find_loops(forecast: Iterable[Mapping[str, Any]]) -> Iterator[GraphProblem]:
    """Yield where a record returns to its topic, and where it is copied more than once."""
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


def advise(findings: Iterable[GraphProblem]) -> str:
    """Return what to do about these problems."""
    problems = {finding.problem for finding in findings}
    if problems & {"cycle", "fan-in", "loop", "duplicates"}:
        return "give each of these routers fan_in: they may then close cycles, as a topic accepts each record only once"
    return "use another name, or delete the router of that name first"
