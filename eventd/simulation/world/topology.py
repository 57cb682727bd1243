"""Which nodes a run has, and which links lead from one to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from eventd.simulation.world.machine import PEER_PORT
from eventd.simulation.world.streams import Stream

GROUP: Final = "edge"
"""The event group of all nodes."""
VERSION: Final = "federation.routerd.net/v1alpha1"
STAGES: Final = 3
"""The stages in which a secret is replaced: the new one verifies, then it signs, then the old one is dropped."""
SHAPES: Final = {
    "pair": ("ab", "ba"),
    "star": ("ab", "ba", "bc", "cb", "bd", "db"),
    "ring": ("ab", "bc", "cd", "da"),
    "triangle": ("ab", "ba", "bc", "cb", "ca", "ac"),
}
"""The links of each shape, the names of their two nodes each."""
SHAPE_WEIGHTS: Final = {"pair": 5, "star": 1, "ring": 1, "triangle": 2}
"""How often each shape is drawn, by weight."""
_RELAYS: Final = ("star", "ring")
"""Shapes in which events reach some nodes only through others."""
V1_SHARE: Final = 0.1
"""The share of runs with a link that speaks v1."""
_SECRETS: Final = ("0123456789abcdef0123456789abcdef\n", "fedcba9876543210fedcba9876543210\n")


@dataclass(frozen=True, slots=True)
class PlannedLink:
    """A link from one node to another; with `relay`, it also carries events of other nodes.

    `protocol` is `v1` for a peer that is declared so; `auto` lets the nodes speak v2.
    `types`: the types of the events that it carries; empty: all. `is_changed`: its declaration was another one before.
    """

    source: str
    dest: str
    relay: bool
    types: list[str] = field(default_factory=list)
    protocol: str = "auto"
    is_changed: bool = False

    def takes(self, event_type: str) -> bool:
        """Return whether the link carries events of a type."""
        own = [
            each for each in self.types if each.removesuffix("*") in (event_type, event_type.partition(".")[0] + ".")
        ]
        return not self.types or bool(own)


@dataclass(frozen=True, slots=True)
class Topology:
    """The nodes and the links of a run; `history` is the mode of the group's history at each node."""

    shape: str
    nodes: list[str]
    links: list[PlannedLink]
    history: str = "record"

    def reached(self, source: str, event_type: str = "") -> set[str]:
        """Return the nodes that events of a node and a type reach by the declared links; empty: of all types."""
        found = {source}
        ahead = [source]
        while ahead:
            node = ahead.pop()
            for link in self.links:
                carried = (link.relay or node == source) and (not event_type or link.takes(event_type))
                if link.source == node and link.dest not in found and carried:
                    found.add(link.dest)
                    ahead.append(link.dest)
        return found

    def group_document(self, node: str, address: str, secrets: Sequence[str], stage: int = 0) -> dict[str, Any]:
        """Return the group of a node as a resource.

        `secrets` are the files of shared secrets, of which the second one replaces the first one in `STAGES`.
        """
        listen = {"address": address, "port": PEER_PORT}
        spec: dict[str, Any] = {"nodeName": node, "listen": listen, "history": {"mode": self.history}}
        spec["auth"] = {"secretFile": secrets[0]} if stage < STAGES else {}
        if stage:
            key = {"id": f"{GROUP}-2", "owner": "*", "secretFile": secrets[1]}
            spec["auth"]["keys"] = [key | {"state": "pending" if stage == 1 else "active"}]
        return {"apiVersion": VERSION, "kind": "EventGroup", "metadata": {"name": GROUP}, "spec": spec}

    @property
    def speaks_v1(self) -> bool:
        """Return whether a link speaks v1, which keeps neither ranges nor the order of events."""
        return any(link.protocol == "v1" for link in self.links)

    def links_from(self, node: str) -> list[PlannedLink]:
        """Return the links that begin at a node."""
        return [link for link in self.links if link.source == node]


def peer_document(link: PlannedLink, address: str) -> dict[str, Any]:
    """Return a link as a resource of the node where it begins; `address` is that of its peer."""
    spec: dict[str, Any] = {"groupRef": GROUP, "nodeName": link.dest, "relay": link.relay}
    spec["endpoint"] = f"http://{address}:{PEER_PORT}"
    spec["retry"] = {"baseBackoff": "100ms", "maxBackoff": "5s"}
    spec["limits"] = {"timeout": "5s"}
    spec["protocol"] = link.protocol
    if link.types:
        spec["types"] = link.types
    name = {"name": f"{GROUP}-{link.dest}"}
    return {"apiVersion": VERSION, "kind": "EventPeer", "metadata": name, "spec": spec}


def draw_topology(stream: Stream, weights: Mapping[str, float] = SHAPE_WEIGHTS) -> Topology:
    """Return a topology, drawn from a stream, of one of the shapes that have a weight."""
    shape = stream.choices([*weights], [*weights.values()])[0]
    pairs = SHAPES[shape]
    relay = shape in _RELAYS or stream.random() < 0.3
    nodes = sorted({name for pair in pairs for name in pair})
    history = "record" if stream.random() < 0.8 else "off"
    return Topology(shape, nodes, [PlannedLink(pair[0], pair[1], relay) for pair in pairs], history)


def with_v1(stream: Stream, topology: Topology) -> Topology:
    """Return a topology of which, in a share of the runs, one link speaks v1."""
    if stream.random() >= V1_SHARE:
        return topology
    changed = stream.choice(topology.links)
    links = [replace(link, protocol="v1") if link is changed else link for link in topology.links]
    return replace(topology, links=links)


def write_secrets(folder: Path) -> list[str]:
    """Write the files of the shared secrets; return their paths."""
    files = [folder / f"secret-{number}" for number in range(len(_SECRETS))]
    for file, secret in zip(files, _SECRETS, strict=True):
        file.write_text(secret)
        file.chmod(0o600)
    return [str(file) for file in files]


def client_of(node: str) -> str:
    """Return the name of the machine of a node's client."""
    return f"client of {node}"
