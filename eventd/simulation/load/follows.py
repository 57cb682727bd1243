"""Readers that follow a topic page by page, and continue from their last page after whatever happens to the node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from eventd.simulation.load.step import LoadKind, LoadStep
from eventd.simulation.load.topic_writes import CLASSES, topic_of
from eventd.simulation.world.requests import ApiClient
from eventd.simulation.world.streams import Stream
from eventd.simulation.world.topology import GROUP, Topology
from eventd.simulation.world.world import SimulatedWorld

FOLLOW: Final = "follow"
"""The kind of journal entry of a page; its question has the reader's position and epoch."""
_LIMITS: Final = (1, 5, 1000)
_WAITS: Final = (0, 300, 3000)
"""Milliseconds that a page waits for a record."""
_NOT_FOUND: Final = 404


class Follows(LoadKind):
    """The load of one reader for each node and topic: also of the group's events, which are a topic."""

    name = FOLLOW

    def draw(self, stream: Stream, topology: Topology, host: str, seconds: float) -> Iterator[LoadStep]:
        topic = stream.choice([f"group:{GROUP}", *map(topic_of, CLASSES)])
        mean = stream.choice((0.1, 0.5, 2.0))
        at = stream.expovariate(1 / mean)
        while at < seconds:
            data = {"topic": topic, "limit": stream.choice(_LIMITS), "wait": stream.choice(_WAITS)}
            yield LoadStep(round(at, 6), self.name, host, data)
            at += stream.expovariate(1 / mean)

    async def perform(self, world: SimulatedWorld, client: ApiClient, step: LoadStep) -> None:
        await _next_page(client, world, **step.data)

    async def look(self, world: SimulatedWorld, client: ApiClient, steps: Sequence[LoadStep]) -> bool:
        for topic in dict.fromkeys(step.data["topic"] for step in steps):
            while True:
                page = await _next_page(client, world, topic, _LIMITS[-1], 0)
                if page is None:
                    return False
                if page["caught_up"]:
                    break
        return True


async def _next_page(client: ApiClient, world: SimulatedWorld, topic: str, limit: int, wait: int) -> Any:
    """Ask for the page after the last one; return None without an answer."""
    question: dict[str, Any] = {"from_seq": 0, "limit": limit, "wait_ms": wait}
    path = f"/v0/topics/{topic}/diff"
    for asked in reversed(world.journal.asked):
        if (asked.kind, asked.host, asked.path) == (FOLLOW, client.machine.name, path) and asked.is_good:
            question |= {"from_seq": asked.answer["next_from_seq"], "epoch": asked.answer["epoch"]}
            break
    reply = await client.ask(FOLLOW, "POST", path, question, seconds=wait / 1000 + 5.0)
    if reply.status == _NOT_FOUND:
        return {"caught_up": True}
    return reply.document if reply.is_good else None
