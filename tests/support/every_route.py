"""Requests to every route of the API, with names that a test chooses."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from aiohttp import ClientTimeout

from eventd.api.framework.endpoint import load
from eventd.api.framework.route import Route
from eventd.api.routes import EXCHANGE, OPERATION_NAMES, ROUTES
from tests.support.v0 import Server

SERVED: Final = [route for route in ROUTES if route is not EXCHANGE]
"""All routes but the exchange of tokens, which takes no key."""
_LONG: Final = ClientTimeout(total=60)
_PLACE: Final = re.compile(r"{(\w+)}")


class Answered(NamedTuple):
    """The status, the error code (empty without one) and the text of an answer; none of a stream that goes on."""

    status: int
    code: str
    text: str


def name_of(route: Route) -> str:
    """Return what a test calls a route."""
    return OPERATION_NAMES.get(route) or f"{route.method} {route.path}"


def url_of(route: Route, names: Mapping[str, str]) -> str:
    """Return the path of a route with these names in its places, `nobody` in the others."""
    return _PLACE.sub(lambda place: quote(names.get(place[1], "nobody"), safe=""), route.path)


async def send(
    server: Server, route: Route, key: str, names: Mapping[str, str], fields: Mapping[str, Any] | None = None
) -> Answered:
    """Send one request, with the fields in its query or body as the method wants it."""
    url = f"{server.url}{url_of(route, names)}"
    has_body = bool(route.body.bytes)
    if fields and not has_body:
        url += f"?{urlencode(fields, doseq=True)}"
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    data = None
    if has_body:
        headers["Content-Type"] = "application/json"
        data = json.dumps(fields or {}).encode()
    async with server.session.request(route.method, url, data=data, headers=headers, timeout=_LONG) as answer:
        if answer.content_type == "text/event-stream":
            return Answered(answer.status, "", "")
        text = await answer.text()
        is_error = answer.status >= 400 and answer.content_type == "application/json" and text
        return Answered(answer.status, json.loads(text).get("error", {}).get("code", "") if is_error else "", text)


def has_field(route: Route, name: str) -> bool:
    """Return whether the route is an operation with this field."""
    params = load(route).params
    return params is not None and name in params.model_fields


def narrows(route: Route) -> bool:
    """Return whether the route is an operation that answers a key with prefixes for the groups that it sees."""
    params = load(route).params
    return params is not None and params.narrows
