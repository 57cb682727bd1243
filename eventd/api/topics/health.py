"""Health, readiness, and the metrics of topics, under /v0."""

from __future__ import annotations

from typing import Annotated

from aiohttp import web
from msgspec import Struct

from eventd.api.errors.problems import success
from eventd.api.framework.models import NoQuery
from eventd.api.topics.calls import Call
from eventd.api.topics.metrics import as_json, as_text, gather
from eventd.observe.metrics import METRICS_CONTENT_TYPE


class Health(Struct, kw_only=True):
    """The process is up."""

    status: str
    version: str
    uptime_ms: int


class Ready(Struct, kw_only=True):
    """`status` is `ready`, or `not ready` with the HTTP status 503; `topics` does not count those of groups."""

    status: str
    wal_replay_complete: bool
    topics: int


async def show_health(call: Call[NoQuery, None]) -> Annotated[web.Response, Health]:
    """Return whether the process is up."""
    return success(Health(status="ok", version=call.v0.version, uptime_ms=call.v0.uptime_ms))


async def show_ready(call: Call[NoQuery, None]) -> Annotated[web.Response, Ready]:
    """Return whether the node is ready. It listens only after its log is open, so there is never anything left to
    replay."""
    ready = all(state == "ok" for state in (await call.v0.workers.readiness()).values())
    topics = await call.v0.count_topics()
    status = "ready" if ready else "not ready"
    return success(Ready(status=status, wal_replay_complete=True, topics=topics), ready=ready)


async def show_metrics(call: Call[NoQuery, None]) -> web.Response:
    """Return the metrics of topics, for Prometheus or, if the client accepts it, as JSON."""
    figures = await gather(call.v0, call.key)
    if "application/json" in call.request.headers.get("Accept", ""):
        return success(as_json(figures))
    return web.Response(body=as_text(figures), headers={"Content-Type": METRICS_CONTENT_TYPE})
