"""Serves the sites of many nodes to the operator: one for each context, and one for all together."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from aiohttp import web

from eventd.console.live.stream_limiter import StreamHolder
from eventd.console.many.one_time_link import OneTimeLink, Operator, require_this_machine
from eventd.console.many.remote_node import RemoteNode
from eventd.console.rendering.urls import Urls
from eventd.console.serving.answers import see
from eventd.console.serving.layout import SiteFrame
from eventd.console.serving.own_forms import require_own_form
from eventd.console.serving.preferences import Preferences
from eventd.console.view.node_view import NodeView
from eventd.errors import Unauthorized
from eventd.runtime.chance import Chance
from eventd.runtime.clock import Clock
from eventd.runtime.supervisor import SpawnTask

MOST_STREAMS = 100


@dataclass(frozen=True, slots=True)
class LocalHost:
    """Serves one site. `node` is None for the site of all nodes; `make_view` returns what a request sees."""

    link: OneTimeLink
    frame: SiteFrame
    clock: Clock
    chance: Chance
    spawn: SpawnTask
    make_view: Callable[[str], NodeView]
    node: RemoteNode | None = None
    histories: str = ""
    most_streams: int = MOST_STREAMS

    async def identify(self, request: web.Request) -> Operator | None:
        require_this_machine(request)
        operator = self.link.identify(request)
        if operator is not None and self.node is not None:
            await self.node.learn()
        return operator

    def require_own_form(self, request: web.Request) -> None:
        require_own_form(request)

    def is_secure(self, request: web.Request) -> bool:
        return True  # browsers take such cookies from this machine

    async def sign_in(self, request: web.Request, preferences: Preferences, request_id: str) -> web.Response:
        """Exchange the token of the link for a cookie, unless the browser has it: it may have fetched the link ahead.

        Raises `Unauthorized` for a request without a token.
        """
        require_this_machine(request)
        token = request.query.get("token", "")
        if not token or request.method != "GET":
            raise Unauthorized(
                "this browser has not opened the link", hint="open the link that routerctl console has printed"
            )
        response = see(Urls().to())
        if self.link.identify(request) is None:
            self.link.exchange(token, response)
        return response

    async def sign_out(self, visitor: Operator, request_id: str) -> web.Response:
        return see(self.frame.urls.to())

    def view(self, visitor: Operator, request_id: str, *, shared: bool = False) -> NodeView:
        return self.make_view(request_id)

    def using(self, request: web.Request, visitor: Operator) -> AbstractContextManager[None]:
        return nullcontext()

    def holders(self, visitor: Operator) -> tuple[StreamHolder, ...]:
        return ()

    async def has_ended(self, visitor: Operator) -> bool:
        return False
