"""The graph that routers form between topics: cycles, shared destinations, the copies of one record. Pure.

Routers that keep identities (`fan_in`: a copy has the id of its original) may share a destination and may close cycles:
the topic drops duplicates. Any other copy is a new record, so a cycle with such a copy ends only at the limit of hops,
and needs `allow_cycle`.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from eventd.egress.routers.projection import Router, decode_options
from eventd.log.topics.errors import Incompatible, RouterCycle
from eventd.log.topics.router_rows import RouterRow
from eventd.log.topics.topics import GROUP

MOST_COPIES = 10_000
"""Maximum number of copies of one record that a forecast counts; ten pairs of parallel routers in a row already make a
thousand."""


class CopyForecast(NamedTuple):
    """How many copies of one record a topic gets, and how many of these are duplicates: all but the first, or all if
    the topic has the original.

    `endless`: the forecast stopped counting at `MOST_COPIES`, so that the numbers are too low.
    """

    copies: int
    duplicates: int
    endless: bool = False


class Graph:
    """Routers as edges between topics, by name."""

    def __init__(self, routers: Iterable[Router]) -> None:
        self.routers = {router.name: router for router in routers}
        self._out: defaultdict[str, list[Router]] = defaultdict(list)
        self._into: defaultdict[str, list[Router]] = defaultdict(list)
        for name in sorted(self.routers):
            router = self.routers[name]
            self._out[router.source].append(router)
            self._into[router.dest].append(router)
        self._parts: dict[str, int] | None = None

    def out(self, topic: str) -> Sequence[Router]:
        """Return the routers that read a topic, sorted by name."""
        return self._out.get(topic, ())

    def into(self, topic: str) -> Sequence[Router]:
        """Return the routers that write to a topic, sorted by name."""
        return self._into.get(topic, ())

    def meets(self, router: Router) -> Router | None:
        """Return a router from another source with which this one must not share its destination.

        None if there is none. Routers may share a destination if each of them keeps record ids (`fan_in`).
        """
        beside = [other for other in self.into(router.dest) if other.name != router.name]
        others = [other for other in beside if other.source != router.source]
        if not others or (router.options.fan_in and all(other.options.fan_in for other in beside)):
            return None
        return others[0]

    def cycle_closed_by(self, router: Router) -> list[str] | None:
        """Return the topics of a forbidden cycle that the new router would close; None if it closes none.

        The router's own source is first and last.

        A cycle in which each router keeps record ids is allowed. A cycle through a group must be of that kind, because
        events have no hops; any other cycle requires the new router to allow it.
        """
        start = _Step(router.dest, not router.options.fan_in, _of_group(router.source) or _of_group(router.dest))
        came: dict[_Step, _Step | None] = {start: None}
        waiting = deque([start])
        while waiting:
            step = waiting.popleft()
            if step.topic == router.source:
                if step.plain and (step.group or not router.options.allow_cycle):
                    return [router.source, *_way(came, step)]
                continue
            for edge in self.out(step.topic):
                further = _Step(edge.dest, step.plain or not edge.options.fan_in, step.group or _of_group(edge.dest))
                if edge.name != router.name and further not in came:
                    came[further] = step
                    waiting.append(further)
        return None

    def is_cyclic(self, router: Router) -> bool:
        """Return whether what a router forwards may return to its source."""
        if self._parts is None:
            self._parts = self._connected()
        return self._parts[router.source] == self._parts[router.dest]

    def _connected(self) -> dict[str, int]:
        """Return a number for each topic; topics with the same number can all be reached from each other."""
        ended: list[str] = []
        seen: set[str] = set()
        for topic in [*self._out]:
            ended += self._after(topic, seen)
        parts: dict[str, int] = {}
        for number, topic in enumerate(reversed(ended)):
            waiting = [topic]
            while waiting:
                at = waiting.pop()
                if at not in parts:
                    parts[at] = number
                    waiting += [edge.source for edge in self.into(at)]
        return parts

    def _after(self, topic: str, seen: set[str]) -> Iterator[str]:
        """Add `topic` and all that it leads to, if not in `seen`, to `seen`, and yield them, the farthest first."""
        if topic in seen:
            return
        seen.add(topic)
        way = [(topic, iter(self.out(topic)))]
        while way:
            at, edges = way[-1]
            edge = next(edges, None)
            if edge is None:
                way.pop()
                yield at
            elif edge.dest not in seen:
                seen.add(edge.dest)
                way.append((edge.dest, iter(self.out(edge.dest))))

    def upstream(self, topic: str) -> list[Router]:
        """Return all routers through which a record may reach a topic, the farthest first."""
        found: dict[str, Router] = {}
        seen, waiting = {topic}, deque([topic])
        while waiting:
            for edge in self.into(waiting.popleft()):
                found[edge.name] = edge
                if edge.source not in seen:
                    seen.add(edge.source)
                    waiting.append(edge.source)
        return [*found.values()][::-1]

    def predict(self, topic: str) -> dict[str, CopyForecast]:
        """Return, by name, how many copies of one record written to `topic` each topic gets, ignoring filters.

        Topics that get none are left out.
        """
        holds: defaultdict[str, list[int]] = defaultdict(list, {topic: [0]})
        waiting, made = deque([(topic, 0, 0)]), 0
        while waiting and made < MOST_COPIES:
            at, identity, hops = waiting.popleft()
            for edge in self.out(at):
                most = edge.options.most_hops
                if (most is not None and hops >= most) or (edge.options.fan_in and identity in holds[edge.dest]):
                    continue
                made += 1
                kept = identity if edge.options.fan_in else made
                holds[edge.dest].append(kept)
                waiting.append((edge.dest, kept, hops + 1))
        counts = Counter({at: len(copies) for at, copies in holds.items()})
        return {
            at: CopyForecast(count - (at == topic), count - 1, bool(waiting))
            for at, count in sorted(counts.items())
            if at != topic or count > 1
        }

    def draw(self) -> str:
        """Return the graph as text: a tree for each topic without incoming routers, and each cycle outside of these."""
        lines: list[str] = []
        drawn: set[str] = set()
        topics = [*dict.fromkeys(topic for router in self.routers.values() for topic in (router.source, router.dest))]
        for topic in sorted(topics, key=lambda name: (bool(self.into(name)), name)):
            if topic not in drawn:
                lines += [topic, *self._branches(topic, drawn)]
        return "".join(f"{line}\n" for line in lines)

    def _branches(self, topic: str, drawn: set[str]) -> Iterator[str]:
        """Yield the lines below a topic, without recursion."""
        drawn.add(topic)
        waiting = [*reversed([("", edge, edge is self.out(topic)[-1]) for edge in self.out(topic)])]
        while waiting:
            lead, edge, is_last = waiting.pop()
            again = edge.dest in drawn and bool(self.out(edge.dest))
            yield f"{lead}{'└─' if is_last else '├─'} {edge.dest}  {_label(edge)}{'  (see above)' if again else ''}"
            if edge.dest not in drawn:
                drawn.add(edge.dest)
                below, beyond = lead + ("   " if is_last else "│  "), self.out(edge.dest)
                waiting += [*reversed([(below, further, further is beyond[-1]) for further in beyond])]


class _Step(NamedTuple):
    """A topic on a path; whether a router before it makes new records, and whether the path has passed a group."""

    topic: str
    plain: bool
    group: bool


def _of_group(topic: str) -> bool:
    return topic.startswith(GROUP)


def _way(came: dict[_Step, _Step | None], step: _Step | None) -> list[str]:
    """Return the topics from the start of the search to a step, in order."""
    topics: list[str] = []
    while step is not None:
        topics.append(step.topic)
        step = came[step]
    return topics[::-1]


def _label(router: Router) -> str:
    """Return a text with a router's name and, if set, `fan_in`, `allow_cycle`, `exactly_once` and the filter."""
    options = router.options
    marks = [
        *(["fan_in"] if options.fan_in else []),
        *(["allow_cycle"] if options.allow_cycle else []),
        *(["exactly_once"] if options.guarantee == "exactly_once" else []),
        *([" ".join(options.filter)] if options.filter else []),
    ]
    return router.name + (f" [{', '.join(marks)}]" if marks else "")


def router_of(line: RouterRow) -> Router:
    """Return the router of a stored row."""
    return Router(line.name, line.source, line.dest, decode_options(line.options))


def graph_of(lines: Sequence[RouterRow]) -> Graph:
    """Return the graph of some routers."""
    return Graph(map(router_of, lines))


class NewRouterRules:
    """The rules for one new router, or for one whose options change."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def require_alone(self, into: Sequence[RouterRow]) -> None:
        """Raise `Incompatible` if the router must not share its destination with the routers `into` it."""
        other = graph_of(into).meets(self._router)
        if other is None:
            return
        raise Incompatible(
            f"the topic {other.dest!r} already gets the records of {other.source!r} by the router {other.name!r}",
            hint="to write records of several sources to one topic, set fan_in in every router into it",
            detail={"topic": other.dest, "reason": "router_dest_fan_in"},
        )

    def require_no_cycle(self, beyond: Sequence[RouterRow]) -> None:
        """Raise `RouterCycle` if the router would close a forbidden cycle with the routers `beyond` its
        destination."""
        cycle = graph_of(beyond).cycle_closed_by(self._router)
        if cycle is not None:
            raise RouterCycle(cycle)
