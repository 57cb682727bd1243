"""The simulated federation: its nodes and links, and the flows of events."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from eventd.audit.generate.emitters import Emitter, make_emitters
from eventd.audit.generate.flows import Flow
from eventd.audit.generate.pseudo_random import Ints, key_of, random_of
from eventd.audit.generate.settings import HOUR, MINUTE, GeneratorSettings

_AREAS: Final = ("client", "bgp", "dhcp", "link", "firewall", "wireguard", "dns", "health")
_VERBS: Final = ("observed", "expired", "changed", "up", "down", "granted", "refused", "lost")


class SelectionTerms(NamedTuple):
    """The selection of a peer, as the log stores it, and the true time from which it is in force (microseconds)."""

    since: int
    selection: dict[str, Any]


@dataclass(frozen=True)
class Link:
    """A link of a node to a peer in a group. `terms` are its selections over time."""

    group: int
    sender: int
    peer: int
    terms: tuple[SelectionTerms, ...]

    @property
    def relay(self) -> bool:
        """Return whether, under the last of the terms, the peer also gets events of other nodes."""
        return bool(self.terms[-1].selection.get("relay"))

    def version_at(self, at: int) -> int:
        """Return the selection version in force at a true time: 1 for the first of the terms."""
        return sum(terms.since <= at for terms in self.terms)


@dataclass(eq=False)
class World:
    """The model from which the ledgers are computed. Nodes, groups and types are numbered."""

    settings: GeneratorSettings
    segment_rows: int = 1_000_000
    payloads: bool = False
    links: list[Link] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    heads: list[int] = field(default_factory=list)
    """The last position in the log of each node."""
    restarts: dict[int, int] = field(default_factory=dict)
    """The nodes that were restored from a backup, each with the true time at which its second epoch began."""

    @cached_property
    def names(self) -> list[str]:
        """Return the names of the nodes."""
        return [f"site-{node + 1:02d}" for node in range(self.settings.nodes)]

    @cached_property
    def groups(self) -> list[str]:
        """Return the names of the groups."""
        return ["edge"]

    @cached_property
    def types(self) -> list[str]:
        """Return the names of the types, the most common first."""
        return type_names(12)

    @cached_property
    def skews(self) -> Ints:
        """Return how far each node's clock is ahead, in microseconds; negative: behind."""
        most = self.settings.skew
        return random_of(self.settings.seed, "skew").integers(-most, most, self.settings.nodes, endpoint=True)

    @cached_property
    def emitters(self) -> list[Emitter]:
        """Return the emitter of each node; faults append ghosts, which forge events in the name of a node."""
        return make_emitters(self.settings, self.skews, groups=len(self.groups), types=len(self.types))

    @cached_property
    def silent(self) -> frozenset[int]:
        """Return the nodes that ship no ledgers to the lake."""
        return frozenset()

    @cached_property
    def outages(self) -> list[list[tuple[int, int]]]:
        """Return the outages of each node as (begin, end) in true time (microseconds), in order."""
        return _outages(self.settings)

    def epoch(self, node: int, epoch_index: int) -> str:
        """Return the name of a node's first (0) or second (1) epoch."""
        return f"{key_of(self.settings.seed, 'epoch', node, epoch_index):016x}"[:12]

    def numbers(self, source: int, group: int) -> Ints:
        """Return the numbers of a source's events in a group that it emitted before the end of the simulated period."""
        return self._numbers[source, group]

    @cached_property
    def _numbers(self) -> dict[tuple[int, int], Ints]:
        found = {}
        for source, emitter in enumerate(self.emitters[: self.settings.nodes]):
            sent = emitter.first[np.searchsorted(emitter.at, self.settings.end)]
            for group in range(len(self.groups)):
                numbers = emitter.numbers(group)
                found[source, group] = numbers[numbers < sent]
        return found

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """Return the sender and peer of every link; the same in each group."""
        return ring(self.settings.nodes, self.settings.nodes - 1)

    def closed(self, node: int) -> int:
        """Return when a node was taken out of service, by its clock: at the end of the simulated period."""
        return self.settings.end + int(self.skews[node])

    def add_flow(self, **parts: Any) -> Flow:
        """Add a flow with the next uid, and return it."""
        flow = Flow(uid=len(self.flows), **parts)
        self.flows.append(flow)
        return flow


def type_names(count: int) -> list[str]:
    """Return names of types, the most common first."""
    areas = len(_AREAS)
    return [f"routerd.{_AREAS[at % areas]}.{_VERBS[at // areas]}" for at in range(count)]


def ring(nodes: int, fanout: int) -> list[tuple[int, int]]:
    """Return the sender and peer of every link of a ring, in which each node sends to the next `fanout` nodes."""
    return [(node, (node + far) % nodes) for node in range(nodes) for far in range(1, fanout + 1)]


def _outages(settings: GeneratorSettings) -> list[list[tuple[int, int]]]:
    random = random_of(settings.seed, "outages")
    days = settings.span / (24 * HOUR)
    found: list[list[tuple[int, int]]] = [[] for _ in range(settings.nodes)]
    for _ in range(max(1, round(settings.nodes / 2 * days))):
        node = int(random.integers(settings.nodes))
        begin = settings.start + int(random.uniform(0.1, 0.8) * settings.span)
        end = begin + int(random.uniform(0.1, 1) * min(10 * MINUTE, settings.span / 20))
        if all(end < other or beyond < begin for other, beyond in found[node]):
            found[node].append((begin, end))
    return [sorted(one) for one in found]
