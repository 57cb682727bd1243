"""All kinds of load, and the clients that do what is planned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from eventd.simulation.load.emits import Emits
from eventd.simulation.load.step import LoadKind, LoadStep
from eventd.simulation.world.requests import ApiClient
from eventd.simulation.world.streams import ChanceStreams, Stream
from eventd.simulation.world.topology import Topology
from eventd.simulation.world.world import SimulatedWorld

KINDS: Final[dict[str, LoadKind]] = {kind.name: kind for kind in (Emits(),)}
"""The kinds of load by their names."""


def draw_load(streams: ChanceStreams, topology: Topology, seconds: float) -> list[LoadStep]:
    """Return the load of all clients, each host and kind from a stream of its own, by time."""
    steps: list[LoadStep] = []
    for host in topology.nodes:
        for kind in KINDS.values():
            stream: Stream = streams.of(f"load {kind.name} {host}")
            steps += kind.draw(stream, topology, host, seconds)
    return sorted(steps, key=lambda step: step.at)


async def perform_load(world: SimulatedWorld, steps: Sequence[LoadStep]) -> None:
    """Do what is planned: each client does its steps one after the other, none before its time."""
    begin = world.loop.time()
    tasks = []
    for host, client in world.clients.items():
        own = [step for step in steps if step.host == host]
        tasks.append(client.life.start(_perform(world, client, own, begin)))
    for task in tasks:
        await task


async def _perform(world: SimulatedWorld, client: ApiClient, steps: Sequence[LoadStep], begin: float) -> None:
    for step in steps:
        await world.loop.pause(max(0.0, begin + step.at - world.loop.time()))
        await KINDS[step.kind].perform(world, client, step)
