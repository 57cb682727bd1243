"""Our streams and caches through our client: programs on another core than the node's."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from eventd.client import StreamClient
from eventd.client.streams.subscribing import Subscription
from eventd.client.streams.values import Event
from tests.bench.streams.load import WARM_UP, Latencies, Rate, number_of, payload, require_all

AHEAD = 20_000
"""Records by which publishers may be ahead of the subscriber, as with other contestants."""
BATCH = 64
CROWD_WARM_UP, FILLER = 30, 16 << 10
"""Records before a crowd is measured, and their size: they fill what those that do not read may have unsent."""
CROWD_PAUSE = 0.02
KEYS = 1024
TENANT = "bench"
CACHE = "default/bench"


def client(port: int, **options: int) -> StreamClient:
    """Return a client; the node is on this machine, so its certificate is not verified."""
    return StreamClient(f"127.0.0.1:{port}", TENANT, verify=False, **options)


@asynccontextmanager
async def _subscribed(port: int, stream: str) -> AsyncIterator[Subscription]:
    async with client(port, connections=1) as streams, streams.subscribe(stream) as subscription:
        yield subscription


async def latency(port: int, stream: str, size: int, count: int, fanout: int) -> Latencies:
    """Return the times from publishing one acknowledged record to its last delivery, one record at a time."""
    taken = []
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(client(port, connections=1))
        arrived, missing = asyncio.Event(), 0

        async def receive(subscription: Subscription) -> None:
            nonlocal missing
            async for _ in subscription:
                missing -= 1
                if not missing:
                    arrived.set()

        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        running = [
            tasks.create_task(receive(await stack.enter_async_context(_subscribed(port, stream))))
            for _ in range(fanout)
        ]
        for number in range(WARM_UP + count):
            arrived.clear()
            missing = fanout
            begun = time.perf_counter()
            await publisher.publish(stream, payload(number, size))
            await arrived.wait()
            if number >= WARM_UP:
                taken.append(time.perf_counter() - begun)
        for task in running:
            task.cancel()
    return Latencies.of(taken)


async def throughput(
    port: int, size: int, count: int, *, streams: int, connections: int, fanout: int = 1, stalled: int = 0
) -> Rate:
    """Return the delivered records per second of each subscriber, from the first publish to the last delivery.

    Batches of 64 go to `streams` streams unacknowledged. `fanout` subscribers read each of them, and every record
    arrives at each. `stalled` further processes subscribe to the first stream and are then stopped by a signal.
    """
    per_stream = count // streams // BATCH * BATCH
    names = [f"default/s{number}" for number in range(streams)]
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(
            client(port, connections=connections, publish_streams=2 * connections)
        )
        got = [[0] * fanout for _ in names]
        slowest, room = 0, asyncio.Event()

        async def receive(index: int, place: int, subscription: Subscription) -> None:
            nonlocal slowest
            numbers = []
            while len(numbers) < per_stream:
                for sight in await subscription.take():
                    assert isinstance(sight, Event), sight
                    numbers.append(number_of(sight.payload))
                got[index][place] = len(numbers)
                slowest = min(map(min, got))
                room.set()
            require_all(numbers, per_stream)

        async def publish(index: int) -> None:
            for begun in range(0, per_stream, BATCH):
                batch = [payload(number, size) for number in range(begun, begun + BATCH)]
                await publisher.publish_batch(names[index], batch, ack=False)
                while begun - slowest > AHEAD // streams:
                    room.clear()
                    await room.wait()

        stopped = [await stack.enter_async_context(_stalled(port, names[0])) for _ in range(stalled)]
        for each in stopped:
            each.send_signal(signal.SIGSTOP)
        subscriptions = [
            (index, place, await stack.enter_async_context(_subscribed(port, name)))
            for index, name in enumerate(names)
            for place in range(fanout)
        ]
        rate = Rate.begin()
        async with asyncio.TaskGroup() as tasks:
            for index, place, subscription in subscriptions:
                tasks.create_task(receive(index, place, subscription))
            for index in range(streams):
                tasks.create_task(publish(index))
        return rate.end(per_stream * streams)


async def crowd(port: int, stream: str, subscribers: int, stalled: int, count: int) -> Latencies:
    """Return the times from publishing a record to each of its deliveries, of which there are `subscribers` for each.

    One record is published after the other, at a steady pace. `stalled` further subscribers do not read.
    """
    taken: list[float] = []
    async with AsyncExitStack() as stack:
        if stalled:
            (await stack.enter_async_context(_stalled(port, stream, stalled))).send_signal(signal.SIGSTOP)
        publisher = await stack.enter_async_context(client(port, connections=1))
        reader = await stack.enter_async_context(client(port))
        missing, arrived = 0, asyncio.Event()

        async def receive(subscription: Subscription) -> None:
            nonlocal missing
            async for sight in subscription:
                assert isinstance(sight, Event), sight
                begun = begins.get(number_of(sight.payload))
                if begun is not None:
                    taken.append(time.perf_counter() - begun)
                missing -= 1
                if not missing:
                    arrived.set()

        begins: dict[int, float] = {}
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        running = [
            tasks.create_task(receive(await stack.enter_async_context(reader.subscribe(stream))))
            for _ in range(subscribers)
        ]
        for number in range(CROWD_WARM_UP + count):
            missing = subscribers
            arrived.clear()
            if number >= CROWD_WARM_UP:
                begins[number] = time.perf_counter()
            await publisher.publish(stream, payload(number, FILLER if number < CROWD_WARM_UP else 64))
            await arrived.wait()
            await asyncio.sleep(CROWD_PAUSE)
        for task in running:
            task.cancel()
    if len(taken) != subscribers * count:
        raise AssertionError(f"{len(taken)} deliveries of {subscribers * count}")
    return Latencies.of(taken)


@asynccontextmanager
async def _stalled(port: int, stream: str, subscriptions: int = 1) -> AsyncIterator[asyncio.subprocess.Process]:
    """Yield a process that subscribes and has said so."""
    command = [sys.executable, "-m", "tests.bench.streams.own", str(port), stream, str(subscriptions)]
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=dict(os.environ))
    try:
        assert child.stdout is not None
        await child.stdout.readline()
        yield child
    finally:
        child.kill()
        await child.wait()


async def cache_latency(port: int, operation: str, size: int, count: int) -> Latencies:
    """Return the times of `get` (of keys that are there) or `put`, one at a time."""
    taken, value = [], bytes(size)
    async with client(port, connections=1, cache_streams=1) as streams:
        cache = streams.cache(CACHE)
        for key in range(KEYS):
            await cache.put(f"k{key}", value)
        for number in range(WARM_UP + count):
            key, found = f"k{number % KEYS}", None
            begun = time.perf_counter()
            if operation == "get":
                found = await cache.get(key)
            else:
                await cache.put(key, value)
            if number >= WARM_UP:
                taken.append(time.perf_counter() - begun)
            if operation == "get" and found != value:
                raise AssertionError(f"{key} has another value")
    return Latencies.of(taken)


async def cache_pipelined(
    port: int, size: int, count: int, outstanding: int, connections: int = 1, streams: int = 1
) -> Rate:
    """Return the gets per second with so many under way in all."""
    value = bytes(size)
    async with client(port, connections=connections, cache_streams=connections * streams) as one:
        cache = one.cache(CACHE)
        for key in range(KEYS):
            await cache.put(f"k{key}", value)

        async def run(first: int) -> None:
            for number in range(first, count, outstanding):
                if await cache.get(f"k{number % KEYS}") != value:
                    raise AssertionError("a value differs")

        rate = Rate.begin()
        async with asyncio.TaskGroup() as tasks:
            for first in range(outstanding):
                tasks.create_task(run(first))
        return rate.end(count)


async def _stall(port: int, stream: str, subscriptions: int) -> None:
    async with client(port) as streams, AsyncExitStack() as stack:
        for _ in range(subscriptions):
            await stack.enter_async_context(streams.subscribe(stream))
        print("subscribed", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_stall(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
