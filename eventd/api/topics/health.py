"""Is it alive, is it ready, how is it doing, as /v0 tells it."""

from __future__ import annotations

from aiohttp import web
from msgspec import Struct

from eventd.api.errors.problems import success
from eventd.api.topics.metrics import TEXT, as_json, as_text, gather
from eventd.api.topics.models import NoQuery
from eventd.api.topics.routes import Call, Route


class Health(Struct, kw_only=True):
    """The process answers."""

    status: str
    version: str
    uptime_ms: int


class Ready(Struct, kw_only=True):
    """`status` is `ready`, or `not ready`, and then the status of the answer is 503."""

    status: str
    wal_replay_complete: bool
    topics: int


async def show_health(call: Call[NoQuery, None]) -> web.Response:
    """Whether the process answers."""
    return success(Health(status="ok", version=call.v0.version, uptime_ms=call.v0.uptime_ms))


async def show_ready(call: Call[NoQuery, None]) -> web.Response:
    """Whether the node is ready. It listens only when its log is open: nothing is left to be replayed by then."""
    ready = all(told == "ok" for told in (await call.v0.siblings.readiness()).values())
    topics = await call.v0.count_topics()
    status = "ready" if ready else "not ready"
    return success(Ready(status=status, wal_replay_complete=True, topics=topics), ready=ready)


async def show_metrics(call: Call[NoQuery, None]) -> web.Response:
    """The figures of topics, for Prometheus or, where the client takes it, as JSON."""
    figures = await gather(call.v0, call.key)
    if "application/json" in call.request.headers.get("Accept", ""):
        return success(as_json(figures))
    return web.Response(body=as_text(figures), headers={"Content-Type": TEXT})


ROUTES: tuple[Route, ...] = (
    Route("GET", "/v0/health", show_health, "Whether the process answers.", answer=Health, probe=True),
    Route("GET", "/v0/ready", show_ready, "Whether the node is ready.", answer=Ready, unready=Ready, probe=True),
    Route("GET", "/v0/metrics", show_metrics, "Figures of topics, for Prometheus.", ("read",), media="text/plain"),
)
