"""Writes to topics of each durability, with and without idempotency keys, and reads of them between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from eventd.simulation.load.step import KEY_MILLISECONDS, LoadKind, LoadStep
from eventd.simulation.load.topic_list import list_topic
from eventd.simulation.world.requests import ApiClient
from eventd.simulation.world.streams import Stream
from eventd.simulation.world.topology import Topology
from eventd.simulation.world.world import SimulatedWorld

CLASSES: Final = ("fsync", "disk", "memory")
"""The classes of durability that a topic may have here."""
_SIZES: Final = ((1, 1), (2, 5), (6, 40))
_PAUSES: Final = (0.2, 0.4, 0.8, 1.6, 3.2)
_BURST: Final = 0.01
"""Mean seconds between writes that follow each other at once, before anything else has synced the disk."""
_READS: Final = 0.3
"""The share of steps that only read a topic."""


class TopicWrites(LoadKind):
    """The load of clients that write to topics; with a key, they try again when they get no answer."""

    name = "write"

    def draw(self, stream: Stream, topology: Topology, host: str, seconds: float) -> Iterator[LoadStep]:
        topics = {topic_of(name): name for name in stream.sample(CLASSES, stream.randint(1, len(CLASSES)))}
        mean = stream.choice((0.4, 1.0, 2.0))
        number = 0
        at = stream.expovariate(1 / mean)
        while at < seconds:
            topic = stream.choice(list(topics))
            data: dict[str, Any] = {"topic": topic, "durability": topics[topic]}
            if stream.random() >= _READS:
                count = stream.randint(*stream.choices(_SIZES, (5, 3, 1))[0])
                key = f"{host}-{number}" if stream.random() < 0.6 else ""
                tries = stream.choice((1, 4, 8)) if key else 1
                data |= {"first": number, "count": count, "key": key, "tries": tries}
                number += count
            yield LoadStep(round(at, 6), self.name, host, data)
            at += stream.expovariate(1 / (mean if stream.random() < 0.5 else _BURST))

    async def perform(self, world: SimulatedWorld, client: ApiClient, step: LoadStep) -> None:
        topic = step.data["topic"]
        if "count" not in step.data:
            await list_topic(world, client, topic)
            return
        question = _question(step.data)
        for attempt in range(step.data["tries"]):
            if attempt:
                await world.loop.pause(_PAUSES[min(attempt, len(_PAUSES)) - 1])
            reply = await client.ask(self.name, "POST", f"/v0/topics/{topic}", question, seconds=5.0)
            if reply.is_good or 400 <= reply.status < 500:
                return

    async def look(self, world: SimulatedWorld, client: ApiClient, steps: Sequence[LoadStep]) -> bool:
        topics = dict.fromkeys(step.data["topic"] for step in steps)
        return all([await list_topic(world, client, topic) for topic in topics])


def _question(data: dict[str, Any]) -> dict[str, Any]:
    numbers = range(data["first"], data["first"] + data["count"])
    question: dict[str, Any] = {"records": [{"data": record(number)} for number in numbers]}
    question["config"] = {"durability": data["durability"], "idempotency_window_ms": KEY_MILLISECONDS}
    if data["key"]:
        question["idempotency_key"] = data["key"]
    return question


def topic_of(durability: str) -> str:
    """Return the name of the topic of a class of durability."""
    return f"{durability}-records"


def record(number: int) -> dict[str, Any]:
    """Return the data of the record with a number, which is unique at its node."""
    return {"number": number, "text": "x" * (number * 53 % 300)}
