"""One thing that a client does, as data, and the interface of a kind of load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from eventd.simulation.world.clock import Seconds
from eventd.simulation.world.requests import ApiClient
from eventd.simulation.world.streams import Stream
from eventd.simulation.world.topology import Topology
from eventd.simulation.world.world import SimulatedWorld

LANE: Final = "lane"
"""The member of a step's data that names who does it: the steps of one lane follow each other."""
UNIT: Final = "unit"
"""The member that names what has to be acknowledged by the answer to the step; each has a name of its own."""
KEY_MILLISECONDS: Final = 86_400_000
"""How long topics remember a key: longer than any wall time is wrong, which is all that a node knows over a restart."""


@dataclass(frozen=True, slots=True)
class LoadStep:
    """`at` seconds after the begin of the load, the client of `host` does something of a kind.

    `data` is what this kind needs for it, as JSON; `LANE` and `UNIT` mean the same in all kinds.
    """

    at: Seconds
    kind: str
    host: str
    data: dict[str, Any] = field(default_factory=dict)


class LoadKind(Protocol):
    """One kind of load. A kind inherits what it needs no own form of."""

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
        return True

    async def unrest(self, world: SimulatedWorld, client: ApiClient, steps: Sequence[LoadStep]) -> list[str]:
        """Return what the node still has to do for the steps after the last fault; it rests when nothing is left."""
        return []

    async def renew(self, world: SimulatedWorld, client: ApiClient, steps: Sequence[LoadStep]) -> None:
        """Declare again what a restore of the node may have taken, as an operator does, after the last fault."""
        return
