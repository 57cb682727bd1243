"""Decides whether a caller may use a route, before the request's body is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eventd.api.framework.limits import ConcurrencyLimits
from eventd.api.framework.route import Route
from eventd.api.keys.api_key import ANYONE, ApiKey

if TYPE_CHECKING:  # commands admit calls without the server
    from aiohttp import web

    from eventd.api.framework.callers import Callers
    from eventd.api.framework.operations import Params, Services

NAMED = ("topic", "router")
"""Parameters of paths, besides `group`, whose values the key must be allowed to access."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Identifies callers and limits their requests. `max_body_bytes`: the largest request body, from the settings."""

    callers: Callers
    limits: ConcurrencyLimits
    max_body_bytes: int

    def identify(self, route: Route, request: web.Request) -> ApiKey:
        """Return the caller's key; `ANYONE` for a route without scopes, or if callers need no key.

        A probe's caller must have a valid key where keys guard probes. A route of server-sent events also takes the
        key as `token` in the query, as browsers cannot send it in a header. Raises `Unauthorized` and `Forbidden`.
        """
        if not route.scopes:
            if route.probe and self.callers.keys.guards_probes:
                self.callers.identify(request)
            return ANYONE
        return self.callers.identify(
            request, token=request.query.get("token", "") if route.stream and not route.upgrade else ""
        )

    @contextmanager
    def under_way(self, route: Route, request: web.Request, key: ApiKey) -> Iterator[None]:
        """While the block runs, count the request, and close its connection when its key is revoked or expires.

        Does so only for routes with scopes under /v0, and for those that hold requests; streams are not counted here.
        Raises `Throttled`.
        """
        if not ((route.surface.counted or route.holds) and route.scopes):
            yield
        elif route.stream:
            with self.callers.using(request, key):
                yield
        else:
            with self.limits.requests.take(key), self.callers.using(request, key):
                yield


def admit(route: Route, path: Mapping[str, str], key: ApiKey) -> str:
    """Return the topic or router that the path names, empty if none.

    Raises `Forbidden` if the key lacks a scope of the route, or may not access the path's group, topic or router.
    """
    if not route.any_scope or key.scopes.isdisjoint(route.scopes):
        for scope in route.scopes:
            key.require_scope(scope)
    if "group" in path:
        key.require_group(path["group"])
    name = next((path[each] for each in NAMED if each in path), "")
    if name:
        key.require_names(name)
    return name


def services_for(services: Services, params: Params, key: ApiKey) -> Services:
    """Return the services for an operation with these parameters that a key asks for.

    Raises `Forbidden` unless the key may access the group, or, if there is none, all groups; an operation that narrows
    its answer gets a service that tells what the key may access, and one that checks this itself gets the key.
    """
    if params.by_caller:
        return replace(services, key=key)
    group = getattr(params, "group", None) or None
    if params.narrows and group is None:
        return replace(services, sees=key.sees)
    key.require_group(group)
    return services
