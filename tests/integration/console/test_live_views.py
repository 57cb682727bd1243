"""What a stream of a view sends: changes, signs of life, and problems with their end."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientResponse, ClientSession, web
from aiohttp.test_utils import TestServer

from eventd.console.live import stream
from eventd.console.live.hub import Hub
from eventd.console.live.session_watch import ViewerSession
from eventd.console.live.stream import follow_view
from eventd.errors import Unavailable
from eventd.runtime.clock import SystemClock
from eventd.testing import until


class ViewServer:
    """Serves the stream of one view. `problem`: why the view fails; `failure`: why the session cannot be checked.

    `has_ended`: whether it has ended; `checks`: how often that was asked.
    """

    def __init__(self) -> None:
        self.content, self.problem = b"one", ""
        self.failure: Exception | None = None
        self.has_ended = False
        self.checks = 0
        self.requests: list[web.Request] = []
        self.tasks: set[asyncio.Task[Any]] = set()
        self.hub = Hub(SystemClock(), self._spawn)
        self._server: TestServer | None = None

    def _spawn(self, work: Coroutine[Any, Any, Any], _name: str, **_expects: Any) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        return task

    async def _render(self) -> bytes:
        if self.problem:
            raise Unavailable(self.problem)
        return self.content

    async def _has_ended(self) -> bool:
        self.checks += 1
        if self.failure is not None:
            raise self.failure
        return self.has_ended

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        session = ViewerSession("session", self._has_ended)
        return await follow_view(request, self.hub, "view", self._render, 10, session, SystemClock())

    @asynccontextmanager
    async def open(self, coding: str = "gzip", *, raw: bool = False) -> AsyncIterator[ClientResponse]:
        """Follow the view as a browser that takes this coding. `raw`: leave its bytes as they are."""
        assert self._server is not None
        async with (
            ClientSession(auto_decompress=not raw, headers={"Accept-Encoding": coding}) as session,
            session.get(self._server.make_url("/")) as answer,
        ):
            yield answer

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/", self._serve)
        self._server = TestServer(app)
        await self._server.start_server()

    async def stop(self) -> None:
        self.hub.close()
        for task in self.tasks:
            task.cancel()
        assert self._server is not None
        await self._server.close()


@pytest.fixture
async def server() -> AsyncIterator[ViewServer]:
    server = ViewServer()
    await server.start()
    yield server
    await server.stop()


async def read_event(answer: ClientResponse) -> tuple[str, str]:
    """Return the name and the data of the next event."""
    lines = (await answer.content.readuntil(b"\n\n")).decode().splitlines()
    found = dict(line.split(": ", 1) for line in lines if line)
    return found["event"], found["data"]


async def read_packed(answer: ClientResponse) -> bytes:
    """Return the bytes of the first event of a packed stream."""
    received, unpacked, unpacker = b"", b"", zlib.decompressobj(16 + zlib.MAX_WBITS)
    while not unpacked.endswith(b"\n\n"):
        received += (more := await answer.content.readany())
        unpacked += unpacker.decompress(more)
    return received


async def test_a_view_that_does_not_change_sends_an_event_that_a_browser_notices(
    server: ViewServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 0.05)
    async with server.open() as answer:
        events = [await read_event(answer) for _ in range(9)]
    assert set(events) == {("view", "one"), ("alive", "")}
    assert events.count(("view", "one")) == 1


async def test_the_end_of_a_problem_is_reported_although_the_view_is_the_same_as_before(server: ViewServer) -> None:
    async with server.open() as answer:
        assert await read_event(answer) == ("view", "one")
        server.problem = "the database is busy"
        assert await read_event(answer) == ("trouble", "the database is busy")
        server.problem = ""
        assert await read_event(answer) == ("alive", "")


async def test_signs_of_life_of_a_view_with_a_problem_repeat_the_problem(
    server: ViewServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 0.05)
    server.problem = "the database is busy"
    async with server.open() as answer:
        while (await read_event(answer))[0] != "trouble":
            pass
        assert {await read_event(answer) for _ in range(3)} == {("trouble", "the database is busy")}


async def test_a_viewer_gets_nothing_that_was_rendered_before_it_entered(server: ViewServer) -> None:
    async with server.open() as first:
        assert await read_event(first) == ("view", "one")
        server.content = b"two"
        async with server.open() as second:
            assert await read_event(second) == ("view", "two")


async def test_all_browsers_that_take_gzip_get_the_same_bytes_of_a_view(server: ViewServer) -> None:
    server.content = b"<tr>row</tr>" * 4000
    async with server.open(raw=True) as first, server.open("br, gzip;q=0.5", raw=True) as second:
        received = [await read_packed(answer) for answer in (first, second)]
    assert received[0] == received[1]
    assert len(received[0]) < 1000
    for coding in ("identity", "gzip;q=0", "br"):
        async with server.open(coding) as answer:
            assert "Content-Encoding" not in answer.headers
            assert await read_event(answer) == ("view", server.content.decode())


async def test_each_change_arrives_at_once_in_a_packed_stream(server: ViewServer) -> None:
    async with server.open() as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        for content in (b"one", b"two", b"three"):
            server.content = content
            while await read_event(answer) != ("view", content.decode()):
                pass


async def test_the_sessions_of_all_streams_are_checked_by_one_task(server: ViewServer) -> None:
    async with AsyncExitStack() as stack:
        answers = [await stack.enter_async_context(server.open()) for _ in range(9)]
        for answer in answers:
            assert await read_event(answer) == ("view", "one")
        server.checks = 0
        await until(lambda: server.checks >= 2, "two checks")
        assert server.checks < 9, "one for all of them at a time"
        assert sum(not task.done() for task in server.tasks) == 2, "the view and the sessions"
        server.has_ended = True
        for answer in answers:
            assert (await read_event(answer))[0] == "ended"


async def test_a_browser_that_leaves_is_noticed_without_a_change_of_the_view(server: ViewServer) -> None:
    async with server.open() as answer:
        assert await read_event(answer) == ("view", "one")
    await until(lambda: server.hub.viewers == 0, "the stream to end")


@pytest.mark.parametrize(
    ("failure", "said"),
    [(Unavailable("the database is busy"), "the database is busy"), (ValueError("x"), "the log of the node says why")],
)
async def test_a_session_that_cannot_be_checked_ends_the_stream_with_the_reason(
    server: ViewServer, failure: Exception, said: str
) -> None:
    async with server.open() as answer:
        assert await read_event(answer) == ("view", "one")
        server.failure = failure
        name, data = await read_event(answer)
        assert (name, said in data) == ("trouble", True)
        assert await answer.content.read() == b""
    assert server.hub.viewers == 0


async def test_the_stream_of_a_browser_that_reads_nothing_ends_with_its_session(server: ViewServer) -> None:
    server.content = bytes(32 << 20)  # more than the buffers of both ends
    async with server.open("identity") as answer:
        assert answer.status == 200

        async def is_blocked() -> bool:
            transport = server.requests[0].transport
            return transport is not None and transport.get_write_buffer_size() > 1 << 20

        await until(is_blocked, "the view to wait for its reader")
        assert server.hub.viewers == 1
        server.has_ended = True

        async def has_left() -> bool:
            return server.hub.viewers == 0

        await until(has_left, "the stream to end", seconds=5)


async def test_a_browser_that_reads_nothing_for_long_loses_its_stream(
    server: ViewServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "READ_SECONDS", 0.2)
    server.content = bytes(32 << 20)
    async with server.open("identity"):

        async def has_left() -> bool:
            return server.hub.viewers == 0

        await until(has_left, "the stream to end", seconds=10)
