"""kill -9 of a node at any moment while the client publishes and follows: every acknowledged record is there once, and
each subscription gives every event once and in order."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventd.client import At, Event, Published, StreamClient, StreamGap, Subscription
from tests.support.ports import free_port
from tests.support.processes import Processes
from tests.support.stream_nodes import TENANT, StreamNode

STREAM = "default/orders"
LAST = b"the last one"
PATIENCE = 60.0


class KilledNode:
    """A node with a fixed port for streams, and what clients of it got."""

    def __init__(self, processes: Processes, **options: str | None) -> None:
        self.server = f"127.0.0.1:{free_port()}"
        self.node = StreamNode(processes, "one", EVENTD_QUIC_LISTEN=self.server, **options)
        self.node.create(STREAM, durability="fsync")
        self.acknowledged: dict[bytes, Published] = {}

    def client(self, **options: int) -> StreamClient:
        token = self.node.maker.token()
        return StreamClient(self.server, TENANT, lambda: token, verify=False, keep_alive=1.0, **options)  # type: ignore[arg-type]

    async def publish(self, streams: StreamClient, writer: int, end: asyncio.Event, sizes: Iterator[int]) -> None:
        """Publish batches until the end; each record says who wrote it, and its number."""
        number = 0
        while not end.is_set():
            payloads = [f"{writer}-{number + at}".encode() for at in range(next(sizes))]
            done = await streams.publish_batch(STREAM, payloads)
            assert done.offset is not None
            for at, payload in enumerate(payloads):
                self.acknowledged[payload] = Published(done.offset + at, 1, done.durability, done.epoch)
            number += len(payloads)

    async def crash(self, chance: random.Random) -> None:
        await asyncio.sleep(0.2 + chance.random())
        await asyncio.to_thread(self.node.kill9)
        await asyncio.to_thread(self.node.start)


async def follow(subscription: Subscription) -> list[Event]:
    """Return the events of a subscription up to the last one; it must not have a gap."""
    found: list[Event] = []
    async for sight in subscription:
        assert not isinstance(sight, StreamGap), sight
        found.append(sight)
        if sight.payload == LAST:
            break
    return found


async def storm(killed: KilledNode, chance: random.Random, kills: int) -> None:
    """Kill the node again and again below four publishers and three subscriptions, and compare all they have got."""
    sizes = iter(lambda: chance.choice((1, 1, 1, 5, 64, 200)), None)
    end = asyncio.Event()
    async with killed.client() as writing, killed.client() as reading:
        starts = ("earliest", "latest", "earliest")
        options = ({}, {}, {"buffer": 2000})
        opened = [reading.subscribe(STREAM, start, **more) for start, more in zip(starts, options, strict=True)]  # type: ignore[call-overload]
        for subscription in opened:
            await subscription.__aenter__()
        following = [asyncio.create_task(follow(subscription)) for subscription in opened]
        writers = [asyncio.create_task(killed.publish(writing, at, end, sizes)) for at in range(4)]
        for _ in range(kills):
            await killed.crash(chance)
        end.set()
        await asyncio.wait_for(asyncio.gather(*writers), PATIENCE)
        killed.acknowledged[LAST] = await writing.publish(STREAM, LAST)
        for events in await asyncio.wait_for(asyncio.gather(*following), PATIENCE):
            judge(killed, events)
    print(f"{kills} kills, {len(killed.acknowledged)} records of {len(writers)} publishers")  # noqa: T201


def judge(killed: KilledNode, events: list[Event]) -> None:
    """Compare the events of one subscription with what was acknowledged."""
    assert [event.offset for event in events] == [*range(len(events))], "an event is missing, doubled or out of order"
    doubled = [payload for payload, count in Counter(event.payload for event in events).items() if count > 1]
    assert doubled == []
    assert {event.payload: event.offset for event in events} == {
        payload: done.offset for payload, done in killed.acknowledged.items()
    }
    for writer in range(4):
        own = [event.payload for event in events if event.payload.startswith(b"%d-" % writer)]
        assert own == [b"%d-%d" % (writer, number) for number in range(len(own))], f"publisher {writer}: another order"


@pytest.mark.timeout(200)
def test_acknowledged_records_survive_kills_once_and_reach_every_subscription_once(
    processes: Processes, chance: random.Random
) -> None:
    killed = KilledNode(processes)
    asyncio.run(storm(killed, chance, kills=3))
    assert killed.node.faults() == []


async def lose(killed: KilledNode) -> None:
    """Kill a node that holds a stream in its memory alone; see what subscriptions before and after it are given."""
    stream = "default/fleeting"
    killed.node.create(stream, durability="ephemeral")
    async with killed.client() as streams, streams.subscribe(stream) as subscription:
        await streams.publish_batch(stream, [b"%d" % number for number in range(10)])
        assert [await anext(subscription) for _ in range(10)] == [Event(at, b"%d" % at) for at in range(10)]
        await asyncio.to_thread(killed.node.kill9)
        await asyncio.to_thread(killed.node.start)
        done = await streams.publish(stream, b"new")
        async with asyncio.timeout(PATIENCE):
            assert await anext(subscription) == Event(10, b"new")
        async with streams.subscribe(stream, At(3), epoch=done.epoch) as late:
            gap = await anext(late)
            assert isinstance(gap, StreamGap)
            assert (gap.first, gap.last, gap.missed) == (3, 9, 7)
            assert await anext(late) == Event(10, b"new")


def test_what_a_kill_takes_from_a_stream_in_memory_is_given_as_a_gap(processes: Processes) -> None:
    killed = KilledNode(processes)
    asyncio.run(lose(killed))
    assert killed.node.faults() == []


def test_the_certificate_that_a_node_made_is_trusted_by_its_file(processes: Processes) -> None:
    node = StreamNode(processes, "one")
    certificate = next((Path(node.data) / "quic").glob("*.crt"))

    async def reach() -> None:
        async with StreamClient(
            f"localhost:{node.streams_port}", TENANT, node.maker.token(), ca=certificate
        ) as streams:
            await streams.reach()

    asyncio.run(reach())
