"""One thing that a client does, as data, and the interface of a kind of load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from eventd.simulation.world.requests import ApiClient
from eventd.simulation.world.streams import Stream
from eventd.simulation.world.topology import Topology
from eventd.simulation.world.world import SimulatedWorld


@dataclass(frozen=True, slots=True)
class LoadStep:
    """`at` seconds after the begin of the load, the client of `host` does something of a kind.

    `data` is what this kind needs for it, as JSON.
    """

    at: float
    kind: str
    host: str
    data: dict[str, Any] = field(default_factory=dict)


class LoadKind(Protocol):
    """One kind of load."""

    name: str

    def draw(self, stream: Stream, topology: Topology, host: str, seconds: float) -> Iterator[LoadStep]:
        """Yield the steps of the client of one host within `seconds`, in their order."""
        ...

    async def perform(self, world: SimulatedWorld, client: ApiClient, step: LoadStep) -> None:
        """Do one step, as the process of the client."""
        ...

    async def look(self, world: SimulatedWorld, client: ApiClient, steps: Sequence[LoadStep]) -> bool:
        """Ask for everything that the steps have left at the node; return whether it has answered all of it.

        It is called whenever the node has started again, and at rest.
        """
        ...
