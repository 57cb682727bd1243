"""`cache`: puts, hits or misses of a cache over QUIC. Milliseconds are those from the call to its result."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from eventd.bench.nodes import LOOK_SECONDS, pause
from eventd.bench.quic_site import NAMESPACE, TENANT, QuicNode, QuicTimes
from eventd.bench.result import UnverifiedResult
from eventd.bench.site import Site
from eventd.bench.wire import nothing_sent, now
from eventd.errors import EventdError, NotFound
from eventd.runtime.clock import SystemClock
from eventd.runtime.supervisor import Supervisor
from eventd.text.plural import counted

if TYPE_CHECKING:
    from eventd.client.streams.caching import Cache

API: Final = "stream.routerd.net/v1alpha1"
WARM_UP: Final = 200
DECLARED_SECONDS: Final = 15.0
OVERHEAD: Final = 1024
"""Bytes that an entry may take in addition to its value."""
SHOWN: Final = 3

Operation = Literal["put", "hit", "miss"]


@dataclass(frozen=True, slots=True)
class CacheShape:
    """The load that is measured: the operation, and the numbers of keys, of QUIC streams of each connection, and of
    requests under way."""

    operation: Operation = "hit"
    keys: int = 1024
    streams: int = 1
    window: int = 1


class CacheMeasurement:
    """Requests of a cache, `window` of them at a time, over `in_flight` connections with some streams each."""

    name = "cache"
    nodes = 1

    def __init__(self, shape: CacheShape) -> None:
        self._shape = shape
        self._versions = [0] * shape.keys
        self._wrong = 0
        self._examples: list[str] = []
        self._latencies: list[float] = []
        self._stack = AsyncExitStack()
        self._supervisor: Supervisor
        self._node: QuicNode
        self._cache: Cache

    def settings(self, site: Site) -> dict[str, object]:
        """Return the settings that the result shows in addition to the common ones."""
        shape = self._shape
        about = {"operation": shape.operation, "keys": shape.keys}
        return {**about, "streams": shape.streams, "window": shape.window}

    async def prepare(self, site: Site) -> None:
        """Start the node, declare the cache, and fill it."""
        (node,), wanted, shape = site.nodes, site.wanted, self._shape
        self._node = QuicNode(node)
        await node.start()
        await node.declare(_cache_of(site.name, shape.keys, wanted.size))
        self._supervisor = Supervisor(SystemClock())
        self._stack.push_async_callback(self._supervisor.stop)
        try:
            client = await self._stack.enter_async_context(
                self._node.client(connections=wanted.in_flight, cache_streams=wanted.in_flight * shape.streams)
            )
            self._cache = client.cache(f"{NAMESPACE}/{site.name}")
            await self._declared()
            for key in range(shape.keys):
                await self._put(key, wanted.size)
            for number in range(WARM_UP):
                await self._one(number % shape.keys, wanted.size)
        except BaseException:
            await self._abandon()
            raise

    async def _declared(self) -> None:
        """Wait until the node has the cache: a node creates declared caches a moment after the declaration."""
        deadline = now() + DECLARED_SECONDS
        while True:
            try:
                await self._cache.get("")
                return
            except NotFound:
                if now() > deadline:
                    raise
            await pause(LOOK_SECONDS)

    async def measure(self, site: Site) -> UnverifiedResult:
        """Send requests, `window` at a time, each after the answer to the one before."""
        self._latencies.clear()
        wanted = site.wanted
        deadline = now() + wanted.seconds if wanted.seconds else 0.0
        times = QuicTimes(self._node.node)
        try:
            tasks = [
                self._supervisor.spawn(self._run(site, place, deadline), "cache requests", expects=EventdError)
                for place in range(self._shape.window)
            ]
            for task in tasks:
                await task
        except BaseException:
            await self._abandon()
            raise
        if not self._latencies:
            raise nothing_sent()
        size = 0 if self._shape.operation == "miss" else wanted.size
        return times.result(len(self._latencies), size, self._latencies, {}, until=now())

    async def _abandon(self) -> None:
        await self._supervisor.stop()
        await self._stack.aclose()

    async def _run(self, site: Site, place: int, deadline: float) -> None:
        """Send requests one after the other, for the keys of one of the `window` concurrent senders."""
        keys, window, wanted = self._shape.keys, self._shape.window, site.wanted
        key = place
        left = len(range(place, wanted.events, window))
        while now() < deadline if deadline else left > 0:
            await self._one(key, wanted.size)
            key = key + window if key + window < keys else place
            left -= 1
            site.show("asking", len(self._latencies), 0 if deadline else wanted.events)

    async def _one(self, key: int, size: int) -> None:
        begun = now()
        if self._shape.operation == "put":
            await self._put(key, size)
            self._latencies.append(now() - begun)
            return
        is_miss = self._shape.operation == "miss"
        value = await self._cache.get(f"missing-{key}" if is_miss else f"key-{key}")
        self._latencies.append(now() - begun)
        self._check(key, value, None if is_miss else _value(key, self._versions[key], size))

    async def _put(self, key: int, size: int) -> None:
        self._versions[key] += 1
        await self._cache.put(f"key-{key}", _value(key, self._versions[key], size))

    def _check(self, key: int, found: bytes | None, wanted: bytes | None) -> None:
        if found != wanted:
            self._wrong += 1
            if len(self._examples) < SHOWN:
                self._examples.append(f"key {key} has {'no value' if found is None else 'another value'}")

    async def verify(self, site: Site) -> list[str]:
        """Return problems unless each answer was right, and the cache holds the last value of each key."""
        try:
            for key in range(self._shape.keys):
                found = await self._cache.get(f"key-{key}")
                self._check(key, found, _value(key, self._versions[key], site.wanted.size))
        finally:
            await self._stack.aclose()
        return [f"wrong values in {counted(self._wrong, 'answer')}: {', '.join(self._examples)}"] if self._wrong else []


def _value(key: int, version: int, size: int) -> bytes:
    """Return a value to put: the number of the key, the number of the put of this key, and zeros."""
    return key.to_bytes(8) + version.to_bytes(8) + bytes(size - 16)


def _cache_of(name: str, keys: int, size: int) -> dict[str, Any]:
    """Return the StreamCache to declare, which has room for all keys."""
    spec = {
        "tenant": TENANT,
        "namespace": NAMESPACE,
        "name": name,
        "maxBytes": max(keys * (size + OVERHEAD), 1 << 20),
        "maxEntries": keys + WARM_UP,
    }
    return {"apiVersion": API, "kind": "StreamCache", "metadata": {"name": name}, "spec": spec}
