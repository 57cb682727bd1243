"""Runs the API in this process, without a connection, with the same checks and the same record of actions as requests
over HTTP.

Streams, and operations that wait for a client, need a connection and cannot be run here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from types import MappingProxyType, SimpleNamespace
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

import msgspec

from eventd.api.errors.codes import restore
from eventd.api.framework.action_callers import ActionCaller
from eventd.api.framework.action_terms import arguments_of, object_of
from eventd.api.framework.admission import admit, services_for
from eventd.api.framework.decoding import decode, read_query
from eventd.api.framework.endpoint import Endpoint, load
from eventd.api.framework.operations import Services
from eventd.api.framework.params import read_params
from eventd.api.framework.recorder import ActionDraft, ActionRecorder
from eventd.api.framework.repeats import KeptAnswer, describe_call, repeated_request
from eventd.api.framework.route import Route
from eventd.api.framework.withholding import run_for
from eventd.api.keys.api_key import ApiKey
from eventd.api.routes import OPERATIONS
from eventd.api.topic_routes import TOPIC_ROUTES
from eventd.api.topics.calls import V0
from eventd.errors import TooLarge

_ROOMS: Final = ("topics.topics:", "topics.records:", "topics.routers:", "topics.queues:")
"""The modules whose handlers of /v0 need no connection."""
_NO_REQUEST: Final[Any] = SimpleNamespace(headers=MappingProxyType({}))
_NAMES: Final = re.compile(r"{(\w+)}")


class DirectCaller(NamedTuple):
    """Who calls: the permissions, the name in the record of actions, and the id of the request.

    `once`: the key of a request that may be repeated (see `ActionRecorder.perform_once`); empty without one.
    `counted`: its requests count for the limits of its key, which they do not if they are made on behalf of several
    callers. `session`: the digest of its session of the console; empty without one.
    """

    key: ApiKey
    caller: ActionCaller
    request: str
    once: str = ""
    counted: bool = True
    session: str = ""


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
        given = replace(services_for(services, checked, by.key), session=by.session)
        operate = partial(endpoint.run, given, checked)
        call = partial(run_for, by.key, route, operate)
        if draft is None:
            return await call()
        draft.describe(route, names, checked)
        if draft.is_dry or not by.once:
            return await recorder.perform(draft, call)
        return _read(await recorder.perform_once(draft, by.once, checked.model_dump_json, call, is_secret=route.secret))

    if not route.recorded:
        return await run(None)
    draft = ActionDraft(
        operation, by.caller, by.request, object_of(route, names), outside=route.outside, frequent=route.frequent
    )
    async with recorder.recording(draft):
        return await run(draft)


async def find_answer(recorder: ActionRecorder, by: DirectCaller, operation: str, params: Mapping[str, Any]) -> Any:
    """Return the answer that an operation gave to the same caller's request with the same key; None if it was not run.

    If the answer was an error, raises it. Raises `Conflict` if the answer was not kept or does not exist yet.
    """
    route = OPERATIONS[operation]
    model = load(route).params
    if not route.recorded or model is None:
        return None
    return await _find(recorder, by, operation, read_params(model, params).model_dump_json)


async def find_topic_answer(
    v0: V0, recorder: ActionRecorder, by: DirectCaller, found: FoundRoute, query: str, content: bytes
) -> Any:
    """Return the answer of a route of /v0, like `find_answer` for an operation."""
    route, names = found
    if not (route.recorded or route.keyed):
        return None
    given, body = _read_call(v0, load(route), found, query, content)
    return await _find(recorder, by, _name_of(route), partial(describe_call, names, given, body))


async def _find(recorder: ActionRecorder, by: DirectCaller, operation: str, describe: Callable[[], str]) -> Any:
    request = await asyncio.to_thread(repeated_request, by.caller, by.once, operation, describe)
    kept = await recorder.repeats.find(request)
    return None if kept is None else _read(kept)


def _name_of(route: Route) -> str:
    return f"{route.method} {route.path}"


def _read(kept: KeptAnswer) -> Any:
    """Decode the answer that was kept for repetitions of a request. Raises the error that it reports."""
    if kept.status >= 400:
        raise restore(kept.status, kept.body)
    return msgspec.json.decode(kept.body)


async def run_topic_route(
    v0: V0, recorder: ActionRecorder, by: DirectCaller, found: FoundRoute, query: str, content: bytes
) -> Any:
    """Run a route of /v0 and return its answer. `content`: the body as JSON. Raises `EventdError`."""
    (route, names), clock = found, v0.clock
    endpoint, begun = load(route), clock.monotonic()

    async def run(draft: ActionDraft | None) -> Any:
        name = admit(route, names, by.key)
        given, body = _read_call(v0, endpoint, found, query, content)
        call = endpoint.context(v0, _NO_REQUEST, by.key, name, given, body, clock, begun)
        if draft is None:
            return await endpoint.run(call)
        draft.arguments = arguments_of(route, given, body)
        perform = partial(endpoint.run, call)
        if not by.once:
            return await recorder.perform(draft, perform)
        describe = partial(describe_call, names, given, body)
        return _read(await recorder.perform_once(draft, by.once, describe, perform, is_secret=route.secret))

    if not (route.recorded or (route.keyed and by.once)):
        with _under_way(v0, by, len(content)):
            return await run(None)
    draft = ActionDraft(_name_of(route), by.caller, by.request, object_of(route, names), frequent=route.frequent)
    async with recorder.recording(draft):
        with _under_way(v0, by, len(content)):
            return await run(draft)


@contextmanager
def _under_way(v0: V0, by: DirectCaller, size: int) -> Iterator[None]:
    """Count a request with a body of `size` bytes while the block runs, as one over HTTP. Raises `Throttled`.

    A process without a listener has no limits: it serves one caller.
    """
    if v0.listener is None or not by.counted:
        yield
        return
    limits = v0.listener.concurrency
    with limits.requests.take(by.key), limits.bodies.hold(by.key.digest) as held:
        held.grow_to(size)
        yield


def _read_call(v0: V0, endpoint: Endpoint, found: FoundRoute, query: str, content: bytes) -> tuple[Any, Any]:
    """Return the query and the body of a request to /v0; the first of equal names in the query counts."""
    given = read_query(dict(reversed(parse_qsl(query))), endpoint.query)
    body = None if endpoint.body is None else _decode(v0, found.route, content or b"{}", endpoint.body)
    return given, body


def _decode(v0: V0, route: Route, content: bytes, model: Any) -> Any:
    most = min(v0.limits.max_body_bytes, route.body.bytes)
    if len(content) > most:
        raise TooLarge(f"the request has {len(content)} bytes, more than {most}", hint="send smaller requests")
    return decode(content, model)
