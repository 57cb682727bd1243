"""The application of the surface: its routes, and what happens to a request before and after its handler."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from aiohttp import web

from eventd.api.bodies.bodies import BODY_SECONDS, BodyReservation, read_body
from eventd.api.routemaster import health, publishing, subscriptions, tokens, topics
from eventd.api.routemaster.answers import BadRequest, is_failure, not_found, redirect, refuse, too_slow
from eventd.api.routemaster.callers import identify
from eventd.api.routemaster.json_text import read_json
from eventd.api.routemaster.secure_transport import POLICY, https_target, is_secure, target_of
from eventd.api.routemaster.surface import Caller, Kind, SurfaceCall, SurfaceContext
from eventd.errors import EventdError

KEEPALIVE_SECONDS: Final = 75.0
"""How long the application's runner should keep an idle connection: longer than proxies do."""
BODY_BYTES: Final = 256 << 10
"""Maximum bytes of a body."""

SurfaceHandler = Callable[[SurfaceCall], Awaitable[web.Response]]


class SurfaceRoute(NamedTuple):
    """One method of one path, the kinds of callers in the order in which a refusal names them, and the handler."""

    method: str
    path: str
    kinds: tuple[Kind, ...]
    handler: SurfaceHandler

    @property
    def has_body(self) -> bool:
        """Return whether the body of a request is read."""
        return self.method == "POST"


_ROOT_FIRST: Final[tuple[Kind, ...]] = ("root", "client")
_CLIENT_FIRST: Final[tuple[Kind, ...]] = ("client", "root")
ROUTES: Final = (
    SurfaceRoute("POST", "/topics/{name}", ("client",), publishing.publish),
    SurfaceRoute("GET", "/topics", _CLIENT_FIRST, topics.list_topics),
    SurfaceRoute("DELETE", "/topics/{name}", _CLIENT_FIRST, topics.delete),
    SurfaceRoute("DELETE", "/topic/{name}", _CLIENT_FIRST, topics.delete),
    SurfaceRoute("POST", "/subscription", ("client",), subscriptions.subscribe),
    SurfaceRoute("POST", "/subscriber", ("client",), subscriptions.subscribe),
    SurfaceRoute("GET", "/subscriptions", _ROOT_FIRST, subscriptions.list_subscribers),
    SurfaceRoute("GET", "/subscribers", _ROOT_FIRST, subscriptions.list_subscribers),
    SurfaceRoute("DELETE", "/subscriber", _ROOT_FIRST, subscriptions.unsubscribe),
    SurfaceRoute("DELETE", "/subscriber/topics/{name}", _ROOT_FIRST, subscriptions.leave),
    SurfaceRoute("GET", "/api_tokens", ("root",), tokens.list_tokens),
    SurfaceRoute("POST", "/api_tokens", ("root",), tokens.create),
    SurfaceRoute("DELETE", "/api_tokens/{name}", ("root",), tokens.delete),
    SurfaceRoute("GET", "/pulse", _ROOT_FIRST, health.pulse),
    SurfaceRoute("GET", "/pulse/scaling", _ROOT_FIRST, health.scaling),
    SurfaceRoute("GET", "/health", ("none",), health.health),
    SurfaceRoute("GET", "/health/ping", ("none",), health.ping),
    SurfaceRoute("GET", "/health/ping.json", ("none",), health.ping),
)
_PATTERNS: Final = [
    (route, re.compile(re.escape(route.path).replace(r"\{name\}", "(?P<name>[^/]+)"))) for route in ROUTES
]


def build_surface(surface: SurfaceContext) -> web.Application:
    """Return the application; run it with a `Runner` and `KEEPALIVE_SECONDS`."""

    async def dispatch(request: web.Request) -> web.StreamResponse:
        surface.limiter.heard(request.transport)
        config = surface.config
        secure = not config.require_tls or is_secure(request, config.proxies)
        if not secure and not target_of(request).startswith("/health"):
            response = redirect(request.method, https_target(request, config.public_url))
        else:
            response = await _answer(surface, request)
        response.headers["Server"] = "routerd-eventd"
        if config.require_tls and secure:
            response.headers[POLICY[0]] = POLICY[1]
        if response.status >= 300 and not request.content.is_eof():
            response.force_close()  # the rest of a refused body is not worth reading
        return response

    app = web.Application()
    app.router.add_route("*", r"/{path:[\s\S]*}", dispatch)
    return app


async def _answer(surface: SurfaceContext, request: web.Request) -> web.Response:
    route, name = _find(request.method, target_of(request).partition("?")[0])
    if route is None:
        return not_found()
    try:
        async with asyncio.timeout(BODY_SECONDS + 30):
            return await _serve(surface, request, route, name)
    except EventdError as error:
        if is_failure(error):
            surface.failed.note(error, f"{route.method} {route.path}")
        return refuse(error)
    except TimeoutError:
        return too_slow()


def _find(method: str, path: str) -> tuple[SurfaceRoute | None, str]:
    """Return the route of a request, and the parameter of its path; None if nothing is served there."""
    method = "GET" if method == "HEAD" else method
    for route, pattern in _PATTERNS:
        if route.method == method and (found := pattern.fullmatch(path)):
            return route, unquote(found.groupdict().get("name", ""), errors="replace")
    return None, ""


async def _serve(surface: SurfaceContext, request: web.Request, route: SurfaceRoute, name: str) -> web.Response:
    caller = identify(surface, request, route.kinds)
    with _under_way(surface, request, caller), surface.limits.bodies.hold(caller.key.digest) as held:
        body = await _read(request, held) if route.has_body else {}
        key = request.headers.get("Idempotency-Key", "")
        return await route.handler(SurfaceCall(surface, caller, name, body, key))


@contextmanager
def _under_way(surface: SurfaceContext, request: web.Request, caller: Caller) -> Iterator[None]:
    """Count the request, and close its connection if its token ends while the block runs. Raises `Throttled`."""
    if caller.kind == "none":
        yield
    elif caller.kind == "root":
        with surface.limits.requests.take(caller.key):
            yield
    else:
        with surface.limits.requests.take(caller.key), surface.keys.using(caller.key, partial(_cut, request)):
            yield


def _cut(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


async def _read(request: web.Request, held: BodyReservation) -> dict[str, Any]:
    """Return the members of the JSON object in the body. Raises `BadRequest`, and the errors of `read_body`."""
    text = await read_body(request, BODY_BYTES, held, setting=False)
    try:
        body = read_json(text)
    except ValueError:
        raise BadRequest("") from None
    if not isinstance(body, dict):
        raise BadRequest("")
    return body
