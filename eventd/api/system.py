"""Health, readiness, metrics and the description of the API."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import msgspec
from aiohttp import web

from eventd.api.errors.problems import success
from eventd.api.framework.callers import Callers
from eventd.api.framework.calls import Call
from eventd.api.framework.models import NoQuery, Query
from eventd.api.framework.operations import GROUP
from eventd.api.framework.worker_peers import WorkerPeers
from eventd.api.keys.api_key import ApiKey
from eventd.runtime.clock import Clock
from eventd.text.invisible import printable


class System(NamedTuple):
    """The context of the handlers in this module.

    `workers` reports the readiness and metrics of all processes of the node. `count_topics` returns the number of
    topics, without those of groups; None if /v0 is not served. `started`: when this process built its API, in seconds
    of the monotonic clock. `describe_all` and `describe_topics` return the OpenAPI documents of all routes and of those
    under /v0.
    """

    clock: Clock
    workers: WorkerPeers
    version: str
    callers: Callers
    count_topics: Callable[[], Awaitable[int]] | None
    started: float
    describe_all: Callable[[], bytes]
    describe_topics: Callable[[], bytes]


Q = TypeVar("Q")
B = TypeVar("B")


class SystemCall(Call[System, Q, B], Generic[Q, B]):
    """One request for health, readiness, metrics or OpenAPI."""

    __slots__ = ()


class ProbeQuery(Query, frozen=True):
    """`verbose`, unless it is `false` or `0`: answer in plain text, one line for each check, as kubectl's probes do.

    `standby`: with `ok`, a standby, which is not ready, answers 200; a node that serves ignores it.
    """

    verbose: str = "0"
    standby: str = ""

    @property
    def in_lines(self) -> bool:
        return self.verbose not in ("0", "false")


class Health(msgspec.Struct, kw_only=True):
    """The process answers: `status` is `ok`. `uptime_ms` counts from when it built its API."""

    status: str
    version: str
    uptime_ms: int


class Readiness(msgspec.Struct, kw_only=True):
    """`status` is `ready`, or `not ready` with the HTTP status 503. `topics` does not count those of groups.

    /readyz shows the readiness checks by name, each `ok` or a problem, and `wal_replay_complete` and `topics` if the
    node is ready and serves /v0. /v0/ready always shows these two, and no `checks`.
    """

    status: str
    checks: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    wal_replay_complete: bool | msgspec.UnsetType = msgspec.UNSET
    topics: int | msgspec.UnsetType = msgspec.UNSET


def in_lines(name: str, checks: Mapping[str, str], *, passed: bool) -> web.Response:
    """Return the checks of a probe in plain text: `[+]CHECK ok` or `[-]CHECK: PROBLEM`, and the result last."""
    lines = [f"[+]{check} ok" if state == "ok" else f"[-]{check}: {state}" for check, state in checks.items()]
    lines.append(f"{name} {'passed' if passed else 'failed'}")
    text = "".join(f"{printable(line)}\n" for line in lines)
    return web.Response(text=text, status=200 if passed else 503, headers={} if passed else {"Retry-After": "1"})


async def show_health(call: SystemCall[ProbeQuery, None]) -> Annotated[web.Response, Health]:
    """GET /healthz: version and uptime. It proves only that the event loop runs."""
    if call.query.in_lines:
        return in_lines("healthz", {"loop": "ok"}, passed=True)
    return success(_health(call.context))


async def show_v0_health(call: SystemCall[NoQuery, None]) -> Annotated[web.Response, Health]:
    """GET /v0/health: version and uptime."""
    return success(_health(call.context))


def _health(system: System) -> Health:
    uptime = round((system.clock.monotonic() - system.started) * 1000)
    return Health(status="ok", version=system.version, uptime_ms=uptime)


async def show_ready(call: SystemCall[ProbeQuery, None]) -> Annotated[web.Response, Readiness]:
    """GET /readyz: status 503 unless all checks are `ok`. What it shows of groups depends on the caller's key."""
    system = call.context
    checks = await system.workers.readiness()
    ready, shown = _all_ok(checks), _readable(checks, system.callers.recognise(call.request))
    if call.query.in_lines:
        return in_lines("readyz", shown, passed=ready)
    answer = Readiness(status=_STATUS[ready], checks=shown)
    if system.count_topics is not None and ready:
        await _add_topics(answer, system.count_topics)
    return success(answer, ready=ready)


async def show_v0_ready(call: SystemCall[NoQuery, None]) -> Annotated[web.Response, Readiness]:
    """GET /v0/ready: status 503 unless all checks are `ok`, without naming them."""
    system = call.context
    ready = _all_ok(await system.workers.readiness())
    answer = Readiness(status=_STATUS[ready])
    if system.count_topics is not None:
        await _add_topics(answer, system.count_topics)
    return success(answer, ready=ready)


_STATUS = {True: "ready", False: "not ready"}


def _all_ok(checks: Mapping[str, str]) -> bool:
    return all(state == "ok" for state in checks.values())


async def _add_topics(answer: Readiness, count_topics: Callable[[], Awaitable[int]]) -> None:
    # The node listens only after its log is open, so there is never anything left to replay.
    answer.wal_replay_complete, answer.topics = True, await count_topics()


def _readable(checks: dict[str, str], key: ApiKey | None) -> dict[str, str]:
    """Return all checks, with those of groups that the key may not access (without a key: any) merged as `groups`."""

    def hidden(name: str) -> bool:
        return name.startswith(GROUP) and (key is None or not key.sees(name.removeprefix(GROUP)))

    shown = {name: state for name, state in checks.items() if not hidden(name)}
    others = [state for name, state in checks.items() if hidden(name)]
    if others:
        shown["groups"] = "ok" if all(state == "ok" for state in others) else "not ready"
    return shown


_OPENMETRICS = re.compile(r"application/openmetrics-text(?![^,]*;\s*q=0(\.0*)?\s*([,;]|$))")
"""The media type in a header `Accept` that does not exclude it."""


async def show_metrics(call: SystemCall[NoQuery, None]) -> web.Response:
    """GET /metrics, of all workers that answer; as OpenMetrics, with exemplars, for a client that accepts it.

    A key that is limited to name prefixes gets only samples labelled with a group it may access.
    """
    accepts = bool(_OPENMETRICS.search(call.request.headers.get("Accept", "")))
    shown = await call.context.workers.render(call.key.sees if call.key.prefixes else None, accepts_exemplars=accepts)
    return web.Response(body=shown.text, headers={"Content-Type": shown.media})


async def describe_all(call: SystemCall[NoQuery, None]) -> Annotated[web.Response, dict[str, Any]]:
    """GET /openapi.json."""
    return web.Response(body=call.context.describe_all(), content_type="application/json")


async def describe_topics(call: SystemCall[NoQuery, None]) -> Annotated[web.Response, dict[str, Any]]:
    """GET /v0/openapi.json."""
    return web.Response(body=call.context.describe_topics(), content_type="application/json")
