"""The console of a node: visitors have an API key, and see the node of this process."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final

from aiohttp import web

from eventd.api.direct import DirectCaller
from eventd.api.framework.sign_in_limiter import SignInLimiter
from eventd.console.live.stream_limiter import StreamHolder
from eventd.console.rendering.urls import Urls
from eventd.console.serving.dependencies import ConsoleDependencies
from eventd.console.serving.gate import Gate, Visitor
from eventd.console.serving.layout import Layout, SiteFrame
from eventd.console.serving.own_forms import require_own_form
from eventd.console.serving.preferences import Preferences
from eventd.console.serving.sessions import ConsoleSessions
from eventd.console.serving.sign_in import SignIn
from eventd.console.view.in_process import InProcessView
from eventd.runtime.supervisor import SpawnTask
from eventd.settings.routemaster import networks_of
from eventd.settings.values import split_entries

KEY_SHARE: Final = 0.5
"""The share of all streams that the sessions of one key may use together."""
SESSION_SHARE: Final = 0.25
"""The share of all streams that one session may use."""


class NodeHost:
    """Serves a site from within a node."""

    def __init__(self, dependencies: ConsoleDependencies) -> None:
        self._dependencies = dependencies
        services, settings, callers = dependencies.services, dependencies.settings, dependencies.callers
        self.clock, self.chance = services.clock, services.log.chance
        self.spawn: SpawnTask = dependencies.v0.supervisor.spawn
        self.histories, self.most_streams = settings.console_metrics_url, settings.max_console_streams
        self.frame = SiteFrame(Urls(settings.console_prefix), dependencies.version)
        self._sessions = ConsoleSessions(services.database, callers.keys, self.clock, self.chance)
        proxies = networks_of("\n".join(split_entries([settings.console_trusted_proxies])))
        self._gate = Gate(callers, self._sessions, proxies)
        limiter, layout = SignInLimiter(self.clock), Layout(self.frame)
        self._sign_in = SignIn(
            self._gate, self._sessions, callers.keys, limiter, dependencies.recorder, layout, self.frame.urls
        )

    async def identify(self, request: web.Request) -> Visitor | None:
        return await self._gate.identify(request)

    def require_own_form(self, request: web.Request) -> None:
        require_own_form(request)

    def is_secure(self, request: web.Request) -> bool:
        return self._gate.is_secure(request)

    async def sign_in(self, request: web.Request, preferences: Preferences, request_id: str) -> web.Response:
        return await self._sign_in.serve(request, preferences, request_id)

    async def sign_out(self, visitor: Visitor, request_id: str) -> web.Response:
        return await self._sign_in.sign_out(visitor, request_id)

    def view(self, visitor: Visitor, request_id: str, *, shared: bool = False) -> InProcessView:
        of = self._dependencies
        session = visitor.session.row.digest if visitor.session else ""
        by = DirectCaller(visitor.key, visitor.caller, request_id, counted=not shared, session=session)
        return InProcessView(of.services, of.v0, of.recorder, by, of.address())

    def using(self, request: web.Request, visitor: Visitor) -> AbstractContextManager[None]:
        return self._dependencies.callers.using(request, visitor.key)

    def holders(self, visitor: Visitor) -> tuple[StreamHolder, ...]:
        if visitor.session is None:
            return ()
        row = visitor.session.row
        return StreamHolder("key", row.key_digest, KEY_SHARE), StreamHolder("session", row.digest, SESSION_SHARE)

    async def has_ended(self, visitor: Visitor) -> bool:
        return visitor.session is not None and await self._sessions.renewed(visitor.session) is None
