"""The API of a standby, which waits for another node to end: health, readiness and metrics; the rest is refused.

It has handlers of its own: those of a node, and their admission, depend on workers, limits, and keys of the database,
none of which a standby has.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from eventd.api.errors.faults import answering
from eventd.api.errors.problems import answer, success
from eventd.api.framework.decoding import read_query
from eventd.api.framework.route import surface_of
from eventd.api.keys.valid_keys import Keys
from eventd.api.system import ProbeQuery, in_lines
from eventd.errors import Unavailable
from eventd.observe.metrics import METRICS_CONTENT_TYPE, Metrics
from eventd.runtime.chance import Chance


def build_waiting(
    keys: Keys, metrics: Metrics, version: str, holder: Callable[[], str], chance: Chance
) -> web.Application:
    """Return the application of a standby; `holder` names, for messages, the process that serves the database."""

    async def show_health(request: web.Request) -> web.Response:
        if read_query(request.query, ProbeQuery).in_lines:
            return in_lines("healthz", {"loop": "ok"}, passed=True)
        return success({"status": "ok", "version": version, "standby": True})

    async def show_ready(request: web.Request) -> web.Response:
        query, checks = read_query(request.query, ProbeQuery), {"database": f"served by {holder()}"}
        ready = query.standby == "ok"
        if query.in_lines:
            return in_lines("readyz", checks, passed=ready)
        return success({"status": "standing by", "checks": checks}, ready=ready)

    async def show_metrics(request: web.Request) -> web.Response:
        keys.identify(request.headers.get("Authorization", "")).require_scope("look")
        return web.Response(body=metrics.render(), headers={"Content-Type": METRICS_CONTENT_TYPE})

    async def refuse(request: web.Request) -> web.Response:
        hint = "call that node, or wait until this one takes over"
        error = Unavailable(f"this node stands by: {holder()} serves the database", hint=hint)
        return answer(error, surface_of(request.path).form)  # not raised, so not logged: it is no fault

    app = web.Application(middlewares=[answering(lambda path: surface_of(path).form, chance)])
    app.router.add_get("/healthz", show_health)
    app.router.add_get("/readyz", show_ready)
    app.router.add_get("/metrics", show_metrics)
    app.router.add_route("*", "/{path:.*}", refuse)
    return app
