"""Routers between topics: with a filter, from several sources into one topic, in cycles, and from the group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from eventd.simulation.load.step import KEY_MILLISECONDS, LANE, UNIT, LoadKind, LoadStep
from eventd.simulation.load.topic_list import list_topic
from eventd.simulation.world.requests import ApiClient
from eventd.simulation.world.streams import Stream
from eventd.simulation.world.topology import GROUP, Topology
from eventd.simulation.world.world import SimulatedWorld

ROUTE_WRITE: Final = "route write"
ROUTE_TOPIC: Final = "topic"
"""The kind of journal entry of the declaration of a topic with its class of durability."""
ROUTE_LISTING: Final = "route listing"
"""The kind of journal entry of a topic that routers lead from or to."""
ROUTER: Final = "router"
FROM_GROUP: Final = "route-events"
"""The topic of the copies of the group's events."""
GROUP_TOPIC: Final = f"group:{GROUP}"
FILTERED: Final = ("tag", "Glob", "a:*")
WRITTEN: Final = ("route-in-1", "route-in-2", "loop-a", "loop-b", "hops-a")
"""The topics that clients write to."""
ROUTERS: Final[dict[str, dict[str, Any]]] = {
    "exact": {"source": "route-in-1", "dest": "route-exact", "guarantee": "exactly_once"},
    "filtered": {"source": "route-in-1", "dest": "route-merge", "filter": FILTERED, "fan_in": True},
    "whole": {"source": "route-in-2", "dest": "route-merge", "fan_in": True},
    "onward": {"source": "route-merge", "dest": "route-end"},
    "loop-there": {"source": "loop-a", "dest": "loop-b", "fan_in": True},
    "loop-back": {"source": "loop-b", "dest": "loop-a", "fan_in": True},
    "hops-there": {"source": "hops-a", "dest": "hops-b", "allow_cycle": True},
    "hops-back": {"source": "hops-b", "dest": "hops-a", "allow_cycle": True},
    "events": {"source": GROUP_TOPIC, "dest": FROM_GROUP},
}
"""The routers of a node, by name."""
LISTED: Final = (
    *("route-end", "route-exact", "route-merge", "loop-b", "hops-b", FROM_GROUP),
    *("loop-a", "hops-a", "route-in-1", "route-in-2", GROUP_TOPIC),
)
"""The topics in the order in which they are listed: those that are copied to before those that they are copied from."""
_CLASSES: Final = ("fsync", "disk", "memory")
_NOT_FOUND: Final = 404
_SETUP: Final = "setup"
_SETUP_TRIES: Final = 40
_TRIES: Final = (4, 8)
_PAUSE: Final = 0.4


class Routes(LoadKind):
    """The load of a graph of routers at each node."""

    name = "route"

    def draw(self, stream: Stream, topology: Topology, host: str, seconds: float) -> Iterator[LoadStep]:
        topics = dict.fromkeys(topic for each in ROUTERS.values() for topic in (each["source"], each["dest"]))
        classes = {topic: stream.choice(_CLASSES) for topic in topics if topic != GROUP_TOPIC}
        worst = max(classes.values(), key=lambda name: name != "fsync")
        at = stream.uniform(0.0, 0.5)
        yield LoadStep(round(at, 6), self.name, host, {UNIT: _SETUP, "classes": classes, "durability": worst})
        mean = stream.choice((0.2, 0.5, 1.0))
        number = 0
        while (at := at + stream.expovariate(1 / mean)) < seconds:
            if stream.random() < 0.1:
                yield LoadStep(round(at, 6), self.name, host, {LANE: "reader"})
                continue
            count = stream.choice((1, 1, 3, 12))
            topic = stream.choice(WRITTEN)
            data = {UNIT: str(number), "topic": topic, "first": number, "count": count, "tries": stream.choice(_TRIES)}
            yield LoadStep(round(at, 6), self.name, host, data)
            number += count

    async def perform(self, world: SimulatedWorld, client: ApiClient, step: LoadStep) -> None:
        if step.data.get(UNIT) == _SETUP:
            await _set_up(world, client, step.data["classes"])
        elif "first" in step.data:
            await _write(world, client, step.data)
        else:
            await _list(world, client)

    async def look(self, world: SimulatedWorld, client: ApiClient, steps: Sequence[LoadStep]) -> bool:
        return await _list(world, client)

    async def renew(self, world: SimulatedWorld, client: ApiClient, steps: Sequence[LoadStep]) -> None:
        for step in steps:
            if step.data.get(UNIT) == _SETUP:
                await _set_up(world, client, step.data["classes"])

    async def unrest(self, world: SimulatedWorld, client: ApiClient, steps: Sequence[LoadStep]) -> list[str]:
        """Say which router has records to copy."""
        for name in ROUTERS:
            reply = await client.ask("router state", "GET", f"/v0/routers/{name}")
            if reply.is_good and reply.document["lag"]:
                return [f"{client.machine.name}: router {name} has {reply.document['lag']} records to copy"]
            if not reply.is_good and reply.status != _NOT_FOUND:
                return [f"{client.machine.name} answers {reply.status}"]
        return []


async def _list(world: SimulatedWorld, client: ApiClient) -> bool:
    return all([await list_topic(world, client, topic, ROUTE_LISTING) for topic in LISTED])


async def _set_up(world: SimulatedWorld, client: ApiClient, classes: dict[str, str]) -> None:
    """Create the topics, each with its class of durability, and then the routers; nothing is written before."""
    for topic, durability in classes.items():
        config = {"durability": durability, "idempotency_window_ms": KEY_MILLISECONDS}
        await _insist(world, client, ROUTE_TOPIC, f"/v0/topics/{topic}", config)
    for name, router in ROUTERS.items():
        await _insist(world, client, ROUTER, f"/v0/routers/{name}", router, f"route {_SETUP}")


async def _insist(
    world: SimulatedWorld, client: ApiClient, kind: str, path: str, document: dict[str, Any], unit: str = ""
) -> None:
    """Ask until the node has done it. Raises TimeoutError if it does not."""
    for _ in range(_SETUP_TRIES):
        reply = await client.ask(kind, "PUT", path, document, seconds=5.0, unit=unit)
        if reply.is_good:
            return
        await world.loop.pause(_PAUSE)
    raise TimeoutError(f"{client.machine.name} does not take {path}")


async def _write(world: SimulatedWorld, client: ApiClient, data: dict[str, Any]) -> None:
    numbers = range(data["first"], data["first"] + data["count"])
    question: dict[str, Any] = {"records": [route_record(number, data["topic"]) for number in numbers]}
    question["idempotency_key"] = f"route {data['first']}"
    for _ in range(data["tries"]):
        path = f"/v0/topics/{data['topic']}"
        reply = await client.ask(ROUTE_WRITE, "POST", path, question, seconds=5.0, unit=f"route {data[UNIT]}")
        if reply.is_good or 400 <= reply.status < 500:
            return
        await world.loop.pause(_PAUSE)


def route_record(number: int, topic: str) -> dict[str, Any]:
    """Return the record with a number, which is unique at its node, as it is first written to a topic."""
    data = {"number": number, "first": topic, "text": "x" * (number * 53 % 200)}
    return {"data": data, "tag": f"{'ab'[number % 2]}:{number % 5}"}
