"""Serves /v0 on a local database for one command: in this process, on a socket that only its user can reach."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from aiohttp import web

import eventd
from eventd.api.app import build_app
from eventd.api.framework.callers import Callers
from eventd.api.framework.limits import ConcurrencyLimits
from eventd.api.framework.operations import Services
from eventd.api.framework.worker_peers import WorkerPeers
from eventd.api.keys.valid_keys import Keys
from eventd.api.listener.connection_limiter import ConnectionLimiter
from eventd.api.listener.runner import Runner
from eventd.api.topic_routes import TOPIC_ROUTES
from eventd.api.topics.calls import V0, Serving
from eventd.observe.metrics import Metrics
from eventd.runtime.worker_share import Share

CONNECTIONS = 64
STOP_SECONDS = 1.0


@asynccontextmanager
async def served(services: Services, v0: V0) -> AsyncIterator[Path]:
    """Serve /v0 and yield the path of its socket. `v0` is that of `topics_of`, and stops with the server.

    No key is needed: a user who can open the database may do everything, within the limits of the settings.
    """
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="routerctl-"))
        metrics = Metrics()
        callers = Callers(Keys(tuple), ConnectionLimiter("", CONNECTIONS, metrics))
        v0 = with_connections(v0, callers, metrics)
        workers = v0.serving.workers
        app = build_app(services, callers, workers, version=eventd.__version__, routes=TOPIC_ROUTES, v0=v0)
        runner = Runner(app, services.log.chance, shutdown_timeout=STOP_SECONDS)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        stack.callback(v0.stopping.set_result, None)
        socket = Path(folder) / "api"
        await web.UnixSite(runner, str(socket)).start()
        yield socket


def with_connections(v0: V0, callers: Callers, metrics: Metrics) -> V0:
    """Return the dependencies of all handlers under /v0, streams included, of a process without workers."""
    workers = WorkerPeers(Share(), dict, metrics)
    return replace(v0, listener=Serving(callers, metrics, workers, ConcurrencyLimits(v0.limits)))
