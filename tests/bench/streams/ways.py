"""The ways in and out of one node, each with one client that writes and one that reads: a lone record, and many.

A record is written and its delivery awaited, one at a time; then records are written in batches of 64 and awaited.
"""

from __future__ import annotations

import asyncio
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse, web

from eventd.client import Client, NewRecord
from eventd.client.values import Record
from tests.bench.streams.load import WARM_UP, Latencies, Rate, number_of, payload, require_all
from tests.bench.streams.own import BATCH, client

AHEAD = 4096
"""Records by which the writer may be ahead of the reader."""


class Way(ABC):
    """One way: `write` is called with the numbers of records, and `arrived` is called with those that were read."""

    def __init__(self, api: int, quic: int, topic: str, arrived: Callable[[Sequence[int]], None]) -> None:
        self.api = api
        self.url = f"http://127.0.0.1:{api}"
        self.quic = quic
        self.topic = topic
        self.arrived = arrived

    @abstractmethod
    async def open(self, stack: AsyncExitStack) -> None:
        """Connect the reader, whose task ends with the stack."""

    @abstractmethod
    async def write(self, payloads: Sequence[bytes]) -> None:
        """Write records as one batch, and wait until the node has acknowledged it."""


def reading(stack: AsyncExitStack, work: Awaitable[None]) -> None:
    """Run a reader until the stack ends."""
    task = asyncio.ensure_future(work)
    stack.callback(task.cancel)


class ServerSentEvents(Way):
    """POST /v0/topics, and a watch."""

    async def open(self, stack: AsyncExitStack) -> None:
        self._client = await stack.enter_async_context(Client(self.url))
        await self._client.topics.put(self.topic)
        watch = self._client.watch({self.topic: 0})

        async def read() -> None:
            async with aclosing(aiter(watch)) as sights:
                async for sight in sights:
                    self.arrived([number_of(one.data.encode()) for one in _records(sight)])

        reading(stack, read())

    async def write(self, payloads: Sequence[bytes]) -> None:
        await self._client.topics.write(self.topic, [NewRecord(data=one.decode()) for one in payloads])


class Queue(Way):
    """POST /v0/topics into a queue, and a worker that acknowledges each job."""

    async def open(self, stack: AsyncExitStack) -> None:
        self._client = await stack.enter_async_context(Client(self.url))
        await self._client.topics.put(self.topic, {"type": "queue"})

        reading(stack, self._work())

    async def _work(self) -> None:
        async with aclosing(self._client.queues.work(self.topic, "w", most=BATCH)) as jobs:
            async for job in jobs:
                await self._client.queues.ack(self.topic, "w", [job])
                self.arrived([number_of(job.data.encode())])

    async def write(self, payloads: Sequence[bytes]) -> None:
        await self._client.topics.write(self.topic, [NewRecord(data=one.decode()) for one in payloads])


class WebSocket(Way):
    """One WebSocket that publishes, and one that subscribes."""

    async def open(self, stack: AsyncExitStack) -> None:
        session = await stack.enter_async_context(ClientSession())
        async with session.put(f"{self.url}/v0/topics/{self.topic}", json={}) as answer:
            answer.raise_for_status()
        self._writer = await stack.enter_async_context(session.ws_connect(f"{self.url}/v0/ws", max_msg_size=0))
        reader = await stack.enter_async_context(session.ws_connect(f"{self.url}/v0/ws", max_msg_size=0))
        await reader.send_json({"op": "subscribe", "topic": self.topic, "from_seq": 0, "include_meta": False})
        reading(stack, self._read(reader))

    async def _read(self, reader: ClientWebSocketResponse) -> None:
        async for message in reader:
            found = json.loads(message.data)
            if records := found.get("records"):
                self.arrived([number_of(one["data"].encode()) for one in records])

    async def write(self, payloads: Sequence[bytes]) -> None:
        records = [{"data": one.decode()} for one in payloads]
        await self._writer.send_json({"op": "publish", "topic": self.topic, "records": records})
        answer = await self._writer.receive_json()
        if answer["op"] != "ack":
            raise AssertionError(answer)


class Callback(Way):
    """POST /v0/topics, and an endpoint that the node calls, unsigned, with up to 100 records in a request."""

    async def open(self, stack: AsyncExitStack) -> None:
        self._client = await stack.enter_async_context(Client(self.url))
        await self._client.topics.put(self.topic)
        application = web.Application(client_max_size=64 << 20)
        application.router.add_post("/", self._receive)
        runner = web.AppRunner(application)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        spec = {
            "source": {"topic": self.topic},
            "url": f"http://127.0.0.1:{port}/",
            "allowPlain": True,
            "format": "records",
            "from": "earliest",
        }
        name = self.topic.replace("_", "-")
        kind = {"apiVersion": "federation.routerd.net/v1alpha1", "kind": "EventCallback"}
        resource = {**kind, "metadata": {"name": name}, "spec": spec}
        body = {"sources": [{"name": "callback.yaml", "text": json.dumps(resource)}]}
        session = await stack.enter_async_context(ClientSession())
        async with session.post(f"{self.url}/api/v1/resources/apply", json=body) as answer:
            if answer.status >= 400:
                raise AssertionError(await answer.text())

    async def _receive(self, request: web.Request) -> web.Response:
        found = json.loads(await request.read())
        self.arrived([number_of(one["data"].encode()) for one in found["records"]])
        return web.Response()

    async def write(self, payloads: Sequence[bytes]) -> None:
        await self._client.topics.write(self.topic, [NewRecord(data=one.decode()) for one in payloads])


class Quic(Way):
    """A stream: acknowledged publishes over QUIC, and a subscription."""

    async def open(self, stack: AsyncExitStack) -> None:
        async with Client(self.url) as admin:
            await admin.topics.put(f"stream:bench:default:{self.topic}")
        self._writer = await stack.enter_async_context(client(self.quic, connections=1))
        reader = await stack.enter_async_context(client(self.quic, connections=1))
        subscription = await stack.enter_async_context(reader.subscribe(f"default/{self.topic}"))

        async def read() -> None:
            while True:
                self.arrived([number_of(sight.payload) for sight in await subscription.take()])  # type: ignore[union-attr]

        reading(stack, read())

    async def write(self, payloads: Sequence[bytes]) -> None:
        await self._writer.publish_batch(f"default/{self.topic}", payloads)


WAYS = {
    "sse": ServerSentEvents,
    "websocket": WebSocket,
    "queue": Queue,
    "callback": Callback,
    "quic": Quic,
}


def _records(sight: Any) -> Sequence[Record]:
    return getattr(sight, "records", ())


async def measure(name: str, api: int, quic: int, size: int, singles: int, count: int) -> tuple[Latencies, Rate]:
    """Return the times of lone records from writing to delivery, and the delivered records per second of many."""
    count -= count % BATCH
    seen: list[int] = []
    changed = asyncio.Event()

    def arrived(numbers: Sequence[int]) -> None:
        seen.extend(numbers)
        changed.set()

    async def until(total: int) -> None:
        while len(seen) < total:
            changed.clear()
            await changed.wait()

    async with asyncio.timeout(120), AsyncExitStack() as stack:
        way = WAYS[name](api, quic, f"way_{name}", arrived)
        await way.open(stack)
        taken = []
        for number in range(WARM_UP + singles):
            begun = time.perf_counter()
            await way.write([payload(number, size)])
            await until(number + 1)
            if number >= WARM_UP:
                taken.append(time.perf_counter() - begun)
        first = WARM_UP + singles
        rate = Rate.begin()
        for begin in range(first, first + count, BATCH):
            await way.write([payload(number, size) for number in range(begin, begin + BATCH)])
            await until(begin - AHEAD)
        await until(first + count)
        rate.end(count)
    require_all(sorted(seen) if name == "queue" else seen, first + count)
    return Latencies.of(taken), rate
