"""Builds the HTTP API of a running node, as one application."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial

import msgspec
from aiohttp import web

from eventd.api.admin.events.publishing import PublishCall, PublishConnections
from eventd.api.admin.resources.effective import EffectiveCall, EffectiveStreams
from eventd.api.framework.acting import Acting
from eventd.api.framework.admission import Admission
from eventd.api.framework.callers import Callers
from eventd.api.framework.limits import ConcurrencyLimits, Limits
from eventd.api.framework.mount import make_app
from eventd.api.framework.openapi import describe
from eventd.api.framework.operations import Services
from eventd.api.framework.recorder import ActionRecorder
from eventd.api.framework.request_ids import HEADER, RequestIds
from eventd.api.framework.route import TOPICS, Route
from eventd.api.framework.worker_peers import WorkerPeers
from eventd.api.quic.exchange import ExchangeCall, TokenIssuer
from eventd.api.routes import EXCHANGE, OPERATION_NAMES, ROUTES
from eventd.api.system import System, SystemCall
from eventd.api.topics.calls import V0
from eventd.api.topics.calls import Call as TopicsCall

KEEPALIVE_SECONDS = 75.0
"""How long the application's runner should keep an idle connection: longer than proxies do."""
_HEADERS = {"Server": "routerd-eventd", "X-Content-Type-Options": "nosniff"}


def build_app(
    services: Services,
    callers: Callers,
    workers: WorkerPeers,
    *,
    version: str,
    limits: Limits | None = None,
    routes: Iterable[Route] = ROUTES,
    v0: V0 | None = None,
    tokens: TokenIssuer | None = None,
    recorder: ActionRecorder | None = None,
) -> web.Application:
    """Return the application of a node's API; run it with a `Runner` and `KEEPALIVE_SECONDS`.

    Without `v0`, no route under /v0 is served, and without `tokens` none that exchanges tokens. `limits` is only used
    without `v0`, which has its own. `recorder`: that of the node, whose caller stores the counts of refused actions.
    """
    clock = services.clock
    limits = v0.limits if v0 is not None else limits or Limits()
    concurrency = v0.serving.concurrency if v0 is not None else ConcurrencyLimits(limits)
    count_topics = None if v0 is None else v0.count_topics
    streams = EffectiveStreams(services, callers)
    publishing = PublishConnections(services, callers, concurrency, limits.max_body_bytes)
    system = System(
        clock,
        workers,
        version,
        callers,
        count_topics,
        clock.monotonic(),
        describe_all=partial(_describe, version, whole=True),
        describe_topics=partial(_describe, version, whole=False),
    )
    contexts = {
        Services: services,
        SystemCall: system,
        EffectiveCall: streams,
        PublishCall: publishing,
        TopicsCall: v0,
        ExchangeCall: tokens,
    }
    served = [route for route in routes if v0 is not None or route.surface is not TOPICS]
    if tokens is None:
        served = [route for route in served if route is not EXCHANGE]
    admission = Admission(callers, concurrency, limits.max_body_bytes)
    ids = RequestIds(services.log.chance)
    recorder = recorder or ActionRecorder(services.database, clock, services.metrics)
    acting = Acting(callers, recorder, ids, OPERATION_NAMES)
    workers.answer_with("verify", partial(_answer_verify, services))
    app = make_app(served, contexts, admission, workers, clock, services.log.chance, acting)

    async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(_HEADERS)
        response.headers.setdefault("Cache-Control", "no-store")
        response.headers[HEADER] = ids.of(request)

    app.on_response_prepare.append(add_headers)
    app.on_startup.append(streams.begin)
    app.on_shutdown.extend((streams.end, publishing.end))
    return app


@cache
def _describe(version: str, *, whole: bool) -> bytes:
    """Return the OpenAPI document as JSON: for all routes if `whole`, else for the routes under /v0."""
    title = "API of a routerd-eventd node" if whole else "Topics of a routerd-eventd node"
    routes = [route for route in ROUTES if whole or route.surface is TOPICS]
    return msgspec.json.encode(describe(routes, title, version))


async def _answer_verify(services: Services, question: bytes) -> bytes:
    from eventd.api.verify.operations import answer_verify  # as its route does: with the first request

    return await answer_verify(services, question)
