"""One request, as passed to handlers other than operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from eventd.api.framework.models import Performance
from eventd.api.keys.api_key import ApiKey
from eventd.runtime.clock import Clock

if TYPE_CHECKING:  # commands handle calls without the server
    from aiohttp import web

C = TypeVar("C")
Q = TypeVar("Q")
B = TypeVar("B")


@dataclass(slots=True)
class Call(Generic[C, Q, B]):
    """A request, with its query, its body and the `context` of its handler.

    `name` is the decoded topic or router of its path, empty without one; `begun`: the monotonic time of its arrival.
    """

    context: C
    request: web.Request
    key: ApiKey
    name: str
    query: Q
    body: B
    clock: Clock
    begun: float

    def performance(self) -> Performance:
        """Return a `Performance` with the milliseconds since the request arrived; call it last."""
        return Performance(server_total_ms=round((self.clock.monotonic() - self.begun) * 1000, 3))
