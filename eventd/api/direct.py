"""Runs the API in this process, without a connection: with the checks and the record that requests over HTTP pass.

Streams and what waits for a client need a connection: they are not run here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, partial
from types import MappingProxyType, SimpleNamespace
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from eventd.api.framework.action_callers import ActionCaller
from eventd.api.framework.action_terms import arguments_of, object_of
from eventd.api.framework.admission import admit, services_for
from eventd.api.framework.auth import ApiKey
from eventd.api.framework.decoding import decode, read_query
from eventd.api.framework.endpoint import load
from eventd.api.framework.operations import Services
from eventd.api.framework.params import read_params
from eventd.api.framework.recorder import ActionDraft, ActionRecorder
from eventd.api.framework.route import Route
from eventd.api.framework.withholding import run_for
from eventd.api.routes import OPERATIONS
from eventd.api.topic_routes import TOPIC_ROUTES
from eventd.api.topics.calls import V0
from eventd.errors import TooLarge

_ROOMS: Final = ("topics.topics:", "topics.records:", "topics.routers:", "topics.queues:")
"""Where the handlers of /v0 are that need no connection."""
_NO_REQUEST: Final[Any] = SimpleNamespace(headers=MappingProxyType({}))
_NAMES: Final = re.compile(r"{(\w+)}")


class DirectCaller(NamedTuple):
    """Who calls: the permissions, the name in the record of actions, and the id of the request."""

    key: ApiKey
    caller: ActionCaller
    request: str


class FoundRoute(NamedTuple):
    """A route of /v0 and the values in its path."""

    route: Route
    names: Mapping[str, str]


def find_topic_route(method: str, path: str) -> FoundRoute | None:
    """Return the route of /v0 for a quoted path; None if none can be run without a connection."""
    for route, pattern in _patterns():
        if route.method == method and (found := pattern.fullmatch(path)):
            return FoundRoute(route, {name: unquote(value) for name, value in found.groupdict().items()})
    return None


@cache
def _patterns() -> list[tuple[Route, re.Pattern[str]]]:
    return [
        (route, re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", route.path)))
        for route in TOPIC_ROUTES
        if str(route.handler).startswith(_ROOMS) and not route.stream
    ]


async def run_operation(
    services: Services, recorder: ActionRecorder, by: DirectCaller, operation: str, params: Mapping[str, Any]
) -> Any:
    """Run an operation of /api/v1 and return its answer. Raises `EventdError`, as the API reports it."""
    route = OPERATIONS[operation]
    names = {name: str(params.get(name, "")) for name in _NAMES.findall(route.path)}

    async def run(draft: ActionDraft | None) -> Any:
        admit(route, names, by.key)
        endpoint = load(route)
        assert endpoint.params is not None
        checked = read_params(endpoint.params, params)
        operate = partial(endpoint.run, services_for(services, checked, by.key), checked)
        call = partial(run_for, by.key, route, operate)
        if draft is None:
            return await call()
        draft.object, draft.arguments = object_of(route, names, checked), arguments_of(route, checked)
        return await recorder.perform(draft, call)

    if not route.recorded:
        return await run(None)
    draft = ActionDraft(
        operation, by.caller, by.request, object_of(route, names), outside=route.outside, frequent=route.frequent
    )
    async with recorder.recording(draft):
        return await run(draft)


async def run_topic_route(
    v0: V0, recorder: ActionRecorder, by: DirectCaller, found: FoundRoute, query: str, content: bytes
) -> Any:
    """Run a route of /v0 and return its answer. `content`: the body as JSON. Raises `EventdError`."""
    (route, names), clock = found, v0.clock
    endpoint, begun = load(route), clock.monotonic()

    async def run(draft: ActionDraft | None) -> Any:
        name = admit(route, names, by.key)
        given = read_query(dict(reversed(parse_qsl(query))), endpoint.query)  # the first of equal names counts
        body = None if endpoint.body is None else _decode(v0, route, content or b"{}", endpoint.body)
        call = endpoint.context(v0, _NO_REQUEST, by.key, name, given, body, clock, begun)
        if draft is None:
            return await endpoint.run(call)
        draft.arguments = arguments_of(route, given, body)
        return await recorder.perform(draft, partial(endpoint.run, call))

    if not route.recorded:
        return await run(None)
    draft = ActionDraft(
        f"{route.method} {route.path}", by.caller, by.request, object_of(route, names), frequent=route.frequent
    )
    async with recorder.recording(draft):
        return await run(draft)


def _decode(v0: V0, route: Route, content: bytes, model: Any) -> Any:
    most = min(v0.limits.max_body_bytes, route.body.bytes)
    if len(content) > most:
        raise TooLarge(f"the request has {len(content)} bytes, more than {most}", hint="send smaller requests")
    return decode(content, model)
