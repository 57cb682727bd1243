"""Is it alive, is it ready, how is it doing: for load balancers, service managers and Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from eventd.api.auth import ApiKey
from eventd.api.problems import success
from eventd.clock import Clock
from eventd.observe import METRICS_CONTENT_TYPE, Metrics

OPEN_PATHS = ("/healthz", "/readyz")
"""Answered without a key: they tell nothing but the state of the node."""

Readiness = Callable[[], dict[str, str]]


def add_health(
    app: web.Application,
    *,
    clock: Clock,
    readiness: Readiness,
    metrics: Metrics,
    version: str,
    key: web.RequestKey[ApiKey],
) -> None:
    """Mount the three. `readiness` gives what was checked, each "ok" or what is wrong with it."""
    started = clock.monotonic()

    async def healthz(_request: web.Request) -> web.Response:
        uptime = round((clock.monotonic() - started) * 1000)
        return success({"status": "ok", "version": version, "uptime_ms": uptime})

    async def readyz(_request: web.Request) -> web.Response:
        checks = readiness()
        ready = all(told == "ok" for told in checks.values())
        return success({"status": "ready" if ready else "not ready", "checks": checks}, ready=ready)

    async def show_metrics(request: web.Request) -> web.Response:
        request[key].require_scope("read")
        return web.Response(body=metrics.render(), headers={"Content-Type": METRICS_CONTENT_TYPE})

    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", show_metrics)
