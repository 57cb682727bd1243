"""Is it alive, is it ready, how is it doing, as /v0 tells it."""

from __future__ import annotations

from aiohttp import web
from msgspec import Struct

from eventd.api.problems import success
from eventd.api.v0.models import NoQuery
from eventd.api.v0.routes import Call, Route


class Health(Struct, kw_only=True):
    """The process answers."""

    status: str
    version: str
    uptime_ms: int


class Ready(Struct, kw_only=True):
    """`status` is `ready` or `not ready`, and then the status of the answer is 503."""

    status: str
    wal_replay_complete: bool
    topics: int


async def show_health(call: Call[NoQuery, None]) -> web.Response:
    uptime = round((call.v0.clock.monotonic() - call.v0.started) * 1000)
    return success(Health(status="ok", version=call.v0.version, uptime_ms=uptime))


async def show_ready(call: Call[NoQuery, None]) -> web.Response:
    ready = all(told == "ok" for told in call.v0.readiness().values())
    topics = 0
    status = "ready" if ready else "not ready"
    return success(Ready(status=status, wal_replay_complete=True, topics=topics), ready=ready)


ROUTES: tuple[Route, ...] = (
    Route("GET", "/v0/health", show_health, "Whether the process answers.", answer=Health),
    Route("GET", "/v0/ready", show_ready, "Whether the node is ready.", answer=Ready, refusals=(503,)),
)
