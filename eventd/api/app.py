"""The API as one application: every operation mounted, every error in one shape, every caller identified."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec
from aiohttp import web
from pydantic import BaseModel

from eventd.api import problems
from eventd.api.auth import ApiKey, Keys
from eventd.api.callers import Callers
from eventd.api.codes import SlowBody, WrongMediaType
from eventd.api.doors import Door
from eventd.api.effective import add_effective
from eventd.api.faults import Handler, answering
from eventd.api.health import OPEN_PATHS, Probing, add_health
from eventd.api.operations import Operation, Services
from eventd.api.params import from_query, merge, read_params
from eventd.api.siblings import Siblings
from eventd.api.surfaces import all_operations
from eventd.api.v0.app import add_v0, is_under
from eventd.api.v0.routes import V0
from eventd.errors import Invalid

MAX_BODY_BYTES = 16 << 20
BODY_SECONDS = 30.0
"""A body has to arrive within this time, so that slow senders cannot pile up."""
KEEPALIVE_SECONDS = 75.0
"""How long the runner of the application should keep an idle connection: longer than proxies do."""

_NUL = rb"\u0000"
_KEY: web.RequestKey[ApiKey] = web.RequestKey("api_key", ApiKey)
_HEADERS = {"Server": "routerd-eventd", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def build_app(
    services: Services,
    *,
    keys: Keys,
    siblings: Siblings,
    version: str,
    door: Door,
    max_body_bytes: int = MAX_BODY_BYTES,
    operations: Iterable[Operation[Any]] | None = None,
    v0: V0 | None = None,
) -> web.Application:
    """The application; whoever runs it does so with `access_log=None` and `KEEPALIVE_SECONDS`."""
    callers = Callers(keys, door)
    checks = [answering(problems.answer, _refuse), _identify(callers)]
    app = web.Application(middlewares=[_outside_v0(each) for each in checks], client_max_size=max_body_bytes)
    app.on_response_prepare.append(_add_headers)
    probing = Probing(services.clock, siblings, version, keys, None if v0 is None else v0.count_topics)
    add_health(app, probing, key=_KEY)
    add_effective(app, services, callers, key=_KEY)
    for operation in all_operations() if operations is None else operations:
        app.router.add_route(operation.route.method, operation.route.path, _mount(operation, services))
    if v0 is not None:
        add_v0(app, v0)
    return app


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


def _outside_v0(middleware: Any) -> Any:
    """What is under /v0 answers in its own form, and asks for keys in its own order."""

    @web.middleware
    async def pass_by(request: web.Request, handler: Handler) -> web.StreamResponse:
        inside = is_under(request.path)
        return await (handler(request) if inside else middleware(request, handler))

    return pass_by


def _refuse(request: web.Request, problem: problems.FrameworkRefusal) -> web.Response:
    refusal, allow = problems.of_framework(problem, request.path, request.method)
    return problems.answer(refusal, allow=allow)


def _identify(callers: Callers) -> Any:
    @web.middleware
    async def identify(request: web.Request, handler: Handler) -> web.StreamResponse:
        callers.heard(request)
        if request.path not in OPEN_PATHS or callers.keys.guards_probes:
            request[_KEY] = callers.identify(request)
        return await handler(request)

    return identify


def _mount(operation: Operation[Any], services: Services) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        key = request[_KEY]
        key.require_scope(operation.route.scope)
        params = await _read(request, operation)
        key.require_group(getattr(params, "group", None) or None)
        return problems.success(await operation.run(services, params))

    return handle


async def _read(request: web.Request, operation: Operation[Any]) -> BaseModel:
    raw = b"" if operation.route.method == "GET" else await _read_body(request)
    params: BaseModel | None = None if request.query_string else operation.quick(request.match_info, raw)
    if params is None:
        query = from_query(operation.params, list(request.query.items()))
        body = _decode(raw) if raw else {}
        # JSON has one way to write U+0000: what does not stand in the text is in none of its values.
        plain = body.keys() - request.match_info.keys() - query.keys() if _NUL not in raw else ()
        params = read_params(operation.params, merge(request.match_info, query, body), plain)
    return params


async def _read_body(request: web.Request) -> bytes:
    """The body, which is to be JSON; empty where there is none."""
    if not request.body_exists:
        return b""
    if request.content_type != "application/json" or (request.charset or "utf-8").lower() not in ("utf-8", "utf8"):
        raise WrongMediaType("the body must be JSON in UTF-8", hint="send it with Content-Type: application/json")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.read()
    except TimeoutError:
        raise SlowBody(f"the body did not arrive within {BODY_SECONDS:g} s") from None
    except web.RequestPayloadError:
        raise Invalid("the body is broken: it does not follow its own length or encoding") from None


def _decode(body: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = str(error).removeprefix("JSON is malformed: ")
        raise Invalid(f"the body is not valid JSON: {why}") from None
    except RecursionError:
        raise Invalid("the body is not valid JSON: it is nested too deep") from None
    if not isinstance(value, dict):
        raise Invalid("the body must be a JSON object", hint='write {"field": value, …}')
    return value
