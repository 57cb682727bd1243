"""Is it alive, is it ready, how is it doing: for load balancers, service managers and Prometheus."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from aiohttp import web

from eventd.api.errors.problems import success
from eventd.api.framework.auth import ApiKey, Keys
from eventd.api.framework.operations import GROUP
from eventd.api.framework.worker_peers import Siblings
from eventd.errors import Unauthorized
from eventd.observe.metrics import METRICS_CONTENT_TYPE
from eventd.runtime.clock import Clock

OPEN_PATHS = ("/healthz", "/readyz")
"""Answered without a key unless keys are to guard them, too: they tell nothing but the state of the node."""


class Probing(NamedTuple):
    """What the state of a node is read from.

    `siblings` knows how all its processes are doing; `count_topics` gives how many topics hold records.
    """

    clock: Clock
    siblings: Siblings
    version: str
    keys: Keys
    count_topics: Callable[[], Awaitable[int]] | None


def add_health(app: web.Application, probing: Probing, *, key: web.RequestKey[ApiKey]) -> None:
    """Mount the three. What is about a group is told to who may read of that group."""
    clock, siblings, version, keys, count_topics = probing
    started = clock.monotonic()

    async def healthz(_request: web.Request) -> web.Response:
        uptime = round((clock.monotonic() - started) * 1000)
        return success({"status": "ok", "version": version, "uptime_ms": uptime})

    async def readyz(request: web.Request) -> web.Response:
        checks = await siblings.readiness()
        ready = all(told == "ok" for told in checks.values())
        shown = _readable(checks, _known(keys, request))
        told: dict[str, Any] = {"status": "ready" if ready else "not ready", "checks": shown}
        if ready and count_topics is not None:
            told |= {"wal_replay_complete": True, "topics": await count_topics()}
        return success(told, ready=ready)

    async def show_metrics(request: web.Request) -> web.Response:
        request[key].require_scope("read")
        body = await siblings.render(request[key].sees if request[key].prefixes else None)
        return web.Response(body=body, headers={"Content-Type": METRICS_CONTENT_TYPE})

    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", show_metrics)


def _known(keys: Keys, request: web.Request) -> ApiKey | None:
    try:
        return keys.identify(request.headers.get("Authorization", ""))
    except Unauthorized:
        return None


def _readable(checks: dict[str, str], key: ApiKey | None) -> dict[str, str]:
    """The checks as this key may read them; those of other groups are told as one."""

    def hidden(name: str) -> bool:
        return name.startswith(GROUP) and (key is None or not key.sees(name.removeprefix(GROUP)))

    shown = {name: told for name, told in checks.items() if not hidden(name)}
    others = [told for name, told in checks.items() if hidden(name)]
    if others:
        shown["groups"] = "ok" if all(told == "ok" for told in others) else "not ready"
    return shown
