"""Workers of queues: they claim jobs, and ack or return them, sometimes too late, or let their leases end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from eventd.simulation.load.step import KEY_MILLISECONDS, LoadKind, LoadStep
from eventd.simulation.load.topic_list import list_topic
from eventd.simulation.world.requests import ApiClient
from eventd.simulation.world.streams import Stream
from eventd.simulation.world.topology import Topology
from eventd.simulation.world.world import SimulatedWorld

QUEUE: Final = "jobs"
DEAD_LETTERS: Final = "failed-jobs"
DELIVERIES: Final = 4
"""How often a job is handed out before it becomes a dead letter."""
CLAIM: Final = "claim"
JOB_LISTING: Final = "job listing"
"""The kind of journal entry of a whole queue, or of its dead letters."""
_LEASES: Final = (100, 400, 5000)
"""Milliseconds of leases: the first end before a worker is done."""
_TRIES: Final = 8
_PAUSE: Final = 0.4


class QueueJobs(LoadKind):
    """The load of a queue at each node: its jobs, and the workers that claim them."""

    name = "queue"

    def draw(self, stream: Stream, topology: Topology, host: str, seconds: float) -> Iterator[LoadStep]:
        mean = stream.choice((0.2, 0.5))
        durable = stream.random() < 0.5
        number = 0
        at = stream.expovariate(1 / mean)
        while at < seconds:
            data: dict[str, Any] = {"durable": durable}
            if number == 0 or stream.random() < 0.4:
                count = stream.choice((1, 2, 10))
                data |= {"first": number, "count": count}
                number += count
            elif stream.random() < 0.5:
                data |= {"worker": f"worker-{stream.randint(1, 3)}", "lease": stream.choice(_LEASES)}
                data["most"] = stream.choice((1, 3, 20))
            else:
                data |= {"deed": stream.choices(("ack", "nack"), (3, 1))[0], "back": stream.choice((1, 1, 2, 3))}
            yield LoadStep(round(at, 6), self.name, host, data)
            at += stream.expovariate(1 / mean)

    async def perform(self, world: SimulatedWorld, client: ApiClient, step: LoadStep) -> None:
        data = step.data
        if "count" in data:
            await self._write(world, client, step)
        elif "deed" in data:
            await _settle(world, client, data["deed"], data["back"])
        else:
            question = {"node": data["worker"], "max": data["most"], "lease_ms": data["lease"]}
            await client.ask(CLAIM, "POST", f"/v0/topics/{QUEUE}/claim", question)

    async def _write(self, world: SimulatedWorld, client: ApiClient, step: LoadStep) -> None:
        numbers = range(step.data["first"], step.data["first"] + step.data["count"])
        config = {"type": "queue", "durability": "fsync", "idempotency_window_ms": KEY_MILLISECONDS}
        config |= {"dead_letter": DEAD_LETTERS, "max_deliveries": DELIVERIES, "leases_durable": step.data["durable"]}
        question = {"records": [{"data": {"number": number}} for number in numbers], "config": config}
        question["idempotency_key"] = f"jobs {step.data['first']}"
        for _ in range(_TRIES):
            reply = await client.ask("job", "POST", f"/v0/topics/{QUEUE}", question, seconds=5.0)
            if reply.is_good or 400 <= reply.status < 500:
                return
            await world.loop.pause(_PAUSE)

    async def look(self, world: SimulatedWorld, client: ApiClient, steps: Sequence[LoadStep]) -> bool:
        return all([await list_topic(world, client, topic, JOB_LISTING) for topic in (QUEUE, DEAD_LETTERS)])


async def _settle(world: SimulatedWorld, client: ApiClient, deed: str, back: int) -> None:
    """Ack or return the jobs of the last claim but `back` - 1, whether its leases still hold or not."""
    own = [each for each in world.journal.of(CLAIM) if each.host == client.machine.name and each.is_good]
    claims = [each for each in own if each.answer["claimed"]]
    if len(claims) < back:
        return
    jobs = claims[-back].answer["claimed"]
    question: dict[str, Any] = {"node": claims[-back].question["node"], "seqs": [job["$seq"] for job in jobs]}
    question["lease_ids"] = [job["lease_id"] for job in jobs]
    await client.ask(deed, "POST", f"/v0/topics/{QUEUE}/{deed}", question)
