"""All kinds of load, and the clients that do what is planned."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from eventd.simulation.load.callbacks import CallbackLoad
from eventd.simulation.load.conflicts import Conflicts
from eventd.simulation.load.declarations import Declarations
from eventd.simulation.load.emits import Emits
from eventd.simulation.load.follows import Follows
from eventd.simulation.load.publishes import PATH as PUBLISH_PATH
from eventd.simulation.load.publishes import Publishes
from eventd.simulation.load.queue_jobs import QueueJobs
from eventd.simulation.load.renewals import Renewals
from eventd.simulation.load.repairs import Repairs
from eventd.simulation.load.retention import RetentionLoad
from eventd.simulation.load.routes import Routes
from eventd.simulation.load.sockets import Sockets
from eventd.simulation.load.step import LANE, UNIT, LoadKind, LoadStep
from eventd.simulation.load.subscriptions import Subscriptions
from eventd.simulation.load.topic_writes import TopicWrites
from eventd.simulation.load.watches import Watches
from eventd.simulation.world.journal import Journal
from eventd.simulation.world.requests import ApiClient
from eventd.simulation.world.streams import ChanceStreams, Stream
from eventd.simulation.world.topology import Topology
from eventd.simulation.world.world import SimulatedWorld

ALWAYS: Final = Emits()
"""The kind of load that every run has."""
_OTHERS: Final[Sequence[LoadKind]] = (
    TopicWrites(),
    Follows(),
    QueueJobs(),
    Declarations(),
    Watches(),
    Sockets(),
    Routes(),
    Subscriptions(),
    CallbackLoad(),
    Publishes(),
    RetentionLoad(),
    Repairs(),
    Renewals(),
    Conflicts(),
)
KINDS: Final[dict[str, LoadKind]] = {kind.name: kind for kind in (ALWAYS, *_OTHERS)}
"""The kinds of load by their names."""
SHARES: Final = {Declarations.name: 0.25, RetentionLoad.name: 0.25, Repairs.name: 0.25, Conflicts.name: 0.25}
"""The shares of runs that have a kind at most: with it, less is certain of what a node has, and in which order."""


def draw_load(
    streams: ChanceStreams, topology: Topology, seconds: float, names: Collection[str] = (), *, share: float = 0.5
) -> list[LoadStep]:
    """Return the load of all clients, each host and kind from a stream of its own, by time.

    A `share` of the kinds is drawn by the seed; with `names`, only these are.
    """
    chosen = names or [
        name for name in KINDS if streams.of(f"load {name}").random() < min(share, SHARES.get(name, share))
    ]
    kinds = [kind for kind in KINDS.values() if kind is ALWAYS or kind.name in chosen]
    steps: list[LoadStep] = []
    for host in topology.nodes:
        for kind in kinds:
            stream: Stream = streams.of(f"load {kind.name} {host}")
            steps += kind.draw(stream, topology, host, seconds)
    return sorted(steps, key=lambda step: step.at)


async def perform_load(world: SimulatedWorld, steps: Sequence[LoadStep]) -> None:
    """Do what is planned: each client does its steps of a kind and lane one after the other, none before its time."""
    begin = world.loop.time()
    tasks = []
    for host, client in world.clients.items():
        own = [lane for each in _by_kind(steps, host).values() for lane in _lanes(each)]
        tasks += [client.life.start(_perform(world, client, each, begin)) for each in own]
    for task in tasks:
        await task


def _lanes(steps: Sequence[LoadStep]) -> list[list[LoadStep]]:
    """Return the steps of each lane."""
    lanes: dict[str, list[LoadStep]] = {}
    for step in steps:
        lanes.setdefault(step.data.get(LANE, ""), []).append(step)
    return list(lanes.values())


def _by_kind(steps: Sequence[LoadStep], host: str) -> dict[str, list[LoadStep]]:
    """Return the steps of one host by kind, in the order of the kinds; kinds without steps are left out."""
    own: dict[str, list[LoadStep]] = {kind: [] for kind in KINDS}
    for step in steps:
        if step.host == host:
            own[step.kind].append(step)
    return {kind: each for kind, each in own.items() if each}


async def look_at(world: SimulatedWorld, client: ApiClient, steps: Sequence[LoadStep]) -> bool:
    """Ask a node for everything that the load has left there; return whether it has answered all of it."""
    answered = True
    for kind, own in _by_kind(steps, client.machine.name).items():
        answered = await KINDS[kind].look(world, client, own) and answered
    return answered


async def renew_declarations(world: SimulatedWorld, steps: Sequence[LoadStep]) -> None:
    """Declare again what restores may have taken of the load; raises TimeoutError if a node does not take it."""
    for host, client in world.clients.items():
        if world.journal.is_restored(host):
            for kind, own in _by_kind(steps, host).items():
                await client.life.start(KINDS[kind].renew(world, client, own))


async def unrest_of(world: SimulatedWorld, client: ApiClient, steps: Sequence[LoadStep]) -> list[str]:
    """Return what a node still has to do for the load."""
    busy: list[str] = []
    for kind, own in _by_kind(steps, client.machine.name).items():
        busy += await KINDS[kind].unrest(world, client, own)
    return busy


async def _perform(world: SimulatedWorld, client: ApiClient, steps: Sequence[LoadStep], begin: float) -> None:
    for step in steps:
        await world.loop.pause(max(0.0, begin + step.at - world.loop.time()))
        await KINDS[step.kind].perform(world, client, step)


def count_units(journal: Journal, steps: Sequence[LoadStep]) -> dict[str, tuple[int, int]]:
    """Return by kind of load how many units were planned, and how many of them were acknowledged.

    A unit of emits is a question; one of another kind is a step that names it. Kinds without units are left out.
    """
    emits = [asked for asked in journal.of(ALWAYS.name) if not asked.path.startswith(PUBLISH_PATH)]
    counts = {ALWAYS.name: (_count(steps, ALWAYS.name), sum(asked.is_good for asked in emits))}
    good = {(asked.host, asked.unit) for asked in journal.asked if asked.unit and asked.is_good}
    for kind in KINDS:
        own = [(step.host, f"{kind} {step.data[UNIT]}") for step in steps if step.kind == kind and UNIT in step.data]
        if own:
            counts[kind] = len(own), sum(each in good for each in own)
    return counts


def _count(steps: Sequence[LoadStep], kind: str) -> int:
    return sum(step.kind == kind for step in steps)
