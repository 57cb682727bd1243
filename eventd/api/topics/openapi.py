"""What /v0 is, as OpenAPI 3.1: made from the routes and the models they read and write with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import msgspec
from aiohttp import web
from msgspec import UNSET, Struct, UnsetType

from eventd.api.topics.models import NoQuery
from eventd.api.topics.routes import Call, Route

_REF = "#/components/schemas/{name}"
_NAME = re.compile(r"{(\w+)}")
_REFUSALS = {
    400: "The request is wrong; the same one will never be accepted.",
    401: "A key is missing or not known.",
    403: "The key may not do this, or not with this name.",
    404: "What was named is not there.",
    406: "The answer is a stream of events, and the client does not take one.",
    408: "The body did not arrive in time.",
    409: "It contradicts what is there.",
    413: "The body is too large.",
    415: "The body is not declared as JSON.",
    422: "The topic is full and refuses more.",
    429: "A limit is reached; try again after `Retry-After` seconds.",
    500: "A fault of the node.",
    503: "Not now; try again after `Retry-After` seconds.",
}


class Problem(Struct, kw_only=True):
    """Why a request was refused. `code` is a stable word, `detail` holds facts by name."""

    code: str
    message: str
    detail: dict[str, Any] | UnsetType = UNSET


class Refusal(Struct, kw_only=True):
    """The body of every answer beyond 399."""

    error: Problem


def describing(routes: tuple[Route, ...]) -> Route:
    """The route at which these routes, and itself, are described."""

    @cache
    def document(version: str) -> bytes:
        return msgspec.json.encode(describe((*routes, itself), version))

    async def show(call: Call[NoQuery, None]) -> web.Response:
        return web.Response(body=document(call.v0.version), content_type="application/json")

    itself = Route("GET", "/v0/openapi.json", show, "This description.", answer=dict[str, Any])
    return itself


def describe(routes: Iterable[Route], version: str) -> dict[str, Any]:
    """The whole document."""
    routes = tuple(routes)
    used = [model for route in routes for model in (route.body, route.answer, route.unready)]
    models = [Refusal, *(model for model in used if model is not None)]
    schemas, components = msgspec.json.schema_components(dict.fromkeys(models), ref_template=_REF)
    shape = dict(zip(dict.fromkeys(models), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, shape)
    key = {"type": "http", "scheme": "bearer", "description": "Not needed where the node has no keys."}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Topics of a routerd-eventd node", "version": version},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"key": key}},
    }


def _operation(route: Route, shape: dict[Any, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {"summary": route.summary, "operationId": _id(route), "parameters": [*_parameters(route)]}
    if route.body is not None:
        content = {"application/json": {"schema": shape[route.body]}}
        told["requestBody"] = {"required": not route.may_be_empty, "content": content}
    told["responses"] = _answers(route, shape)
    if route.scopes:
        told["security"] = [{"key": []}]
        told["description"] = f"Needs the scope {' and '.join(route.scopes)}."
    return told


def _answers(route: Route, shape: dict[Any, Any]) -> dict[str, Any]:
    done = {route.media: {"schema": shape[route.answer]} if route.answer is not None else {}}
    answers: dict[str, Any] = {"200": {"description": "Done.", "content": done}}
    if route.upgrade:
        answers = {"101": {"description": "The connection is a WebSocket now."}}
    if route.creates:
        answers["201"] = {"description": "Done, and something was made.", "content": done}
    for status in sorted(_statuses(route)):
        carried = route.unready if status == 503 and route.unready is not None else Refusal
        content = {"application/json": {"schema": shape[carried]}}
        answers[str(status)] = {"description": _REFUSALS[status], "content": content}
    return answers


def _id(route: Route) -> str:
    return re.sub(r"\W+", "_", f"{route.method.lower()} {route.path.removeprefix('/v0/')}").strip("_")


def _statuses(route: Route) -> set[int]:
    statuses = {500, 503, *route.refusals}
    if route.scopes:
        statuses |= {400, 401, 403, 429}
    if route.body is not None:
        statuses |= {400, 408, 413, 415}
    if _NAME.search(route.path) and route.method != "DELETE":
        statuses.add(404)
    return statuses


def _parameters(route: Route) -> Iterator[dict[str, Any]]:
    for name in _NAME.findall(route.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
    for field in msgspec.structs.fields(route.query):
        schema = msgspec.json.schema(field.type) | ({} if field.default is UNSET else {"default": field.default})
        yield {"name": field.encode_name, "in": "query", "required": False, "schema": schema}
    if route.stream and not route.upgrade:
        yield {"name": "token", "in": "query", "required": False, "schema": {"type": "string"}}
