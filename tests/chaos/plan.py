"""The plan of one run: drawn from the seed before anything is started, so that the seed reproduces it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from tests.chaos.link_faults import LINK_FAULTS

NODE_FAULTS = {
    "sqlite": (
        "kill",
        "kill at start",
        "freeze",
        "disk full",
        "writes fail",
        "read-only at start",
        "restore",
        "keys rotated under partition",
        "clock step",
    ),
    "postgres": (
        "kill",
        "kill at start",
        "freeze",
        "database sessions ended",
        "restore",
        "keys rotated under partition",
        "clock step",
    ),
}
"""The faults of nodes by their database: the disk of a Postgres server is not the node's."""
OLD = "old"
"""The name of the receiver that speaks v1 only and is not a node of this project."""


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

    def lines(self) -> Iterator[str]:
        """Yield the plan as readable text."""
        marks = {name: " (v1)" if name in self.v1 else "" for name in (*self.nodes, OLD)}
        links = ", ".join(
            link.name + " relay" * link.relay + f" {'+'.join(link.types)}" * bool(link.types) for link in self.links
        )
        yield f"seed {self.seed}: a {self.shape} of {', '.join(n + marks[n] for n in self.nodes)} on {self.database}"
        yield f"links: {links}"
        for number, faults in enumerate(self.rounds, 1):
            yield f"round {number}, {self.seconds:g} s:"
            yield from (f"  {fault}" for fault in faults)


def draw(seed: int, *, database: str, rounds: int, seconds: float) -> Plan:
    """Return the plan of a seed. The same arguments give the same plan on every machine."""
    chance = Random(f"{seed} {database}")
    shape = chance.choice(("star", "ring", "chain", "triangle"))
    nodes = ("a", "b", "c", "d") if shape in ("star", "ring") else ("a", "b", "c")
    links = [*_links(shape, nodes)]
    v1: tuple[str, ...] = ()
    if shape in ("star", "chain"):
        v1 = (nodes[-1],)
    if shape == "star":
        links = [Link("a", "b", relay=True, types=("t.even",)) if link.name == "a>b" else link for link in links]
    if shape in ("ring", "triangle"):
        links.append(Link(chance.choice(nodes), OLD, relay=True))
    node_deck, link_deck = _deck(chance, NODE_FAULTS[database]), _deck(chance, tuple(LINK_FAULTS))
    return Plan(
        seed=seed,
        database=database,
        shape=shape,
        nodes=nodes,
        links=tuple(links),
        v1=v1,
        rounds=tuple(
            tuple(sorted(_round(chance, nodes, links, v1, node_deck, link_deck, seconds), key=lambda fault: fault.at))
            for _ in range(rounds)
        ),
        seconds=seconds,
    )


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
    nodes: tuple[str, ...],
    links: list[Link],
    v1: tuple[str, ...],
    node_deck: Iterator[str],
    link_deck: Iterator[str],
    seconds: float,
) -> Iterator[Fault]:
    # Over v1 a sender does not learn that its receiver was restored: only an operator can send those events again.
    restorable = [n for n in nodes if not any(link.dest == n and {n, link.source} & {*v1} for link in links)]
    for _ in range(max(3, int(seconds / 2.5))):
        at = chance.uniform(0, seconds * 0.7)
        kind = next(node_deck)
        yield Fault(
            at,
            kind,
            chance.choice(restorable if kind == "restore" else nodes),
            chance.uniform(1, 3),
            chance.getrandbits(32),
        )
    for _ in range(max(8, int(seconds * 2))):
        at = chance.uniform(0, seconds * 0.8)
        link = chance.choice(links)
        yield Fault(at, next(link_deck), link.name, chance.uniform(0.5, 2.5), chance.getrandbits(32))
