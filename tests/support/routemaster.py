"""One log with the Routemaster surface in front of it, called byte by byte."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

from eventd.api.framework.limits import ConcurrencyLimits, Limits
from eventd.api.keys.valid_keys import Keys
from eventd.api.listener.connection_limiter import ConnectionLimiter
from eventd.api.listener.connections import open_site_at
from eventd.api.listener.runner import Runner
from eventd.api.routemaster.answers import refused_by_library
from eventd.api.routemaster.app import build_surface
from eventd.api.routemaster.surface import RootKey, SurfaceConfig, SurfaceContext
from eventd.log.core.eventlog import EventLog
from eventd.observe.metrics import Metrics
from eventd.runtime.clock import Clock, SystemClock
from eventd.store.engine.database import Database
from eventd.store.engine.statements import fetch
from eventd.store.rows.keys import read_keys
from eventd.store.schema import migrations
from eventd.tls.listening import TlsListener

ROOT = "root-key-of-sixteen"
PLAIN = SurfaceConfig(require_tls=False)


class Heard(NamedTuple):
    """A response: its status line's number, its headers by lower-case name, and its body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json", self
        return json.loads(self.body)


def basic(user: str, password: str = "x") -> str:
    """Return the header that authenticates a user."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


async def read_response(reader: asyncio.StreamReader, method: str) -> Heard:
    """Read one response, whose length is in its head."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    length = 0 if method == "HEAD" else int(headers.get("content-length", 0))
    return Heard(int(first.split()[1]), headers, await reader.readexactly(length))


class SurfaceServer:
    """The surface on a free port of the loopback address."""

    def __init__(self, surface: SurfaceContext, port: int) -> None:
        self.surface = surface
        self.log = surface.log
        self.port = port
        self.changes = 0

    async def ask(
        self, method: str, target: str, body: Any = None, *, user: str | None = None, **headers: str
    ) -> Heard:
        """Send one request; `body` is sent as it is if it is bytes, else as JSON."""
        sent = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        lines = {"Host": f"127.0.0.1:{self.port}", "Connection": "close"}
        lines |= {} if user is None else {"Authorization": basic(user)}
        lines |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines |= {"Content-Length": str(len(sent))} if sent or method == "POST" else {}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return await self.send(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + sent, method)

    async def send(self, request: bytes, method: str = "GET") -> Heard:
        """Send the bytes of a request over a connection of its own."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(request)
            return await read_response(reader, method)
        finally:
            writer.close()
            await writer.wait_closed()

    async def token(self, name: str) -> str:
        """Create a token, and return it."""
        made = await self.ask("POST", "/api_tokens", {"name": name}, user=ROOT)
        assert made.status == 201, made
        return str(made.json["token"])

    async def records(self) -> list[dict[str, Any]]:
        """Return the records of the log."""
        texts = await self.log.database.read(fetch, "SELECT text FROM blocks ORDER BY position")
        return [json.loads(line) for (text,) in texts for line in text.splitlines()]

    async def read_keys(self) -> None:
        """Take over the tokens that are stored."""
        self.surface.keys.reload_from(await self.log.database.read(read_keys))


class NoBatches:
    """No batch is due."""

    async def count_due(self, within: float) -> int:
        return 0


StartSurface = Callable[..., Awaitable[SurfaceServer]]


@asynccontextmanager
async def serving_surface(
    url: str,
    *,
    config: SurfaceConfig = PLAIN,
    clock: Clock | None = None,
    tls: TlsListener | None = None,
    limits: Limits | None = None,
    **given: Any,
) -> AsyncIterator[SurfaceServer]:
    """Yield a surface over a database, which is created if missing. `given`: fields of `SurfaceContext`."""
    clock = clock or SystemClock()
    async with AsyncExitStack() as stack:
        database = Database(url)
        stack.callback(database.close)
        database.write_now(migrations.upgrade, now=clock.now())
        log = await EventLog.open(database, clock)
        stack.push_async_callback(log.close)
        limiter = ConnectionLimiter("", 64, Metrics())

        async def count_change() -> None:
            server.changes += 1

        surface = SurfaceContext(
            log,
            Keys(tuple, clock=clock),
            RootKey(ROOT),
            config,
            ConcurrencyLimits(limits or Limits()),
            limiter,
            reload_keys=lambda: server.read_keys(),
            changed=count_change,
            **({"published": lambda *_: None, "due": NoBatches(), "judge": lambda _: ""} | given),
        )
        runner = Runner(build_surface(surface), log.chance, refused_by_library, shutdown_timeout=1.0)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await open_site_at(runner, limiter, [socket.create_server(("127.0.0.1", 0))], tls)
        server = SurfaceServer(surface, runner.addresses[0][1])
        yield server
