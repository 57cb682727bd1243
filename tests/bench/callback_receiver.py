"""The receivers of all subscribers in one process: `python -m tests.bench.callback_receiver CERT KEY PORTS`.

Subscriber N is called at `/N` of any loopback address, over TLS, at one of so many ports. The events of a run have the
numbers 1, 2, 3 … at the end of their URLs, and a subscriber has to get each of them once and in order, from the number
that it is told: anything else is a problem. A controlling process asks over plain HTTP, at the port of the port file.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from aiohttp import web

from eventd.bench.receiver import CallbackReceiver, CallbackRequest

MOST_PROBLEMS = 10


class Event(msgspec.Struct):
    """The part of an event that identifies it."""

    url: str


_EVENTS = msgspec.json.Decoder(list[Event])


class Subscriber:
    """What one subscriber has received: up to number `last`, and when, in monotonic seconds, since it was marked."""

    __slots__ = ("arrivals", "first_at", "last", "last_at", "requests")

    def __init__(self) -> None:
        self.last = 0
        self.requests = 0
        self.mark(keep=False)

    def mark(self, *, keep: bool) -> None:
        """Forget the times, and `keep` the arrival of each event from now on."""
        self.first_at = self.last_at = 0.0
        self.arrivals: list[float] | None = [] if keep else None


class Receivers:
    """All subscribers, the ports at which they are called, and who waits for them."""

    def __init__(self, tls: ssl.SSLContext, ports: int) -> None:
        self._subscribers: dict[int, Subscriber] = {}
        self._problems: list[str] = []
        self._listeners = [CallbackReceiver(self._take, host="0.0.0.0", tls=tls) for _ in range(ports)]
        self._behind: set[int] = set()
        self._upto = 0
        self._all_there: asyncio.Future[None] | None = None

    async def start(self) -> None:
        for listener in self._listeners:
            await listener.start()

    def _take(self, request: CallbackRequest) -> None:
        id = int(request.path[1:])
        subscriber = self._subscribers[id]
        subscriber.requests += 1
        for event in _EVENTS.decode(request.body):
            number = int(event.url.rpartition("/")[2])
            if number != subscriber.last + 1 and len(self._problems) < MOST_PROBLEMS:
                self._problems.append(f"subscriber {id} got event {number} after event {subscriber.last}")
            subscriber.last = number
            if subscriber.arrivals is not None:
                subscriber.arrivals.append(request.at)
        subscriber.first_at = subscriber.first_at or request.at
        subscriber.last_at = request.at
        if self._all_there is not None and subscriber.last >= self._upto:
            self._behind.discard(id)
            if not self._behind and not self._all_there.done():
                self._all_there.set_result(None)

    # --- control ----------------------------------------------------------------------------------------------

    async def ready(self, request: web.Request) -> web.Response:
        return web.json_response({"ports": [listener.port for listener in self._listeners]})

    async def expect(self, request: web.Request) -> web.Response:
        """`{"ids","after"}`: these subscribers begin with the event behind that number."""
        asked = await request.json()
        for id in asked["ids"]:
            self._subscribers[id] = Subscriber()
            self._subscribers[id].last = asked["after"]
        return web.json_response({})

    async def mark(self, request: web.Request) -> web.Response:
        """`{"ids","keep"}`: forget the times of these subscribers."""
        asked = await request.json()
        for id in asked["ids"]:
            self._subscribers[id].mark(keep=asked["keep"])
        return web.json_response({})

    async def delay(self, request: web.Request) -> web.Response:
        """`{"ids","seconds"}`: answer the requests to these so much later; 0: at once."""
        asked = await request.json()
        for listener in self._listeners:
            listener.delays |= {f"/{id}": asked["seconds"] for id in asked["ids"]}
        return web.json_response({})

    async def listen(self, request: web.Request) -> web.Response:
        """`{"at","open"}`: open the listener of this number, or close it with all of its connections."""
        asked = await request.json()
        listener = self._listeners[asked["at"]]
        await (listener.start() if asked["open"] else listener.stop())
        return web.json_response({"at": asyncio.get_running_loop().time()})

    async def wait(self, request: web.Request) -> web.Response:
        """`{"ids","upto","seconds"}`: wait until these have all events up to a number; return their states."""
        asked = await request.json()
        ids: list[int] = asked["ids"]
        self._upto = asked["upto"]
        self._behind = {id for id in ids if self._subscribers[id].last < self._upto}
        if self._behind:
            self._all_there = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._all_there], timeout=asked["seconds"])
            self._all_there = None
        return web.json_response({"states": self._states(ids), "problems": self._problems})

    def _states(self, ids: Iterable[int]) -> list[dict[str, Any]]:
        return [{name: getattr(self._subscribers[id], name) for name in Subscriber.__slots__} for id in ids]


async def serve(cert: str, key: str, ports: int) -> None:
    """Serve until the process is ended."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    receivers = Receivers(tls, ports)
    await receivers.start()
    app = web.Application(client_max_size=64 << 20)
    app.add_routes([web.get("/readyz", receivers.ready)])
    app.add_routes(
        web.post(f"/{do.__name__}", do)
        for do in (receivers.expect, receivers.mark, receivers.delay, receivers.listen, receivers.wait)
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    file = Path(os.environ["EVENTD_PORT_FILE"])
    draft = file.with_suffix(".draft")
    draft.write_text("{}:{}\n".format(*runner.addresses[0][:2]))
    draft.replace(file)
    await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], sys.argv[2], int(sys.argv[3])))
