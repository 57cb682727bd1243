"""Redis through redis-py: a cache in memory, without its append-only file."""

from __future__ import annotations

import asyncio
import time

from tests.bench.streams.load import WARM_UP, Latencies, Rate

KEYS = 1024


def _client(port: int):  # type: ignore[no-untyped-def]
    import redis.asyncio as redis

    return redis.Redis(host="127.0.0.1", port=port, protocol=2)


async def latency(port: int, operation: str, size: int, count: int) -> Latencies:
    """Return the times of `get` (of keys that are there) or `put`, one at a time."""
    taken, value = [], bytes(size)
    async with _client(port) as client:
        for key in range(KEYS):
            await client.set(f"k{key}", value)
        for number in range(WARM_UP + count):
            key = f"k{number % KEYS}"
            begun = time.perf_counter()
            if operation == "get":
                found = await client.get(key)
            else:
                found = value if await client.set(key, value) else b"?"
            if number >= WARM_UP:
                taken.append(time.perf_counter() - begun)
            if found != value:
                raise AssertionError(f"{key} was not {operation} right")
    return Latencies.of(taken)


async def pipelined(port: int, size: int, count: int, outstanding: int, connections: int = 1) -> Rate:
    """Return the gets per second, in pipelines of `outstanding`, over so many connections at the same time."""
    value = bytes(size)

    async def run(client, share: int) -> None:  # type: ignore[no-untyped-def]
        for begun in range(0, share, outstanding):
            pipeline = client.pipeline(transaction=False)
            for number in range(begun, begun + outstanding):
                pipeline.get(f"k{number % KEYS}")
            if any(found != value for found in await pipeline.execute()):
                raise AssertionError("a value differs")

    clients = [_client(port) for _ in range(connections)]
    try:
        for key in range(KEYS):
            await clients[0].set(f"k{key}", value)
        rate, share = Rate.begin(), count // connections
        share -= share % outstanding
        async with asyncio.TaskGroup() as tasks:
            for client in clients:
                tasks.create_task(run(client, share))
        return rate.end(share * connections)
    finally:
        for client in clients:
            await client.aclose()
