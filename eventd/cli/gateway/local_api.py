"""Serves /v0 on a local database for one command: in this process, on a socket that only its user can reach."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from aiohttp import web

import eventd
from eventd.api.app import build_app
from eventd.api.framework.auth import Keys
from eventd.api.framework.callers import Callers
from eventd.api.framework.limits import ConcurrencyLimits, Limits
from eventd.api.framework.operations import Services
from eventd.api.framework.worker_peers import WorkerPeers
from eventd.api.listener.connection_limiter import ConnectionLimiter
from eventd.api.listener.runner import Runner
from eventd.api.routes import TOPIC_ROUTES
from eventd.api.topics.calls import V0
from eventd.egress.routers.pump import Routing
from eventd.errors import EventdError
from eventd.observe.metrics import Metrics
from eventd.resources.configuration import effective
from eventd.runtime.supervisor import Supervisor
from eventd.runtime.worker_share import Share
from eventd.settings.model import Settings
from eventd.store.rows.registry import read_resources

CONNECTIONS = 64
STOP_SECONDS = 1.0
BROKEN_SECONDS = 1.0


@asynccontextmanager
async def served(services: Services, settings: Settings) -> AsyncIterator[Path]:
    """Serve /v0 and yield the path of its socket.

    No key is needed: a user who can open the database may do everything, within the limits of the settings.
    """
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="routerctl-"))
        metrics = Metrics()
        callers = Callers(Keys(tuple), ConnectionLimiter("", CONNECTIONS, metrics))
        v0 = await stack.enter_async_context(topics_of(services, callers, metrics, settings))
        app = build_app(services, callers, v0.workers, version=eventd.__version__, routes=TOPIC_ROUTES, v0=v0)
        runner = Runner(app, services.log.chance, shutdown_timeout=STOP_SECONDS)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        stack.callback(v0.stopping.set_result, None)
        socket = Path(folder) / "api"
        await web.UnixSite(runner, str(socket)).start()
        yield socket


@asynccontextmanager
async def topics_of(services: Services, callers: Callers, metrics: Metrics, settings: Settings) -> AsyncIterator[V0]:
    """Yield the services that /v0 needs, beside a running node or without one.

    Routers run here too, because reading a topic includes the copies that are due.
    """
    limits = Limits(**{name: getattr(settings, name) for name in Limits._fields})
    async with AsyncExitStack() as stack:
        supervisor = Supervisor(services.clock)
        stack.push_async_callback(supervisor.stop)
        groups = effective(await services.database.read(read_resources))
        routing = Routing(services.log, lambda: groups, supervisor.spawn, limits.max_total_bytes)
        stack.push_async_callback(routing.stop)
        await routing.load()
        # Without this task, waiting readers would not notice the writes of other processes.
        supervisor.keep(partial(_follow_changes, services, routing), "changes")
        yield V0(
            log=services.log,
            callers=callers,
            routing=routing,
            metrics=metrics,
            workers=WorkerPeers(Share(), dict, metrics),
            supervisor=supervisor,
            stopping=asyncio.get_running_loop().create_future(),
            limits=limits,
            concurrency=ConcurrencyLimits(limits),
            started=services.clock.monotonic(),
        )


async def _follow_changes(services: Services, routing: Routing) -> None:
    """Follow the writes of the node and other commands, so that waiting readers get them at once."""
    source, versions = services.database.change_source(services.clock.sleep), services.log.topic_versions
    try:
        while True:
            await source.wait()
            try:
                head = await services.log.look_around()
            except EventdError:  # a request reports the error
                await services.clock.sleep(BROKEN_SECONDS)
                continue
            if not versions.knows(head.topics_version):
                routing.changed()
                services.log.wakeups.touch_all()
                versions.read(head.topics_version)
    finally:
        await source.close()
