"""/v0 as a part of the API's application: every route mounted, with its own form of errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from aiohttp import web

from eventd.api.bodies.bodies import SMALL_BYTES, aside
from eventd.api.errors.faults import Handler, answering
from eventd.api.errors.problems import FrameworkRefusal
from eventd.api.topics import problems
from eventd.api.topics.access import NAMED, admit, identify, in_force, place_of
from eventd.api.topics.catalogue import ROUTES
from eventd.api.topics.decoding import decode, read_json, read_query
from eventd.api.topics.routes import V0, Call, Route
from eventd.errors import EventdError

PREFIX = "/v0"


def add_v0(app: web.Application, v0: V0, routes: Iterable[Route] = ROUTES) -> None:
    """Mount /v0. What is under it answers for itself: the application's own checks have to let it through."""
    inner = web.Application(
        middlewares=[answering(problems.answer, partial(_refuse, v0), v0.log.chance), _hear(v0), v0.siblings.hand_on]
    )
    for route in routes:
        inner.router.add_route(route.method, _pattern(route.path), _mount(v0, route))
    app.add_subapp(PREFIX, inner)


def is_under(path: str) -> bool:
    """Whether a path is one of /v0's."""
    return path.startswith(PREFIX + "/")


def _pattern(path: str) -> str:
    """Any name is taken, also one that no topic can have: it is not there, rather than the path."""
    for name in NAMED:
        path = path.replace(f"{{{name}}}", f"{{{name}:[^/]+}}")
    return path.removeprefix(PREFIX)


def _hear(v0: V0) -> Any:
    @web.middleware
    async def hear(request: web.Request, handler: Handler) -> web.StreamResponse:
        v0.callers.heard(request)
        return await handler(request)

    return hear


def _refuse(v0: V0, request: web.Request, problem: FrameworkRefusal) -> web.Response:
    """A stranger is not even told which paths there are."""
    try:
        v0.callers.identify(request)
    except EventdError as error:
        return problems.answer(error)
    return problems.of_framework(problem, request.path, request.method)


def _mount(v0: V0, route: Route) -> Handler:
    async def serve(request: web.Request) -> web.StreamResponse:
        begun = v0.clock.monotonic()
        key = identify(v0, route, request)
        bodies = v0.occupancy.bodies
        with place_of(v0, route, key), in_force(v0, route, request, key), bodies.hold(key.digest) as held:
            name = admit(route, request, key)
            query = read_query(request, route.query)
            body = None
            if route.body is not None:
                most = min(v0.limits.max_body_bytes, route.most_bytes)
                text = await read_json(request, most, held, may_be_empty=route.may_be_empty)
                body = await aside(len(text), _decode, text, route.body, route.require_bounded)
            return await route.run(Call(v0, request, key, name, query, body, begun))

    return serve


def _decode(
    text: bytes | bytearray, model: type[Any], require_bounded: Callable[[bytes | bytearray], None] | None
) -> Any:
    if require_bounded is not None and len(text) > SMALL_BYTES:
        require_bounded(text)
    return decode(text, model)
