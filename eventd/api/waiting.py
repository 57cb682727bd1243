"""The API of a standby, which waits for another node to end: health, readiness and metrics; the rest is refused."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from eventd.api.errors.faults import Handler
from eventd.api.errors.problems import answer, success
from eventd.api.framework.auth import Keys
from eventd.errors import EventdError, Unavailable
from eventd.observe.metrics import METRICS_CONTENT_TYPE, Metrics


def build_waiting(keys: Keys, metrics: Metrics, version: str, holder: Callable[[], str]) -> web.Application:
    """Return the application; `holder` returns the name, for messages, of the node that serves the database."""

    @web.middleware
    async def explain(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except EventdError as error:
            return answer(error)

    async def healthz(_request: web.Request) -> web.Response:
        return success({"status": "ok", "version": version, "standby": True})

    async def readyz(_request: web.Request) -> web.Response:
        return success({"status": "standing by", "checks": {"database": f"served by {holder()}"}}, ready=False)

    async def show_metrics(request: web.Request) -> web.Response:
        keys.identify(request.headers.get("Authorization", "")).require_scope("read")
        return web.Response(body=metrics.render(), headers={"Content-Type": METRICS_CONTENT_TYPE})

    async def refuse(_request: web.Request) -> web.Response:
        hint = "call that node, or wait until this one takes over"
        raise Unavailable(f"this node stands by: {holder()} serves the database", hint=hint)

    app = web.Application(middlewares=[explain])
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", show_metrics)
    app.router.add_route("*", "/{path:.*}", refuse)
    return app
