"""The plan of one run: drawn from the seed before anything is started, so that the seed reproduces it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal

from tests.chaos.kinds import LONG, NODE_FAULTS, NodeFault
from tests.chaos.link_faults import LINK_FAULTS

OLD = "old"
"""The name of the receiver that speaks v1 only and is not a node of this project."""
QUIET = "p"
"""The name of the pair that sends only: both of its nodes are on this machine, where only one could listen."""

Load = Literal["topics", "queue", "watch", "derive", "callback", "publish"]
LOADS: tuple[Load, ...] = ("topics", "queue", "watch", "derive", "callback", "publish")
"""What a node does besides its events: records with routers, jobs, a watch, a plugin's subscription, a callback, events
over a WebSocket."""


class FaultWithoutTarget(Exception):
    """No node of a plan can have one of the faults that its run is limited to."""


@dataclass(frozen=True)
class Axes:
    """What is fixed for all seeds; None leaves it to the seed.

    `workers` is the number of processes of one node, `standby` whether one node is a pair (on Postgres), `loads` what
    one node does besides its events; `only` names the kinds of faults of nodes, if they are not all.
    """

    workers: int | None = None
    standby: bool | None = None
    loads: tuple[Load, ...] | None = None
    only: tuple[str, ...] = ()

    @property
    def options(self) -> str:
        """The options of the command, with a blank before each."""
        given: dict[str, str] = {}
        if self.workers is not None:
            given["workers"] = str(self.workers)
        if self.standby is not None:
            given["standby"] = "yes" if self.standby else "no"
        if self.loads is not None:
            given["loads"] = ",".join(self.loads) or "none"
        if self.only:
            given["only"] = f'"{",".join(self.only)}"'
        return "".join(f" --{name} {value}" for name, value in given.items())


PLAIN = Axes(workers=1, standby=False, loads=())
"""Nodes of one process each, with events only."""


@dataclass(frozen=True)
class Link:
    """One direction from a node to a peer. With `types`, only events of these types are sent."""

    source: str
    dest: str
    relay: bool = False
    types: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.source}>{self.dest}"


@dataclass(frozen=True)
class Fault:
    """`kind` happens to the node or link `target`, `at` seconds into the round and for `seconds`.

    `number` seeds the random choices within it.
    """

    at: float
    kind: str
    target: str
    seconds: float
    number: int

    def __str__(self) -> str:
        return f"{self.at:5.1f} s  {self.target:5} {self.kind}, {self.seconds:.1f} s"


@dataclass(frozen=True)
class Plan:
    """The mesh and its faults, round by round."""

    seed: int
    database: str
    shape: str
    nodes: tuple[str, ...]
    links: tuple[Link, ...]
    v1: tuple[str, ...]
    """Nodes whose group speaks v1 only."""
    rounds: tuple[tuple[Fault, ...], ...]
    seconds: float
    axes: Axes = PLAIN
    workers: dict[str, int] = field(default_factory=dict)
    """The number of processes of nodes that have several."""
    pairs: tuple[str, ...] = ()
    """Nodes that are two: one serves, the other stands by."""
    loads: dict[str, tuple[Load, ...]] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """Yield the plan as readable text."""
        marks = {name: " (v1)" if name in self.v1 else "" for name in (*self.nodes, OLD)}
        links = ", ".join(
            link.name + " relay" * link.relay + f" {'+'.join(link.types)}" * bool(link.types) for link in self.links
        )
        yield f"seed {self.seed}: a {self.shape} of {', '.join(n + marks[n] for n in self.nodes)} on {self.database}"
        yield f"links: {links}"
        yield from (f"{name} has {count} workers" for name, count in self.workers.items())
        yield from (f"{name} is a pair" for name in self.pairs)
        yield from (f"{name} also has {', '.join(loads)}" for name, loads in self.loads.items() if loads)
        for number, faults in enumerate(self.rounds, 1):
            yield f"round {number}, {self.seconds:g} s:"
            yield from (f"  {fault}" for fault in faults)


def draw(seed: int, *, database: str, rounds: int, seconds: float, axes: Axes = PLAIN) -> Plan:
    """Return the plan of a seed. The same arguments give the same plan on every machine.

    Raises `FaultWithoutTarget`.
    """
    chance = Random(f"{seed} {database}")
    shape = chance.choice(("star", "ring", "chain", "triangle"))
    nodes: tuple[str, ...] = ("a", "b", "c", "d") if shape in ("star", "ring") else ("a", "b", "c")
    links = [*_links(shape, nodes)]
    v1: tuple[str, ...] = ()
    if shape in ("star", "chain"):
        v1 = (nodes[-1],)
    if shape == "star":
        links = [Link("a", "b", relay=True, types=("t.even",)) if link.name == "a>b" else link for link in links]
    if shape in ("ring", "triangle"):
        links.append(Link(chance.choice(nodes), OLD, relay=True))
    workers, pair, loads = _axes(chance, nodes, database, axes)
    if pair == QUIET:
        nodes = (*nodes, QUIET)
        links.append(Link(QUIET, nodes[0]))
    plan = Plan(
        seed=seed,
        database=database,
        shape=shape,
        nodes=nodes,
        links=tuple(links),
        v1=v1,
        rounds=(),
        seconds=seconds,
        axes=axes,
        workers=workers,
        pairs=(pair,) if pair else (),
        loads=loads,
    )
    able = {kind: _targets(plan, its) for kind, its in NODE_FAULTS.items()}
    # Over v1 a sender does not learn that its receiver was restored: only an operator can send those events again.
    able["restore"] = [n for n in nodes if not any(link.dest == n and {n, link.source} & {*v1} for link in links)]
    possible = tuple(kind for kind, targets in able.items() if targets and (not axes.only or kind in axes.only))
    if not possible:
        raise FaultWithoutTarget(
            f"seed {seed}, on {database}: no node can have {', '.join(axes.only)}; write another --database, or fix"
            f" --workers, --standby or --loads; in this plan, nodes can have: {', '.join(filter(able.get, able))}"
        )
    node_deck, link_deck = _deck(chance, possible), _deck(chance, tuple(LINK_FAULTS))
    drawn = (_round(chance, links, able, node_deck, link_deck, seconds) for _ in range(rounds))
    return replace(plan, rounds=tuple(tuple(sorted(each, key=lambda fault: fault.at)) for each in drawn))


def _axes(
    chance: Random, nodes: tuple[str, ...], database: str, axes: Axes
) -> tuple[dict[str, int], str, dict[str, tuple[Load, ...]]]:
    """Return the workers of nodes, the node that is a pair or an empty text, and the loads of nodes."""
    workers = chance.choice((1, 2, 3)) if axes.workers is None else axes.workers
    standby = chance.random() < 0.5 if axes.standby is None else axes.standby
    loads = tuple(load for load in LOADS if chance.random() < 0.5) if axes.loads is None else axes.loads
    pair = chance.choice((QUIET, chance.choice(nodes))) if standby and database == "postgres" else ""
    busy, crowded = chance.choice(nodes), chance.choice((*nodes, pair or nodes[0]))
    return {crowded: workers} if workers > 1 else {}, pair, {busy: loads} if loads else {}


def _targets(plan: Plan, fault: NodeFault) -> list[str]:
    """Return what the fault can happen to."""
    if plan.database not in fault.databases:
        return []
    if fault.target:
        return [fault.target]
    match fault.need:
        case "workers":
            return [*plan.workers]
        case "quiet pair":
            return [name for name in plan.pairs if name == QUIET]
        case "derive":
            return [name for name, loads in plan.loads.items() if "derive" in loads]
    return [*plan.nodes]


def _links(shape: str, nodes: tuple[str, ...]) -> Iterator[Link]:
    first, *others = nodes
    match shape:
        case "star":  # the first is the hub
            for other in others:
                yield Link(first, other, relay=True)
                yield Link(other, first)
        case "ring":
            for source, dest in zip(nodes, (*others, first), strict=True):
                yield Link(source, dest, relay=True)
        case "chain":
            for one, other in zip(nodes, others, strict=False):
                yield Link(one, other, relay=True)
                yield Link(other, one, relay=True)
        case "triangle":
            yield from (Link(source, dest) for source in nodes for dest in nodes if source != dest)


def _deck(chance: Random, kinds: tuple[str, ...]) -> Iterator[str]:
    """Yield every kind once before one is repeated."""
    while True:
        yield from chance.sample(kinds, len(kinds))


def _round(
    chance: Random,
    links: list[Link],
    able: dict[str, list[str]],
    node_deck: Iterator[str],
    link_deck: Iterator[str],
    seconds: float,
) -> Iterator[Fault]:
    for _ in range(max(3, int(seconds / 2.5))):
        at = chance.uniform(0, seconds * 0.7)
        kind = next(node_deck)
        most = chance.choices((3, 20, 60), (8, 3, 1))[0] if kind in LONG else 3
        yield Fault(at, kind, chance.choice(able[kind]), chance.uniform(1, most), chance.getrandbits(32))
    for _ in range(max(8, int(seconds * 2))):
        at = chance.uniform(0, seconds * 0.8)
        link = chance.choice(links)
        yield Fault(at, next(link_deck), link.name, chance.uniform(0.5, 2.5), chance.getrandbits(32))
