"""Who may use a path, asked before anything of the request is read."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from aiohttp import web

from eventd.api.framework.auth import ANYONE, ApiKey
from eventd.api.topics.routes import V0, Route, require_names

NAMED = ("topic", "router")
"""The names in paths that a key's prefixes are about."""


def identify(v0: V0, route: Route, request: web.Request) -> ApiKey:
    """The caller. Raises `Unauthorized`. The key of a stream may stand in the query, as browsers can do no other."""
    if not route.scopes:
        if route.probe and v0.callers.keys.guards_probes:
            v0.callers.identify(request)
        return ANYONE
    return v0.callers.identify(request, token=request.query.get("token", "") if route.stream else "")


def place_of(v0: V0, route: Route, key: ApiKey) -> AbstractContextManager[None]:
    """The place of a request among those under way; a stream takes its own once it begins. Raises `Throttled`."""
    return nullcontext() if route.stream or not route.scopes else v0.occupancy.requests.take(key)


def in_force(v0: V0, route: Route, request: web.Request, key: ApiKey) -> AbstractContextManager[None]:
    """A request that waits, or a stream, ends as soon as its key does."""
    return v0.callers.using(request, key) if route.scopes else nullcontext()


def admit(route: Route, request: web.Request, key: ApiKey) -> str:
    """The decoded name in the path, if there is one. Raises `Forbidden`: first for a scope, then for the name."""
    for scope in route.scopes:
        key.require_scope(scope)
    name = next((request.match_info[each] for each in NAMED if each in request.match_info), "")
    if name:
        require_names(key, (name,))
    return name
