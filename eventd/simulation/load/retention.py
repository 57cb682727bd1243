"""A small retention of the group at some nodes, which their own task applies while clients emit, and links are down."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from eventd.simulation.load.step import LoadKind, LoadStep
from eventd.simulation.world.requests import ApiClient
from eventd.simulation.world.retention import SmallRetention
from eventd.simulation.world.streams import Stream
from eventd.simulation.world.topology import GROUP, Topology
from eventd.simulation.world.world import SimulatedWorld

RETENTION: Final = "retention"
SHARE: Final = 0.7
"""The share of the nodes that have a small retention, in a run that has this load."""
_EVENTS: Final = (3, 10, 40)
_AGES: Final = (0.5, 2.0, 5.0)
"""In seconds."""
_INTERVALS: Final = (0.3, 1.0, 2.0)
_NOT_FOUND: Final = 404


class RetentionLoad(LoadKind):
    """The load of the retention itself: it is declared with the group, before any event is emitted."""

    name = RETENTION

    def draw(self, stream: Stream, topology: Topology, host: str, seconds: float) -> Iterator[LoadStep]:
        limits = stream.choice((("maxEvents",), ("maxEvents",), ("maxAge",), ("maxEvents", "maxAge")))
        drawn: dict[str, Any] = {"maxEvents": stream.choice(_EVENTS), "maxAge": stream.choice(_AGES)}
        data = {name: drawn[name] for name in limits}
        data |= {"keeps": stream.random() < 0.5, "interval": stream.choice(_INTERVALS)}
        if stream.random() < SHARE or host == topology.nodes[0]:
            yield LoadStep(0.0, self.name, host, data)

    async def perform(self, world: SimulatedWorld, client: ApiClient, step: LoadStep) -> None:
        """Do nothing: the node does it by itself."""

    async def unrest(self, world: SimulatedWorld, client: ApiClient, steps: Sequence[LoadStep]) -> list[str]:
        """Say how many events are beyond the number to keep, or that the oldest one is too old.

        Nothing holds them back any more.
        """
        name = client.machine.name
        retention = world.journal.retentions[name]
        reply = await client.ask("kept", "GET", f"/v0/topics/group:{GROUP}?touch=false")
        if reply.status == _NOT_FOUND:
            return []
        if not reply.is_good:
            return [f"{name} answers {reply.status}"]
        count, most = reply.document["count"], retention.max_events
        if most is not None and count > most:
            return [f"{name} keeps {count} events of {most}"]
        return await _too_old(world, client) if count and retention.max_age is not None else []


async def _too_old(world: SimulatedWorld, client: ApiClient) -> list[str]:
    """Say how old the oldest event is, if it should have been evicted.

    Its age is that by the node's clock, which is right at rest. A later event may be older by it, and has to wait.
    """
    name = client.machine.name
    reply = await client.ask("kept", "GET", f"/groups/{GROUP}/events?limit=1&includeExpired=true")
    if not reply.is_good:
        return [f"{name} answers {reply.status}"]
    ages = [world.true_time() - _seconds(event["recordedAt"]) for event in reply.document["events"]]
    return [
        f"{name} keeps an event for {age:.3f} s" for age in ages if world.journal.retentions[name].must_have_taken(age)
    ]


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def retentions_of(steps: Iterable[LoadStep], clocks: Iterable[str] = ()) -> dict[str, SmallRetention]:
    """Return the retention of each node that has a small one; `clocks`: the nodes whose wall time is set."""
    own = {step.host: step.data for step in steps if step.kind == RETENTION}
    set_clocks = set(clocks)
    return {
        host: SmallRetention(
            data.get("maxEvents"), data.get("maxAge"), data["keeps"], data["interval"], host in set_clocks
        )
        for host, data in own.items()
    }
