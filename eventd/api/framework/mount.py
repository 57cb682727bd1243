"""Mounts routes on an application: requests are admitted, read within limits, handled and answered here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sized
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import quote

import msgspec
from aiohttp import web

from eventd.api.errors.faults import Handler, answering
from eventd.api.errors.problems import success
from eventd.api.framework.acting import Acting
from eventd.api.framework.admission import Admission, admit, services_for
from eventd.api.framework.endpoint import Endpoint, load
from eventd.api.framework.operations import Download, Params
from eventd.api.framework.reading import CallReader, ParamsReader
from eventd.api.framework.repeats import HEADER
from eventd.api.framework.route import Route, surface_of
from eventd.api.framework.traced import traced
from eventd.api.framework.withholding import run_for
from eventd.api.framework.worker_peers import WorkerPeers
from eventd.runtime.chance import Chance
from eventd.runtime.clock import Clock

Contexts = Mapping[type, Any]
"""The contexts that handlers get, by `Endpoint.context`."""


def make_app(
    routes: Iterable[Route],
    contexts: Contexts,
    admission: Admission,
    workers: WorkerPeers,
    clock: Clock,
    chance: Chance,
    acting: Acting,
) -> web.Application:
    """Return an application that serves the routes."""
    callers = admission.callers

    @web.middleware
    async def hear(request: web.Request, handler: Handler) -> web.StreamResponse:
        callers.heard(request)
        return await handler(request)

    errors = answering(lambda path: surface_of(path).form, chance, callers.identify, acting.ids.of)
    app = web.Application(middlewares=[errors, hear, workers.proxy])
    stopping: list[web.Application] = []

    async def stop(app: web.Application) -> None:
        stopping.append(app)

    app.on_shutdown.append(stop)
    for route in routes:
        endpoint = load(route)
        context = contexts[endpoint.context]
        if endpoint.params is not None and route.recorded:
            handler = _serve_action(route, endpoint, endpoint.params, context, admission, acting, stopping)
        elif endpoint.params is not None:
            handler = _serve_operation(route, endpoint, endpoint.params, context, admission, stopping)
        else:
            handler = _serve_call(route, endpoint, context, admission, clock, acting)
        app.router.add_route(route.method, aiohttp_path(route), traced(route, handler))
    return app


def aiohttp_path(route: Route) -> str:
    """Return the path of a route as the router of aiohttp takes it."""
    path = re.sub(r"{(\w+)}$", r"{\1:.+}", route.path) if route.deep else route.path
    return re.sub(r"{(\w+)}", r"{\1:[^/]+}", path)


def _serve_operation(
    route: Route, endpoint: Endpoint, params: type[Params], services: Any, admission: Admission, stopping: Sized
) -> Handler:
    """`stopping` is not empty as soon as the application shuts down."""
    assert not route.surface.counted
    reader = ParamsReader(route, params, admission.max_body_bytes)

    async def serve(request: web.Request) -> web.StreamResponse:
        key = admission.identify(route, request)
        admit(route, request.match_info, key)
        with admission.under_way(route, request, key), admission.limits.bodies.hold(key.digest) as held:
            params = await reader.read(request, held)
            given = _held(services_for(services, params, key), route, request, stopping)
            return _result(await run_for(key, route, partial(endpoint.run, given, params)))

    return serve


def _held(given: Any, route: Route, request: web.Request, stopping: Sized) -> Any:
    """Return the services for a request: for one that is held, they show whether its client still waits."""
    if not route.holds:
        return given
    return replace(given, client_waits=lambda: not stopping and is_connected(request))


def is_connected(request: web.Request) -> bool:
    """Return whether the client has not closed its connection yet."""
    return request.transport is not None and not request.transport.is_closing()


def _result(value: Any) -> web.Response:
    """Return the response with the result of an operation: JSON, or a file that a browser saves and never shows."""
    if not isinstance(value, Download):
        return success(value)
    name = quote(value.name, safe="")
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}", "X-Content-Type-Options": "nosniff"}
    return web.Response(body=value.content, content_type=value.media, charset=value.charset, headers=headers)


def _serve_action(
    route: Route,
    endpoint: Endpoint,
    model: type[Params],
    services: Any,
    admission: Admission,
    acting: Acting,
    stopping: Sized,
) -> Handler:
    """`stopping` is not empty as soon as the application shuts down."""
    reader = ParamsReader(route, model, admission.max_body_bytes)

    async def serve(request: web.Request) -> web.StreamResponse:
        draft = acting.draft(route, request)
        async with acting.recorder.recording(draft):
            key = admission.identify(route, request)
            draft.caller = acting.callers.describe(request, key)
            admit(route, request.match_info, key)
            with admission.under_way(route, request, key), admission.limits.bodies.hold(key.digest) as held:
                params = await reader.read(request, held)
                given = _held(services_for(services, params, key), route, request, stopping)
                run = partial(run_for, key, route, partial(endpoint.run, given, params))
                return await acting.answer(route, request, draft, params, run)

    return serve


def _serve_call(
    route: Route, endpoint: Endpoint, context: Any, admission: Admission, clock: Clock, acting: Acting
) -> Handler:
    reader = CallReader(route, endpoint, admission.max_body_bytes)

    async def serve(request: web.Request) -> web.StreamResponse:
        begun = clock.monotonic()
        key = admission.identify(route, request)
        with admission.under_way(route, request, key), admission.limits.bodies.hold(key.digest) as held:
            name = admit(route, request.match_info, key)
            query, body = await reader.read(request, held)
            call = endpoint.context(context, request, key, name, query, body, clock, begun)
            return _answer(route, await endpoint.run(call))

    async def act(request: web.Request) -> web.StreamResponse:
        begun, draft = clock.monotonic(), acting.draft(route, request)
        async with acting.recorder.recording(draft):
            key = admission.identify(route, request)
            draft.caller = acting.callers.describe(request, key)
            with admission.under_way(route, request, key), admission.limits.bodies.hold(key.digest) as held:
                name = admit(route, request.match_info, key)
                query, body = await reader.read(request, held)
                call = endpoint.context(context, request, key, name, query, body, clock, begun)
                return await acting.answer_call(route, request, draft, query, body, partial(endpoint.run, call))

    async def choose(request: web.Request) -> web.StreamResponse:
        return await (act if HEADER in request.headers else serve)(request)

    return act if route.recorded else choose if route.keyed else serve


def _answer(route: Route, answer: Any) -> web.StreamResponse:
    if isinstance(answer, web.StreamResponse):
        return answer
    status = 201 if route.creates and answer.created else 200
    return web.Response(status=status, body=msgspec.json.encode(answer), content_type="application/json")
