"""kill -9 of a node at any moment while clients publish and subscribe: what was acknowledged is delivered, once."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, field

import pytest

from tests.support.aioquic_client import StreamOver
from tests.support.felix_wire import message, publish_acked, read_ack, scope
from tests.support.ports import free_port
from tests.support.processes import Processes
from tests.support.stream_nodes import Session, StreamNode, Subscription, session, topic

STREAMS = {"orders": "fsync", "notes": "disk", "fast": "memory", "gone": "ephemeral"}
LOST = (ConnectionError, TimeoutError, StreamOver)
"""What a client sees of a node that is killed."""


@dataclass
class Publisher:
    """Publishes batches under the ids of a session; one without an answer is sent again, over a new connection."""

    node: StreamNode
    where: str
    number: int
    chance: random.Random
    end: asyncio.Event
    acknowledged: dict[int, tuple[int, list[bytes]]] = field(default_factory=dict)
    """For each id, the offset that was answered, and the payloads."""
    repeated: int = 0

    async def run(self) -> None:
        waiting: list[tuple[int, list[bytes]]] = []
        while not self.end.is_set() or waiting:
            try:
                async with session(self.node, seconds=2) as line:
                    await self._serve(line, waiting)
            except LOST:
                self.repeated += len(waiting)
                await asyncio.sleep(0.05)

    async def _serve(self, line: Session, waiting: list[tuple[int, list[bytes]]]) -> None:
        """Publish until the end, with a few batches on their way."""
        stream = await line.stream(ext=["session", "receipt"], session=f"w{self.number}")
        for id, payloads in waiting:
            stream.write(publish_acked(id, self.where, *payloads))
        while waiting or not self.end.is_set():
            while len(waiting) < 4 and not self.end.is_set():
                id = len(self.acknowledged) + len(waiting)
                count = self.chance.randint(1, 12)
                payloads = [b"%d/%d/%d" % (self.number, id, part) for part in range(count)]
                waiting.append((id, payloads))
                stream.write(publish_acked(id, self.where, *payloads))
            ack = read_ack(await stream.frame(3))
            id, payloads = waiting[0]
            assert (ack.status, ack.request_id) == (0, id), ack
            receipt = json.loads(ack.message)
            assert receipt["count"] == len(payloads)
            self.acknowledged[id] = (receipt["offset"], payloads)
            del waiting[0]


@dataclass
class Reader:
    """Subscribes, and resumes after each break where it was: `seen` and `gaps` over all of its subscriptions."""

    node: StreamNode
    where: str
    seen: dict[int, bytes] = field(default_factory=dict)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    next: int = 0
    breaks: int = 0
    epoch: str = ""

    async def run(self) -> None:
        while True:
            try:
                async with session(self.node, seconds=2) as line:
                    await self._follow(line)
            except LOST:
                self.breaks += 1
                await asyncio.sleep(0.05)

    async def _follow(self, line: Session) -> None:
        stream = await line.stream(ext=["gap"])
        known = {"epoch": self.epoch} if self.epoch else {}
        asked = message("subscribe", **scope(self.where), start={"offset": self.next}, on_gap="tell", **known)
        answer = await stream.ask(asked)
        assert answer["type"] == "subscribed", answer
        self.epoch = answer["epoch"]
        events = await line.client.take_opened()
        assert (await events.message())["type"] == "event_stream_hello"
        reading = Subscription(events, answer)
        while True:
            try:
                await reading.step(1)
            except TimeoutError:
                await line.client.alive(1)
                continue
            self._take(reading)

    def _take(self, reading: Subscription) -> None:
        for gap in reading.gaps:
            assert gap["from"] == self.next, f"{self.where}: a gap from {gap['from']}, after {self.next - 1}"
            self.gaps.append((gap["from"], gap["to"]))
            self.next = gap["to"] + 1
        for offset, payload in reading.seen:
            assert offset == self.next, f"{self.where}: {offset} after {self.next - 1}"
            self.seen[offset] = payload
            self.next = offset + 1
        reading.gaps.clear()
        reading.seen.clear()


async def crash(node: StreamNode, chance: random.Random, *, at_start: bool) -> None:
    """Kill the node at a random moment of its work, and maybe of its next start, and start it."""
    await asyncio.sleep(chance.random() * 0.8)
    node.kill9()
    if at_start:
        node.process.start()
        await asyncio.sleep(chance.random())
        node.kill9()
    await asyncio.to_thread(node.start)


async def storm(node: StreamNode, chance: random.Random, *, kills: int) -> None:
    wheres = {node.create(f"default/{name}", durability=durability): durability for name, durability in STREAMS.items()}
    end = asyncio.Event()
    publishers = [
        Publisher(node, where, number, random.Random(chance.getrandbits(32)), end)
        for number, where in enumerate([*wheres] * 2)
    ]
    readers = [Reader(node, where) for where in [*wheres] * 2]
    reading = [asyncio.create_task(each.run()) for each in readers]
    publishing = [asyncio.create_task(each.run()) for each in publishers]
    early = chance.randrange(kills)
    try:
        for number in range(kills):
            await crash(node, chance, at_start=number == early)
        await asyncio.sleep(0.3)
        end.set()
        async with asyncio.timeout(30):
            await asyncio.gather(*publishing)
            heads = {where: node.state(topic(where))["head_seq"] for where in wheres}
            while any(each.next < heads[each.where] for each in readers):
                await asyncio.sleep(0.02)
                for task in reading:
                    if task.done():
                        task.result()
    finally:
        for task in (*reading, *publishing):
            task.cancel()
        found = await asyncio.gather(*reading, *publishing, return_exceptions=True)
    failed = [each for each in found if isinstance(each, Exception)]
    assert not failed, failed
    for where, durability in wheres.items():
        writers = [each for each in publishers if each.where == where]
        judge(node, where, durability, writers, [each for each in readers if each.where == where])
    print(f"{kills} kills; {heads}; {sum(each.repeated for each in publishers)} batches were sent again")  # noqa: T201
    assert node.faults() == []
    assert node.stop() == 0


def judge(node: StreamNode, where: str, durability: str, writers: list[Publisher], readers: list[Reader]) -> None:
    """Compare what was acknowledged, what is stored and what came."""
    told = {
        offset + at: payload
        for writer in writers
        for offset, payloads in writer.acknowledged.values()
        for at, payload in enumerate(payloads)
    }
    assert len(told) == sum(len(each[1]) for writer in writers for each in writer.acknowledged.values()), where
    if durability != "ephemeral":
        held = {each["$seq"] - 1: each["data"].encode() for each in node.records(topic(where))}
        assert held == told, f"{where}: something is lost, stored twice, or elsewhere"
    for reader in readers:
        lost = {offset for first, last in reader.gaps for offset in range(first, last + 1)}
        assert sorted([*reader.seen, *lost]) == [*range(reader.next)], where
        if durability == "ephemeral":  # told may lack what was stored, answered to nobody, and lost
            assert all(told.get(offset, payload) == payload for offset, payload in reader.seen.items()), where
        else:
            assert not lost, f"{where}: {reader.gaps}"
            assert reader.seen == told, where


@pytest.mark.timeout(150)
async def test_what_streams_acknowledged_is_delivered_once_over_kills_on_sqlite(
    processes: Processes, chance: random.Random
) -> None:
    node = StreamNode(processes, "one", EVENTD_QUIC_LISTEN=f"127.0.0.1:{free_port()}")
    await storm(node, chance, kills=3)


@pytest.mark.timeout(150)
@pytest.mark.postgres
async def test_what_streams_acknowledged_is_delivered_once_over_kills_on_postgres(
    processes: Processes, postgres_url: str, chance: random.Random
) -> None:
    listen = f"127.0.0.1:{free_port()}"
    await storm(StreamNode(processes, "one", database_url=postgres_url, EVENTD_QUIC_LISTEN=listen), chance, kills=3)
