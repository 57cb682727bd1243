"""/v0 over a real log, on a real port of this process, and a client with one line per call."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from io import BytesIO
from typing import Any, NamedTuple

import msgspec
from aiohttp import ClientSession

from eventd.api.app import build_app
from eventd.api.framework.callers import Callers
from eventd.api.framework.limits import ConcurrencyLimits, Limits
from eventd.api.framework.operations import Services
from eventd.api.framework.worker_peers import WorkerPeers
from eventd.api.keys.configured_keys import parse_keys
from eventd.api.keys.valid_keys import Keys
from eventd.api.listener.connection_limiter import ConnectionLimiter
from eventd.api.listener.connections import open_site_at
from eventd.api.listener.runner import Runner
from eventd.api.topics.calls import V0, Serving
from eventd.egress.routers.pump import Routing
from eventd.log.core.eventlog import EventLog
from eventd.node.membership import SHUTDOWN_SECONDS
from eventd.observe.metrics import Metrics
from eventd.runtime.clock import Clock, SystemClock
from eventd.runtime.supervisor import Supervisor
from eventd.runtime.worker_share import Share
from eventd.store.engine.database import Database
from eventd.store.schema import migrations

JSON = {"Content-Type": "application/json"}


class Response(NamedTuple):
    """An answer: its JSON, or its text if it is not JSON."""

    status: int
    body: Any
    headers: Any

    @property
    def code(self) -> str:
        """Return the code of an error."""
        assert self.body.keys() == {"error"}, self.body
        assert self.body["error"].keys() <= {"code", "message", "detail"}, self.body
        return str(self.body["error"]["code"])

    @property
    def detail(self) -> Any:
        """Return the detail of an error."""
        return self.body["error"].get("detail")

    @property
    def data(self) -> list[Any]:
        """Return the data of the records."""
        return [record["data"] for record in self.body["records"]]

    @property
    def seqs(self) -> list[int]:
        """Return the seqs of the records."""
        return [record["$seq"] for record in self.body["records"]]


class Client:
    """Calls one server, with or without a key."""

    def __init__(self, session: ClientSession, url: str, key: str = "") -> None:
        self.session = session
        self.url = url
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}

    def with_key(self, key: str) -> Client:
        """Return a client of the same server with a key."""
        return Client(self.session, self.url, key)

    async def ask(
        self, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None, **options: Any
    ) -> Response:
        """Send a request to `path` below /v0; a `body` that is not None is sent as JSON."""
        sent = self.headers | (JSON if body is not None else {}) | (headers or {})
        data = None if body is None else BytesIO(msgspec.json.encode(body))
        options.setdefault("data", data)
        async with self.session.request(method, f"{self.url}/v0{path}", headers=sent, **options) as answer:
            is_json = answer.content_type == "application/json"
            return Response(answer.status, await (answer.json() if is_json else answer.text()), answer.headers)

    async def put(self, topic: str, **config: Any) -> Response:
        """Create a topic, or change it."""
        return await self.ask("PUT", f"/topics/{topic}", config)

    async def get(self, topic: str, query: str = "") -> Response:
        """Return the state of a topic."""
        return await self.ask("GET", f"/topics/{topic}{query}")

    async def write(self, topic: str, *data: Any, query: str = "", **members: Any) -> Response:
        """Write records with these data in one batch."""
        return await self.ask("POST", f"/topics/{topic}{query}", {"records": [{"data": one} for one in data]} | members)

    async def write_records(self, topic: str, *records: dict[str, Any], **members: Any) -> Response:
        """Write whole records in one batch."""
        return await self.ask("POST", f"/topics/{topic}", {"records": list(records)} | members)

    async def diff(self, topic: str, from_seq: int = 0, **members: Any) -> Response:
        """Read a page of a topic."""
        return await self.ask("POST", f"/topics/{topic}/diff", {"from_seq": from_seq} | members)

    async def delete_records(self, topic: str, **members: Any) -> Response:
        """Delete records of a topic."""
        return await self.ask("POST", f"/topics/{topic}/delete", members)

    async def delete(self, topic: str, query: str = "") -> Response:
        """Delete a topic."""
        return await self.ask("DELETE", f"/topics/{topic}{query}")


class Server(Client):
    """One log with /v0 in front of it. Use `serving` to create one."""

    def __init__(self, session: ClientSession, url: str, v0: V0, checks: dict[str, str], runner: Runner) -> None:
        super().__init__(session, url)
        self.v0 = v0
        self.runner = runner
        self.log = v0.log
        self.checks = checks


@asynccontextmanager
async def serving(
    url: str, *, keys: str = "", guards_probes: bool = False, clock: Clock | None = None, **limits: int
) -> AsyncIterator[Server]:
    """Yield a server over a database, which is created if missing. `keys` as in EVENTD_API_KEYS."""
    clock = clock or SystemClock()
    async with AsyncExitStack() as stack:
        database = Database(url)
        stack.callback(database.close)
        database.write_now(migrations.upgrade, now=clock.now())
        metrics, checks, bounds = Metrics(), {"database": "ok"}, Limits(**limits)
        log = await EventLog.open(database, clock, timed=metrics.committed)
        stack.push_async_callback(log.close)
        supervisor = Supervisor(clock, metrics.task_failed)
        stack.push_async_callback(supervisor.stop)
        known = Keys(lambda: parse_keys(keys) if keys else (), guards_probes=guards_probes)
        limiter = ConnectionLimiter("", 256, metrics)
        callers = Callers(known, limiter)
        stopping: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        routing = Routing(log, dict, supervisor.spawn, max_bytes=bounds.max_total_bytes)
        stack.push_async_callback(routing.stop)
        await routing.load()
        supervisor.keep(routing.run_for_ever, "routers")
        workers = WorkerPeers(Share(), lambda: checks, metrics)
        v0 = V0(
            log,
            routing,
            supervisor,
            stopping,
            bounds,
            clock.monotonic(),
            Serving(callers, metrics, workers, ConcurrencyLimits(bounds)),
        )
        app = build_app(
            Services(log, metrics=metrics, spawn=supervisor.spawn), callers, workers, version="1.2.3", v0=v0
        )
        runner = Runner(app, log.chance, shutdown_timeout=SHUTDOWN_SECONDS)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await open_site_at(runner, limiter, [socket.create_server(("127.0.0.1", 0))])
        stack.callback(lambda: stopping.done() or stopping.set_result(None))
        session = await stack.enter_async_context(ClientSession())
        yield Server(session, f"http://127.0.0.1:{runner.addresses[0][1]}", v0, checks, runner)
