"""Health, readiness, metrics and the description of the API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from typing import Annotated, Any, NamedTuple

import msgspec
from aiohttp import web

from eventd.api.errors.problems import success
from eventd.api.framework.auth import ApiKey, Keys
from eventd.api.framework.calls import Call
from eventd.api.framework.models import NoQuery
from eventd.api.framework.openapi import describe
from eventd.api.framework.operations import GROUP
from eventd.api.framework.worker_peers import WorkerPeers
from eventd.api.routes import ROUTES, TOPICS
from eventd.api.topics.health import Health
from eventd.errors import Unauthorized
from eventd.observe.metrics import METRICS_CONTENT_TYPE
from eventd.runtime.clock import Clock


class System(NamedTuple):
    """The context of the handlers in this module.

    `workers` reports the readiness and metrics of all processes of the node. `count_topics` returns the number of
    topics, without those of groups; None if /v0 is not served. `started`: when this process built its API, in seconds
    of the monotonic clock.
    """

    clock: Clock
    workers: WorkerPeers
    version: str
    keys: Keys
    count_topics: Callable[[], Awaitable[int]] | None
    started: float


class SystemCall(Call[System, NoQuery, None]):
    """One request about the node itself."""

    __slots__ = ()


class Readiness(msgspec.Struct, kw_only=True):
    """The readiness checks by name, each `ok` or a problem. A ready node that serves /v0 adds the last two fields."""

    status: str
    checks: dict[str, str]
    wal_replay_complete: bool | msgspec.UnsetType = msgspec.UNSET
    topics: int | msgspec.UnsetType = msgspec.UNSET


async def show_health(call: SystemCall) -> Annotated[web.Response, Health]:
    """GET /healthz."""
    system = call.context
    uptime = round((system.clock.monotonic() - system.started) * 1000)
    return success(Health(status="ok", version=system.version, uptime_ms=uptime))


async def show_ready(call: SystemCall) -> Annotated[web.Response, Readiness]:
    """GET /readyz: status 503 unless all checks are `ok`; what is shown of groups depends on the caller's key."""
    system = call.context
    checks = await system.workers.readiness()
    ready = all(state == "ok" for state in checks.values())
    shown = _readable(checks, _caller(system.keys, call.request))
    answer = Readiness(status="ready" if ready else "not ready", checks=shown)
    if ready and system.count_topics is not None:
        answer.wal_replay_complete, answer.topics = True, await system.count_topics()
    return success(answer, ready=ready)


def _caller(keys: Keys, request: web.Request) -> ApiKey | None:
    try:
        return keys.identify(request.headers.get("Authorization", ""))
    except Unauthorized:
        return None


def _readable(checks: dict[str, str], key: ApiKey | None) -> dict[str, str]:
    """Return the checks that this key may read; those of groups that it may not access are merged as `groups`."""

    def hidden(name: str) -> bool:
        return name.startswith(GROUP) and (key is None or not key.sees(name.removeprefix(GROUP)))

    shown = {name: state for name, state in checks.items() if not hidden(name)}
    others = [state for name, state in checks.items() if hidden(name)]
    if others:
        shown["groups"] = "ok" if all(state == "ok" for state in others) else "not ready"
    return shown


async def show_metrics(call: SystemCall) -> web.Response:
    """GET /metrics. A key that is limited to name prefixes gets only samples labelled with a group it may access."""
    body = await call.context.workers.render(call.key.sees if call.key.prefixes else None)
    return web.Response(body=body, headers={"Content-Type": METRICS_CONTENT_TYPE})


@cache
def _document(version: str, *, whole: bool) -> bytes:
    title = "API of a routerd-eventd node" if whole else "Topics of a routerd-eventd node"
    return msgspec.json.encode(describe(ROUTES if whole else TOPICS, title, version))


async def describe_all(call: SystemCall) -> Annotated[web.Response, dict[str, Any]]:
    """GET /openapi.json."""
    return web.Response(body=_document(call.context.version, whole=True), content_type="application/json")


async def describe_topics(call: SystemCall) -> Annotated[web.Response, dict[str, Any]]:
    """GET /v0/openapi.json."""
    return web.Response(body=_document(call.context.version, whole=False), content_type="application/json")
