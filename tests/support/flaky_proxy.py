"""A proxy in front of a server that fails as networks do: it refuses requests, loses answers and cuts streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

_OWN = ("Host", "Content-Length", "Accept", "Connection", "Upgrade")
"""Headers that the proxy does not pass on: it takes no WebSockets."""
LOST = "lost"
UNANSWERED = "unanswered"
CUT = "cut"


class Fault(NamedTuple):
    """The failure of one request whose path contains `path`.

    It is `lost` before the server receives it, `unanswered` after, gets a status, or is a stream that is `cut` after
    `words`.
    """

    path: str
    what: str | int = LOST
    retry_after: str = ""
    words: bytes = b""


class FlakyProxy:
    """Forwards requests except for `faults`, each of which happens once, in their order for a path."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.faults: list[Fault] = []
        self.asked: list[str] = []
        self.url = ""

    def _fault(self, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.path in path:
                self.faults.remove(fault)
                return fault
        return None

    async def handle(self, request: web.Request, session: ClientSession) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path}")
        fault = self._fault(request.path)
        assert request.transport is not None
        if fault and fault.what == LOST:
            request.transport.abort()
            return web.Response()
        if fault and isinstance(fault.what, int):
            headers = {"Retry-After": fault.retry_after} if fault.retry_after else {}
            body = '{"error": {"code": "throttled", "message": "come back later"}}'
            return web.Response(status=fault.what, headers=headers, text=body, content_type="application/json")
        headers = {name: value for name, value in request.headers.items() if name not in _OWN}
        headers["Accept"] = request.headers.get("Accept", "*/*")
        async with session.request(
            request.method, self.target + request.path_qs, data=await request.read() or None, headers=headers
        ) as answer:
            if answer.content_type == "text/event-stream":
                return await self._stream(request, answer.content.iter_any(), fault)
            body_read = await answer.read()
            if fault and fault.what == UNANSWERED:
                request.transport.abort()
            return web.Response(status=answer.status, body=body_read, content_type=answer.content_type)

    async def _stream(
        self, request: web.Request, chunks: AsyncIterator[bytes], fault: Fault | None
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        said = b""
        try:
            async for chunk in chunks:
                await response.write(chunk)
                said += chunk
                if fault and fault.words in said:
                    await asyncio.sleep(0.05)  # the client receives what precedes the cut
                    break
        except ConnectionError:
            return response
        if request.transport is not None:
            request.transport.abort()
        return response


@asynccontextmanager
async def proxy_for(target: str) -> AsyncIterator[FlakyProxy]:
    """Yield a proxy in front of the server at `target`."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(ClientSession())
        proxy = FlakyProxy(target)
        app = web.Application(client_max_size=1 << 28)

        async def handle(request: web.Request) -> web.StreamResponse:
            return await proxy.handle(request, session)

        app.router.add_route("*", "/{path:.*}", handle)
        server = TestServer(app)
        await server.start_server(access_log=None, shutdown_timeout=0.2)
        stack.push_async_callback(server.close)
        proxy.url = f"http://127.0.0.1:{server.port}"
        yield proxy
