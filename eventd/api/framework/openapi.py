"""The OpenAPI 3.1 description of the API, generated from the route table and the models of the handlers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType
from pydantic import BaseModel

from eventd.api.framework.endpoint import Endpoint, load
from eventd.api.framework.route import TOPICS, Route

Json = dict[str, Any]

_REF = "#/components/schemas/{name}"
_NAME = re.compile(r"{(\w+)}")
REFUSALS = {
    400: "The request is invalid; a retry will not succeed.",
    401: "The API key is missing, unknown, revoked or expired.",
    403: "The key lacks the scope, or may not access this name.",
    404: "What the request names does not exist.",
    406: "The answer is a stream of events, and the client does not accept one.",
    408: "The body did not arrive in time.",
    409: "The request contradicts the present state.",
    413: "The body is too large.",
    415: "The body is not declared as JSON.",
    422: "The topic is full and refuses more.",
    429: "A limit is reached; retry after `Retry-After` seconds.",
    500: "An internal error of the node.",
    503: "Temporarily unavailable; retry after `Retry-After` seconds.",
}
"""The descriptions of error statuses."""


class Problem(Struct, kw_only=True):
    """Why a request failed. `code` is a stable slug, `detail` holds values by name."""

    code: str
    message: str
    detail: dict[str, Any] | UnsetType = UNSET


class Refusal(Struct, kw_only=True):
    """The body of an error response under /v0."""

    error: Problem


class HintedProblem(Struct, kw_only=True):
    """Why a request failed. `code` is a stable slug, `hint` the next step, `detail` holds values by name."""

    code: str
    message: str
    hint: str | UnsetType = UNSET
    detail: Any | UnsetType = UNSET


class HintedRefusal(Struct, kw_only=True):
    """The body of an error response outside /v0."""

    error: HintedProblem


def describe(routes: Iterable[Route], title: str, version: str) -> Json:
    """Return the OpenAPI document of the routes, without those for HEAD."""
    described = [(route, load(route)) for route in routes if route.method != "HEAD"]
    schemas = _Schemas(described)
    paths: dict[str, Json] = {}
    for route, endpoint in described:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, endpoint, schemas)
    key = {"type": "http", "scheme": "bearer", "description": "Not required if the node has no keys."}
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": paths,
        "components": {"schemas": schemas.components, "securitySchemes": {"key": key}},
    }


class _Schemas:
    """The JSON schemas of the models of all routes. `components`: the schemas that others refer to, by name."""

    def __init__(self, described: Iterable[tuple[Route, Endpoint]]) -> None:
        models: dict[Any, None] = {}
        self._params: dict[Any, Json] = {}
        self.components: Json = {}
        for route, endpoint in described:
            models |= dict.fromkeys((refusal_of(route), endpoint.body, endpoint.answer))
            if endpoint.params is not None:
                self._params[endpoint.params] = self._read_params(endpoint.params)
        models.pop(None, None)
        schemas, components = msgspec.json.schema_components(models, ref_template=_REF)
        self.components |= components
        self._models = dict(zip(models, schemas, strict=True))

    def _read_params(self, model: type[BaseModel]) -> Json:
        schema = model.model_json_schema(ref_template=_REF.replace("name", "model"))
        self.components |= schema.pop("$defs", {})
        return schema

    def __getitem__(self, model: Any) -> Json:
        schema: Json = self._models[model]
        return schema

    def of_params(self, model: Any, *, leave_out: Iterable[str] = ()) -> Json:
        """Return the object schema of an operation's parameters, without the members named in `leave_out`."""
        schema = self._params[model]
        left = {name: member for name, member in schema.get("properties", {}).items() if name not in leave_out}
        required = [name for name in schema.get("required", ()) if name in left]
        return schema | {"properties": left, "required": required}


def refusal_of(route: Route) -> type[Struct]:
    """Return the error model of a route."""
    return Refusal if route.surface is TOPICS else HintedRefusal


def _operation(route: Route, endpoint: Endpoint, schemas: _Schemas) -> Json:
    described: Json = {
        "summary": route.summary,
        "operationId": _id(route),
        "parameters": [*_parameters(route, endpoint, schemas)],
    }
    body = _body(route, endpoint, schemas)
    if body is not None:
        required = not (route.may_be_empty or (endpoint.params is not None and not body.get("required")))
        described["requestBody"] = {"required": required, "content": {"application/json": {"schema": body}}}
    described["responses"] = _answers(route, endpoint, schemas)
    if route.scopes:
        described["security"] = [{"key": []}]
        described["description"] = f"Needs the scope {(' or ' if route.any_scope else ' and ').join(route.scopes)}."
        if route.withheld:
            described["description"] += f" For a key without read, these are empty: {', '.join(route.withheld)}."
    return described


def _body(route: Route, endpoint: Endpoint, schemas: _Schemas) -> Json | None:
    if endpoint.params is not None:
        body = schemas.of_params(endpoint.params, leave_out=_NAME.findall(route.path))
        return body if route.method != "GET" and body["properties"] else None
    return None if endpoint.body is None else schemas[endpoint.body]


def _answers(route: Route, endpoint: Endpoint, schemas: _Schemas) -> Json:
    done = {route.media: {"schema": schemas[endpoint.answer]} if endpoint.answer is not None else {}}
    answers: Json = {"200": {"description": "Done.", "content": done}}
    if route.upgrade:
        answers = {"101": {"description": "The connection is a WebSocket now."}}
    if route.creates:
        answers["201"] = {"description": "Created.", "content": done}
    refused = {"application/json": {"schema": schemas[refusal_of(route)]}}
    for status in sorted(_statuses(route, endpoint)):
        content = done if status == 503 and route.unready else refused
        answers[str(status)] = {"description": REFUSALS[status], "content": content}
    if endpoint.params is not None:
        answers["default"] = {"description": "Refused for another reason, named by `code`.", "content": refused}
    return answers


def _id(route: Route) -> str:
    """Return the OpenAPI `operationId` of a route; under /v0, that of its first published description."""
    words = f"{route.method.lower()} {route.path.removeprefix('/v0/').removeprefix('/api/v1/')}"
    return re.sub(r"\W+", "_", words if route.surface is TOPICS else f"api {words}").strip("_")


def _statuses(route: Route, endpoint: Endpoint) -> set[int]:
    statuses = {500, 503, *route.refusals}
    if route.scopes:
        statuses |= {400, 401, 403, 429}
    if endpoint.body is not None or (endpoint.params is not None and route.method != "GET"):
        statuses |= {400, 408, 413, 415}
    if _NAME.search(route.path) and route.method != "DELETE":
        statuses.add(404)
    return statuses


def _parameters(route: Route, endpoint: Endpoint, schemas: _Schemas) -> Iterator[Json]:
    names = _NAME.findall(route.path)
    known = schemas.of_params(endpoint.params)["properties"] if endpoint.params is not None else {}
    for name in names:
        yield {"name": name, "in": "path", "required": True, "schema": known.get(name, {"type": "string"})}
    if endpoint.params is not None and route.method == "GET":
        schema = schemas.of_params(endpoint.params, leave_out=names)
        for name, member in schema["properties"].items():
            yield {"name": name, "in": "query", "required": name in schema["required"], "schema": member}
    elif endpoint.params is None:
        for field in msgspec.structs.fields(endpoint.query):
            member = msgspec.json.schema(field.type) | ({} if field.default is UNSET else {"default": field.default})
            yield {"name": field.encode_name, "in": "query", "required": False, "schema": member}
    if route.stream and not route.upgrade:
        yield {"name": "token", "in": "query", "required": False, "schema": {"type": "string"}}
