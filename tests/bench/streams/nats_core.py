"""NATS without JetStream, through nats-py: it stores nothing, and a slow subscriber loses messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from tests.bench.streams.load import WARM_UP, Latencies, Rate, number_of, payload, require_all

SUBJECT = "bench"
PENDING = 1 << 30
"""Bytes and messages that a subscription may hold: so many that none is lost."""
AHEAD = 20_000
"""Messages by which publishers may be ahead of the subscriber: NATS itself does not slow them down."""


@asynccontextmanager
async def _connected(port: int) -> AsyncIterator[Any]:
    import nats

    link = await nats.connect(f"nats://127.0.0.1:{port}", allow_reconnect=False, pending_size=64 << 20)
    try:
        yield link
    finally:
        await link.close()


async def latency(port: int, size: int, count: int, fanout: int) -> Latencies:
    """Return the times from publishing one message to its last delivery, one message at a time."""
    taken = []
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(_connected(port))
        arrived, missing = asyncio.Event(), 0

        async def receive(message: Any) -> None:
            nonlocal missing
            missing -= 1
            if not missing:
                arrived.set()

        for _ in range(fanout):
            link = await stack.enter_async_context(_connected(port))
            await link.subscribe(SUBJECT, cb=receive)
            await link.flush()
        for number in range(WARM_UP + count):
            arrived.clear()
            missing = fanout
            begun = time.perf_counter()
            await publisher.publish(SUBJECT, payload(number, size))
            await arrived.wait()
            if number >= WARM_UP:
                taken.append(time.perf_counter() - begun)
    return Latencies.of(taken)


async def throughput(port: int, size: int, count: int, connections: int) -> Rate:
    """Return the delivered messages per second, from the first publish to the last delivery; each arrives."""
    per_connection = count // connections
    async with AsyncExitStack() as stack:
        reader = await stack.enter_async_context(_connected(port))
        received: list[list[int]] = [[] for _ in range(connections)]
        total, done, room = 0, asyncio.Event(), asyncio.Event()

        async def receive(message: Any) -> None:
            nonlocal total
            received[int(message.subject.rpartition(".")[2])].append(number_of(message.data))
            total += 1
            room.set()
            if total == per_connection * connections:
                done.set()

        await reader.subscribe(f"{SUBJECT}.*", cb=receive, pending_msgs_limit=PENDING, pending_bytes_limit=PENDING)
        await reader.flush()
        links = [await stack.enter_async_context(_connected(port)) for _ in range(connections)]
        published = 0

        async def publish(index: int) -> None:
            nonlocal published
            for number in range(per_connection):
                await links[index].publish(f"{SUBJECT}.{index}", payload(number, size))
                published += 1
                while published - total > AHEAD:
                    room.clear()
                    await room.wait()

        rate = Rate.begin()
        async with asyncio.TaskGroup() as tasks:
            for index in range(connections):
                tasks.create_task(publish(index))
        await done.wait()
        rate.end(per_connection * connections)
    for numbers in received:
        require_all(numbers, per_connection)
    return rate
