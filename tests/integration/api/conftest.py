"""The API on a real port, over a real log, with a few operations that show how every operation is served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer
from aiohttp.web import AppRunner, BaseRunner
from pydantic import Field

from eventd.api.app import build_app
from eventd.api.framework.callers import Callers
from eventd.api.framework.limits import Limits
from eventd.api.framework.operations import Params, Services
from eventd.api.framework.route import BodyLimits, Route
from eventd.api.framework.worker_peers import WorkerPeers
from eventd.api.keys.configured_keys import parse_keys
from eventd.api.keys.valid_keys import Keys
from eventd.api.listener.connection_limiter import ConnectionLimiter
from eventd.api.routes import SYSTEM
from eventd.errors import Conflict, DatabaseUnavailable, Full
from eventd.log.core.eventlog import EventLog
from eventd.observe.metrics import Metrics
from eventd.runtime.clock import SystemClock
from eventd.runtime.worker_share import Share
from eventd.store.engine.database import Database
from tests.support.fresh import make_current


class Echo(Params):
    group: str
    limit: int = Field(default=10, le=100)
    type: list[str] = Field(default=[])
    data: dict[str, Any] = Field(default={})


class Nothing(Params):
    pass


async def echo(services: Services, params: Echo) -> dict[str, Any]:
    return {"head": services.log.wakeups.head, **params.model_dump()}


def raising(error: Exception) -> Callable[[Services, Any], Awaitable[Any]]:
    async def fail(services: Services, params: Nothing) -> Any:
        raise error

    return fail


BODY = BodyLimits(1 << 20, values=20_000)
OPERATIONS: tuple[Route, ...] = (
    Route("GET", "/api/v1/groups/{group}/echo", ("read",), "say it", echo),
    Route("POST", "/api/v1/groups/{group}/echo", ("write",), "say it", echo, BODY),
    Route("GET", "/api/v1/all", ("read",), "all", raising(Conflict("no", hint="go"))),
    Route("GET", "/api/v1/full", ("admin",), "full", raising(Full("the group is full"))),
    Route("GET", "/api/v1/down", ("read",), "down", raising(DatabaseUnavailable("it is down"))),
    Route("GET", "/api/v1/bug", ("read",), "bug", raising(ValueError("geheim"))),
)


class Api:
    """A listening server, and the requests of a test to it."""

    def __init__(
        self, session: ClientSession, server: TestServer, port: int, metrics: Metrics, checks: dict[str, str]
    ) -> None:
        self.session = session
        self.server = server
        self.port = port
        self.metrics = metrics
        self.checks = checks

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, Any, Any]:
        """Send a request; return (status, decoded JSON or text, headers)."""
        async with self.session.request(method, f"http://127.0.0.1:{self.port}{path}", **options) as answer:
            is_json = answer.content_type == "application/json"
            return answer.status, await (answer.json() if is_json else answer.text()), answer.headers

    async def raw(self, request: bytes, *, until: bytes = b"") -> bytes:
        """Send bytes unchanged; return the answer up to `until`, or until the server closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            async with asyncio.timeout(10):
                writer.write(request)
                return await (reader.readuntil(until) if until else reader.read())
        finally:
            writer.close()
            await writer.wait_closed()


class NodeServer(TestServer):
    """A server whose handlers continue when a client leaves, as those of a node do."""

    async def _make_runner(self, **options: Any) -> BaseRunner[Any]:
        return AppRunner(self.app, **(options | {"handler_cancellation": False}))


StartApi = Callable[..., Awaitable[Api]]


@pytest.fixture
async def start_api(sqlite_url: str) -> AsyncIterator[StartApi]:
    """Start the API; `keys` in the syntax of EVENTD_API_KEYS, none by default."""
    async with AsyncExitStack() as stack:
        clock = SystemClock()
        make_current(sqlite_url, now=clock.now())
        database = Database(sqlite_url)
        stack.callback(database.close)
        log = await EventLog.open(database, clock)
        stack.push_async_callback(log.close)

        async def start(
            keys: str = "",
            *,
            max_body_bytes: int = 1 << 20,
            max_inflight: int = 1000,
            operations: Sequence[Route] = OPERATIONS,
            make_server: type[TestServer] = TestServer,
        ) -> Api:
            metrics, checks = Metrics(), {"database": "ok"}
            app = build_app(
                Services(log),
                Callers(Keys(lambda: parse_keys(keys) if keys else ()), ConnectionLimiter("", 256, metrics)),
                WorkerPeers(Share(), lambda: checks, metrics),
                version="1.2.3",
                limits=Limits(max_body_bytes=max_body_bytes, max_inflight_per_key=max_inflight),
                routes=(*operations, *SYSTEM),
            )
            server = make_server(app)
            await server.start_server(access_log=None)
            stack.push_async_callback(server.close)
            session = await stack.enter_async_context(ClientSession())
            assert server.port is not None
            return Api(session, server, server.port, metrics, checks)

        yield start


@pytest.fixture
async def api(start_api: StartApi) -> Api:
    """The API without keys."""
    return await start_api()
