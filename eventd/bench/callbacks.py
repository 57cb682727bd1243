"""`callbacks`: how fast a node pushes events to HTTP endpoints, signed, some of them dead.

First a backlog is sent to all live callbacks. Then single events: milliseconds from the request that writes one to the
arrival of its request at the first callback.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from eventd.bench.children import free_ports
from eventd.bench.links import PATIENCE_SECONDS
from eventd.bench.nodes import API, group_of, pause
from eventd.bench.pouring import LoadRun
from eventd.bench.receiver import CallbackReceiver, CallbackRequest, is_signed
from eventd.bench.result import UnverifiedResult
from eventd.bench.site import Site
from eventd.bench.targets import GroupTarget
from eventd.bench.wire import HttpConnection, cpu_now, now, read_answer
from eventd.errors import Unavailable
from eventd.runtime.chance import SYSTEM
from eventd.runtime.clock import SystemClock
from federation.webhooks import format_secret, read_key

ONES = 100
"""The number of single events that are measured."""
WARM_UP = 5
PAUSE_SECONDS = 0.01
VERIFIED = 100
"""One of this many requests has its signature verified."""


class Callbacks:
    """Measures callbacks: an event counts once for each live callback that has received it.

    `per_request` events are in a request; with 1, each event is a request of its own.
    """

    name = "callbacks"
    nodes = 1

    def __init__(self, callbacks: int, dead: int, per_request: int) -> None:
        self._callbacks = callbacks
        self._dead = dead
        self._per_request = per_request
        self._received: dict[str, list[str]] = {}
        self._count = 0
        self._problems: list[str] = []
        self._requests = 0
        self._awaited: tuple[str, asyncio.Future[float] | None] = ("", None)
        self._pouring: LoadRun
        self._target: GroupTarget
        self._receiver: CallbackReceiver

    def settings(self, site: Site) -> dict[str, object]:
        """Return the settings that the result shows in addition to the common ones."""
        return {"callbacks": self._callbacks, "dead": self._dead, "per_request": self._per_request, "signed": "v1"}

    async def prepare(self, site: Site) -> None:
        """Fill the group's log, and start the receiver."""
        (node,) = site.nodes
        now_ = SystemClock().now()
        self._target = GroupTarget(site.name, node.name, site.run, site.wanted.size, now_)
        await node.start()
        await node.declare(group_of(node, site.name))
        self._pouring = LoadRun(node.client, self._target, site.wanted)
        await self._pouring.pour(site.show, "filling the log")
        secret = format_secret(SYSTEM.token(32))
        self._key, self._file = read_key("bench", secret), site.folder / "callback.key"
        self._file.touch(0o600)
        self._file.write_text(secret)
        self._receiver = CallbackReceiver(self._take)
        await self._receiver.start()

    def _take(self, request: CallbackRequest) -> None:
        content = json.loads(request.body)
        ids = [one["id"] for one in (content if isinstance(content, list) else [content])]
        self._received.setdefault(request.path, []).extend(ids)
        self._count += len(ids)
        self._requests += 1
        if self._requests % VERIFIED == 1 and not is_signed(request, self._key, SystemClock().now()):
            self._problems.append(f"request {self._requests} has no valid signature")
        awaited, arrived = self._awaited
        if request.path == "/0" and awaited in ids and arrived is not None and not arrived.done():
            arrived.set_result(request.at)

    async def measure(self, site: Site) -> UnverifiedResult:
        """Declare the callbacks, time until each live one has the backlog, and then time single events."""
        (node,), count = site.nodes, self._pouring.ledger.count
        live = self._callbacks - self._dead
        before, begun, cpu = node.cpu_seconds, now(), cpu_now()
        ports = free_ports(self._dead) if self._dead else []
        places = [f"{self._receiver.port}/{at}" for at in range(live)] + [f"{port}/dead" for port in ports]
        await node.declare(*[self._callback(site.name, at, place) for at, place in enumerate(places)])
        await self._all_there(site, count * live)
        seconds, busy, after = now() - begun, cpu_now() - cpu, node.cpu_seconds
        figures = {"requests_per_second": round(self._requests / seconds, 1)}
        if before is not None and after is not None:
            figures["node_cpu_us_per_event"] = round((after - before) / (count * live) * 1e6, 2)
        line = await node.client.open(HttpConnection)
        try:
            taken = [await self._one(site, line) for _ in range(ONES + WARM_UP)][WARM_UP:]
        finally:
            line.close()
        return UnverifiedResult(count * live, seconds, taken, busy / seconds, count * live * site.wanted.size, figures)

    def _callback(self, group: str, number: int, place: str) -> dict[str, Any]:
        batch = {} if self._per_request == 1 else {"maxEvents": self._per_request}
        spec = {
            "source": {"groupRef": group},
            "url": f"http://127.0.0.1:{place}",
            "allowPlain": True,
            "from": "earliest",
            "format": "standard" if self._per_request == 1 else "batch",
            "batch": batch,
            "signing": {"keys": [{"id": "bench", "secretFile": str(self._file)}]},
        }
        return {"apiVersion": API, "kind": "EventCallback", "metadata": {"name": f"{group}-{number}"}, "spec": spec}

    async def _all_there(self, site: Site, wanted: int) -> None:
        """Wait until all live callbacks have the backlog, or no callback has received anything for
        `PATIENCE_SECONDS`."""
        before, news = 0, now()
        while self._count < wanted and now() - news < PATIENCE_SECONDS:
            if self._count > before:
                before, news = self._count, now()
            site.show("sending to all", self._count, wanted)
            await pause(0.005)

    async def _one(self, site: Site, line: HttpConnection) -> float:
        """Write one event. Returns the seconds from the request until the first callback has received it."""
        (number,) = numbers = self._pouring.ledger.take(0, 1)
        asked = self._pouring.client.request("POST", self._target.path, self._target.batch(numbers))
        await pause(PAUSE_SECONDS)
        arrived: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._awaited = (self._target.id_of(number), arrived)
        begun = now()
        answered = line.ask(asked)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                read_answer(await answered).json()
                at = await arrived
        except TimeoutError:
            raise Unavailable(f"event {number} did not arrive within {PATIENCE_SECONDS:g} s") from None
        site.show("one by one", number, self._pouring.ledger.count)
        return at - begun

    async def verify(self, site: Site) -> list[str]:
        """Return problems unless each live callback has received every event once, in the order of the log."""
        (node,), ledger = site.nodes, self._pouring.ledger
        live = self._callbacks - self._dead
        await self._all_there(site, ledger.count * live)
        await self._receiver.stop()
        problems = [*self._problems]
        stored = await self._pouring.read(node.client, site.show, "reading the log")
        problems += self._pouring.problems(stored)
        order = [one.number for one in stored]
        for at in range(live):
            found = [self._target.number_of(id) for id in self._received.get(f"/{at}", [])]
            problems += [f"at callback {at}: {words}" for words in ledger.problems(found)]
            if not problems and found != order:
                problems.append(f"callback {at} has received the events in another order than that of the log")
        return problems
