"""The API as one application: every operation mounted, every error in one shape, every caller identified."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from aiohttp import web
from pydantic import BaseModel

from eventd.api.admin.effective import add_effective
from eventd.api.bodies.bodies import HUGE_BYTES, LIGHT_BYTES, Bodies, Held, aside, read_body
from eventd.api.bodies.json_shape import require_modest
from eventd.api.bodies.outlines import read_outline
from eventd.api.catalogue import all_operations
from eventd.api.errors import problems
from eventd.api.errors.codes import WrongMediaType
from eventd.api.errors.faults import Handler, answering
from eventd.api.framework.auth import ApiKey, Keys
from eventd.api.framework.callers import Callers
from eventd.api.framework.operations import Operation, Services
from eventd.api.framework.params import from_query, merge, read_params
from eventd.api.framework.worker_peers import Siblings
from eventd.api.health import OPEN_PATHS, Probing, add_health
from eventd.api.listener.connections import Door
from eventd.api.topics.app import add_v0, is_under
from eventd.api.topics.routes import V0
from eventd.errors import Invalid

MAX_BODY_BYTES = 64 << 20
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
    """The application; run it with a `Runner` and `KEEPALIVE_SECONDS`."""
    callers = Callers(keys, door)
    checks = [answering(problems.answer, _refuse, services.log.chance), _identify(callers)]
    app = web.Application(middlewares=[_outside_v0(each) for each in checks])
    bodies = v0.occupancy.bodies if v0 is not None else Bodies.of_process(max_body_bytes)
    app.on_response_prepare.append(_add_headers)
    probing = Probing(services.clock, siblings, version, keys, None if v0 is None else v0.count_topics)
    add_health(app, probing, key=_KEY)
    add_effective(app, services, callers, key=_KEY)
    for operation in all_operations() if operations is None else operations:
        reader = _Reader(operation, bodies, max_body_bytes)
        app.router.add_route(operation.route.method, operation.route.path, _mount(operation, services, reader))
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


def _mount(operation: Operation[Any], services: Services, reader: _Reader) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        key = request[_KEY]
        key.require_scope(operation.route.scope)
        if "group" in request.match_info:  # before anything of the body is read
            key.require_group(request.match_info["group"])
        with reader.bodies.hold(key.digest) as held:
            params = await reader.read(request, held)
            key.require_group(getattr(params, "group", None) or None)
            return problems.success(await operation.run(services, params))

    return handle


class _Reader:
    """Makes the parameters of an operation from a request. What it holds and computes for one is bounded."""

    def __init__(self, operation: Operation[Any], bodies: Bodies, most: int) -> None:
        self.bodies = bodies
        self._operation = operation
        self._bytes = min(most, operation.route.body.bytes)
        self._by_setting = most <= operation.route.body.bytes

    async def read(self, request: web.Request, held: Held) -> BaseModel:
        raw: bytes | bytearray = b"" if self._operation.route.method == "GET" else await self._read_body(request, held)
        params = None
        if not request.query_string and len(raw) <= HUGE_BYTES:
            params = await aside(len(raw), self._read_quickly, request.match_info, raw)
        if params is None:
            query = list(request.query.items())
            params = await aside(len(raw), self._read_closely, request.match_info, query, raw, light=LIGHT_BYTES)
        return params

    def _read_quickly(self, path: Mapping[str, str], raw: bytes | bytearray) -> BaseModel | None:
        if len(raw) > LIGHT_BYTES:
            require_modest(raw, self._operation.route.body.values)
        params: BaseModel | None = self._operation.quick(path, raw)
        return params

    def _read_closely(
        self, path: Mapping[str, str], query: Sequence[tuple[str, str]], raw: bytes | bytearray
    ) -> BaseModel:
        model = self._operation.params
        named = from_query(model, query)
        body = _decode(raw, self._operation.route.body.values) if raw else {}
        # JSON has one way to write U+0000: what does not stand in the text is in none of its values.
        plain = body.keys() - path.keys() - named.keys() if _NUL not in raw else ()
        params: BaseModel = read_params(model, merge(path, named, body), plain)
        return params

    async def _read_body(self, request: web.Request, held: Held) -> bytes | bytearray:
        """The body, which is to be JSON; empty where there is none."""
        if not request.body_exists:
            return b""
        if request.content_type != "application/json" or (request.charset or "utf-8").lower() not in ("utf-8", "utf8"):
            raise WrongMediaType("the body must be JSON in UTF-8", hint="send it with Content-Type: application/json")
        return await read_body(request, self._bytes, held, setting=self._by_setting)


def _decode(body: bytes | bytearray, values: int) -> dict[str, Any]:
    require_modest(body, values)
    try:
        value = read_outline(body) if len(body) > HUGE_BYTES else msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = str(error).removeprefix("JSON is malformed: ")
        raise Invalid(f"the body is not valid JSON: {why}") from None
    except RecursionError:
        raise Invalid("the body is not valid JSON: it is nested too deep") from None
    if not isinstance(value, dict):
        raise Invalid("the body must be a JSON object", hint='write {"field": value, …}')
    return value
