"""The interface that a site needs of its host: a node, or a command on the machine of an operator."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from aiohttp import web

from eventd.console.live.stream_limiter import StreamHolder
from eventd.console.serving.layout import SiteFrame
from eventd.console.serving.preferences import Preferences
from eventd.console.view.node_view import NodeView
from eventd.runtime.chance import Chance
from eventd.runtime.clock import Clock
from eventd.runtime.supervisor import SpawnTask


class SiteVisitor(Protocol):
    """Interface of a visitor who may see pages."""

    @property
    def name(self) -> str:
        """Return what pages call the visitor."""
        ...

    @property
    def session_id(self) -> str:
        """Return the id of the visitor's session, as the list of sessions shows it; empty if it is not in a list."""
        ...

    @property
    def mark(self) -> Hashable:
        """Return a value that is equal for visitors who may see the same, so that a live page is rendered once for all
        of them."""
        ...


Someone = TypeVar("Someone", bound=SiteVisitor)


class SiteHost(Protocol[Someone]):
    """Identifies visitors of a site, and gives each a view. `histories`: see `Visit`."""

    @property
    def frame(self) -> SiteFrame: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def chance(self) -> Chance: ...

    @property
    def spawn(self) -> SpawnTask: ...

    @property
    def histories(self) -> str: ...

    @property
    def most_streams(self) -> int:
        """Return the maximum number of pages that are kept up to date at a time."""
        ...

    async def identify(self, request: web.Request) -> Someone | None:
        """Return the visitor; None for one that has to sign in. Raises `Forbidden` for pages of other origins."""
        ...

    def require_own_form(self, request: web.Request) -> None:
        """Raises `Forbidden` for a POST that no page of this site sent."""
        ...

    def is_secure(self, request: web.Request) -> bool:
        """Return whether the request arrived over TLS."""
        ...

    async def sign_in(self, request: web.Request, preferences: Preferences, request_id: str) -> web.Response:
        """Answer a request to the page to sign in."""
        ...

    async def sign_out(self, visitor: Someone, request_id: str) -> web.Response:
        """End the session of a visitor."""
        ...

    def view(self, visitor: Someone, request_id: str, *, shared: bool = False) -> NodeView:
        """Return the node as this visitor may see it; its actions have the id of a request.

        `shared`: the result is shown to other visitors, too, so the reads do not count for the limits of any key.
        """
        ...

    def using(self, request: web.Request, visitor: Someone) -> AbstractContextManager[None]:
        """While the block runs, close the connection of the request as soon as the visitor loses access."""
        ...

    def holders(self, visitor: Someone) -> tuple[StreamHolder, ...]:
        """Return the holders (key, session) whose number of streams is limited, in addition to the total limit."""
        ...

    async def has_ended(self, visitor: Someone) -> bool:
        """Return whether the session of the visitor has ended."""
        ...
