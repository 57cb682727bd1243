"""Which nodes a run has, and which links lead from one to another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from eventd.simulation.world.machine import PEER_PORT
from eventd.simulation.world.streams import Stream

GROUP: Final = "edge"
"""The event group of all nodes."""
SHAPES: Final = {
    "pair": ("ab", "ba"),
    "star": ("ab", "ba", "bc", "cb", "bd", "db"),
    "ring": ("ab", "bc", "cd", "da"),
    "triangle": ("ab", "ba", "bc", "cb", "ca", "ac"),
}
"""The links of each shape, the names of their two nodes each."""
_RELAYS: Final = ("star", "ring")
"""Shapes in which events reach some nodes only through others."""
_SECRET: Final = "0123456789abcdef0123456789abcdef\n"


@dataclass(frozen=True, slots=True)
class PlannedLink:
    """A link from one node to another; with `relay`, it also carries events of other nodes."""

    source: str
    dest: str
    relay: bool


@dataclass(frozen=True, slots=True)
class Topology:
    """The nodes and the links of a run; `history` is the mode of the group's history at each node."""

    shape: str
    nodes: list[str]
    links: list[PlannedLink]
    history: str = "record"

    def reached(self, source: str) -> set[str]:
        """Return the nodes that events of a node reach by the declared links."""
        found = {source}
        ahead = [source]
        while ahead:
            node = ahead.pop()
            for link in self.links:
                if link.source == node and link.dest not in found and (link.relay or node == source):
                    found.add(link.dest)
                    ahead.append(link.dest)
        return found

    def documents(self, node: str, addresses: dict[str, str], secret: str) -> list[dict[str, Any]]:
        """Return the resources of a node; `secret` is the file of the group's shared secret."""
        version = "federation.routerd.net/v1alpha1"
        listen = {"address": addresses[node], "port": PEER_PORT}
        spec: dict[str, Any] = {"nodeName": node, "listen": listen, "auth": {"secretFile": secret}}
        spec["history"] = {"mode": self.history}
        documents = [{"apiVersion": version, "kind": "EventGroup", "metadata": {"name": GROUP}, "spec": spec}]
        for link in self.links:
            if link.source != node:
                continue
            spec = {"groupRef": GROUP, "nodeName": link.dest, "relay": link.relay}
            spec["endpoint"] = f"http://{addresses[link.dest]}:{PEER_PORT}"
            spec["retry"] = {"baseBackoff": "100ms", "maxBackoff": "5s"}
            spec["limits"] = {"timeout": "5s"}
            name = {"name": f"{GROUP}-{link.dest}"}
            documents.append({"apiVersion": version, "kind": "EventPeer", "metadata": name, "spec": spec})
        return documents


def draw_topology(stream: Stream) -> Topology:
    """Return a topology, drawn from a stream."""
    shape = stream.choices(list(SHAPES), (5, 1, 1, 2))[0]
    pairs = SHAPES[shape]
    relay = shape in _RELAYS or stream.random() < 0.3
    nodes = sorted({name for pair in pairs for name in pair})
    history = "record" if stream.random() < 0.8 else "off"
    return Topology(shape, nodes, [PlannedLink(pair[0], pair[1], relay) for pair in pairs], history)


def write_secret(folder: Any) -> str:
    """Write the file of the shared secret; return its path."""
    file = folder / "secret"
    file.write_text(_SECRET)
    file.chmod(0o600)
    return str(file)


def client_of(node: str) -> str:
    """Return the name of the machine of a node's client."""
    return f"client of {node}"
