"""The yardstick: aiohttp with handlers that do nothing, in a process of its own, which writes a port file like a node.

`POST /answer/N` reads the body and answers N constant bytes. `POST /tell` sends its body to all clients of `POST
/wait`, and of `GET /stream` as server-sent events; nothing is stored. It imports nothing of this project.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import uvloop
from aiohttp import web

JSON = "application/json"


class Rival:
    """The state of the server: its waiting clients."""

    def __init__(self) -> None:
        self._bodies: dict[int, bytes] = {}
        self._streams: set[web.StreamResponse] = set()
        self._told: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def answer(self, request: web.Request) -> web.Response:
        await request.read()
        size = int(request.match_info["size"])
        body = self._bodies.get(size)
        if body is None:
            body = self._bodies[size] = b'"' + b"x" * (size - 2) + b'"'
        return web.Response(body=body, content_type=JSON)

    async def tell(self, request: web.Request) -> web.Response:
        body = await request.read()
        told, self._told = self._told, asyncio.get_running_loop().create_future()
        told.set_result(body)
        event = b"event: record\ndata: " + body + b"\n\n"
        for stream in [*self._streams]:
            try:
                await stream.write(event)
            except ConnectionError:  # it has disconnected
                self._streams.discard(stream)
        return web.Response(body=b"{}", content_type=JSON)

    async def wait(self, request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=await asyncio.shield(self._told), content_type=JSON)

    async def stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"retry: 2000\n\n")
        self._streams.add(response)
        await asyncio.get_running_loop().create_future()
        return response

    async def ready(self, request: web.Request) -> web.Response:
        return web.Response()


async def serve() -> None:
    rival = Rival()
    app = web.Application(client_max_size=64 << 20)
    app.add_routes(
        [
            web.post("/answer/{size}", rival.answer),
            web.post("/tell", rival.tell),
            web.post("/wait", rival.wait),
            web.get("/stream", rival.stream),
            web.get("/readyz", rival.ready),
        ]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=2048).start()
    host, port = runner.addresses[0][:2]
    file = Path(os.environ["EVENTD_PORT_FILE"])
    draft = file.with_suffix(".draft")
    draft.write_text(f"{host}:{port}\n")
    draft.replace(file)
    await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())
