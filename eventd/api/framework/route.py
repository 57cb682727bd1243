"""The type of a route. Loads no code that handles requests: clients only need the address of an operation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, NamedTuple

from eventd.api.errors.codes import API_FORM, TOPICS_FORM, ErrorForm
from eventd.api.keys.scopes import Scope

RECORDED: Final[frozenset[Scope]] = frozenset({"delete", "admin"})
"""The scopes whose use is recorded. Emitting and writing are not: they are frequent, and the log itself shows them."""
Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
Handler = Callable[..., Awaitable[Any]]


class BodyLimits(NamedTuple):
    """The largest body of a request, in bytes (0: no body) and, for operations, in JSON values (which must be set).

    The body of a call is limited by its model instead.
    """

    bytes: int
    values: int = 0


class Surface(NamedTuple):
    """One of the two parts (surfaces) of the API, and how it differs from the other.

    `counted`: requests to routes with scopes end as soon as their key does, and count, except streams, towards
    EVENTD_MAX_INFLIGHT_PER_KEY. `strict_type`: the media type of a body must be JSON in UTF-8; otherwise it only has to
    begin with `application/json`.
    """

    form: ErrorForm
    counted: bool
    strict_type: bool


API: Final = Surface(API_FORM, counted=False, strict_type=True)
TOPICS: Final = Surface(TOPICS_FORM, counted=True, strict_type=False)


def surface_of(path: str) -> Surface:
    """Return the surface that a path belongs to, even if nothing is served there."""
    return TOPICS if path == "/v0" or path.startswith("/v0/") else API


class Route(NamedTuple):
    """One method of one path, and the function that handles it.

    `path` may contain names in braces. The caller needs all `scopes`; without any no key is required, except that a
    `probe` needs one where keys guard health and readiness, and the handler of a WebSocket requires the key itself.
    `handler` is a function, or its place below `eventd.api`: `admin.events:emit` is loaded when it is first needed. Its
    signature declares parameters and response (see `endpoint`). `body` limits the request body; that of a call may be
    missing only with `may_be_empty`.

    `creates`: answers 201 if `created` of the result is true. `media`: the type of a response that is not JSON.
    `stream`: lasts as long as the client stays, so it counts as a stream, and the key may be sent as `token` in the
    query; with `upgrade` it is a WebSocket, and the key is sent in a header. `refusals`: error statuses, for
    the OpenAPI description, besides the common ones. `unready`: status 503 carries the result itself.

    `withheld`: the members, at any depth of the answer of an operation, that are empty for a key without `read`: they
    may hold addresses, or texts that quote events.

    `holds`: an operation that waits for some seconds, as long as `Services.client_waits`. Its requests count towards
    EVENTD_MAX_INFLIGHT_PER_KEY, and end as soon as their key does.

    `deep`: the last name in the path stands for the rest of it, slashes included.

    `any_scope`: the caller needs only one of the `scopes`; which one, the handler checks.

    `outside`: the action changes something outside the database, or in several transactions, so its row in the record
    of actions is written before it begins. `secret`: the answer holds a secret, so it is not kept for repeated
    requests. `plans`: only prepares another request, so it is not recorded. `frequent`: programs do it all the time, so
    equal actions of one minute share a row. `keyed`: programs do it all the time, so it is an action only with
    an Idempotency-Key, which requests of the console have.
    """

    method: Method
    path: str
    scopes: tuple[Scope, ...]
    summary: str
    handler: str | Handler
    body: BodyLimits = BodyLimits(0)
    may_be_empty: bool = False
    creates: bool = False
    media: str = "application/json"
    stream: bool = False
    upgrade: bool = False
    unready: bool = False
    probe: bool = False
    refusals: tuple[int, ...] = ()
    withheld: tuple[str, ...] = ()
    outside: bool = False
    secret: bool = False
    plans: bool = False
    frequent: bool = False
    keyed: bool = False
    any_scope: bool = False
    holds: bool = False
    deep: bool = False

    @property
    def surface(self) -> Surface:
        """Return the surface that the route belongs to."""
        return surface_of(self.path)

    @property
    def recorded(self) -> bool:
        """Return whether requests are actions: each is a row in the record of actions."""
        return self.method not in ("GET", "HEAD") and not self.plans and not RECORDED.isdisjoint(self.scopes)
