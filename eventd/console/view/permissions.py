"""What a key may do in the console: the operations, routes and names that the API allows it."""

from __future__ import annotations

from typing import Final

from eventd.api.direct import find_topic_route
from eventd.api.keys.api_key import ApiKey
from eventd.api.routes import OPERATIONS
from eventd.console.view.node_view import V0Request, target_of

_ANY: Final = "-"
"""The text that stands for any name in a path; no topic or router can have this name."""


def may_run(key: ApiKey, operation: str, group: str) -> bool:
    """Return whether a key may run an operation of /api/v1, for a group unless that is empty."""
    route = OPERATIONS[operation]
    enough = any if route.any_scope else all
    return enough(map(key.may, route.scopes)) and (not group or key.sees(group))


def scopes_for(needs: str | V0Request) -> str:
    """Return in words the scopes that an operation of /api/v1, or a route of /v0, needs: "the scope read"."""
    if isinstance(needs, str):
        route = OPERATIONS[needs]
    else:
        found = find_topic_route(needs.method, target_of(needs.fill(dict.fromkeys(needs.names, _ANY))))
        assert found is not None
        route = found.route
    scopes = (" or " if route.any_scope else " and ").join(sorted(route.scopes))
    return f"the scope{'s' if ' and ' in scopes else ''} {scopes}"


def may_use(key: ApiKey, method: str, path: tuple[str, ...]) -> bool:
    """Return whether a key may use a route of /v0, by the parts of its path; an empty one is any name."""
    found = find_topic_route(method, target_of([part or _ANY for part in path]))
    return (
        found is not None
        and all(map(key.may, found.route.scopes))
        and all(name == _ANY or key.sees(name) for name in found.names.values())
    )
