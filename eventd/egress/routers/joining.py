"""Whether a router may join the others: where it would meet them, and which cycle it would close. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from eventd.egress.routers.graph import Graph
from eventd.egress.routers.projection import Router, decode_options
from eventd.log.topics.errors import Incompatible, RouterCycle
from eventd.log.topics.router_rows import RouterRow


def router_of(line: RouterRow) -> Router:
    """A router as its line says it is."""
    return Router(line.name, line.source, line.dest, decode_options(line.options))


def graph_of(lines: Sequence[RouterRow]) -> Graph:
    """The graph of some routers."""
    return Graph(map(router_of, lines))


class Joining:
    """The rules for one new router, or for one that gets other options."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def require_alone(self, into: Sequence[RouterRow]) -> None:
        """Raise `Incompatible` where it would write to a topic beside routers from other sources, and must not."""
        other = graph_of(into).meets(self._router)
        if other is None:
            return
        raise Incompatible(
            f"the topic {other.dest!r} already gets the records of {other.source!r} by the router {other.name!r}",
            hint="records of several sources meet only where every router into the topic has fan_in",
            detail={"topic": other.dest, "reason": "router_dest_fan_in"},
        )

    def require_no_cycle(self, beyond: Sequence[RouterRow]) -> None:
        """Raise `RouterCycle` where it would close a cycle that it must not."""
        cycle = graph_of(beyond).cycle_closed_by(self._router)
        if cycle is not None:
            raise RouterCycle(cycle)
