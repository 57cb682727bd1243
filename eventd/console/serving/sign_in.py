"""Signing in with an API key, and signing out."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from eventd.api.framework.sign_in_limiter import SignInLimiter
from eventd.api.keys.valid_keys import Keys
from eventd.console.pages.visit import ShownPage
from eventd.console.rendering.urls import Urls
from eventd.console.serving.answers import html, see
from eventd.console.serving.forms import SMALL, read_form
from eventd.console.serving.gate import Gate, Visitor
from eventd.console.serving.layout import Layout
from eventd.console.serving.own_forms import require_own_form
from eventd.console.serving.preferences import Preferences
from eventd.console.serving.sessions import LONGEST, ConsoleSessions
from eventd.errors import Unauthorized
from eventd.log.topics.errors import Throttled
from eventd.runtime.clock import SECOND

_ENDED: Final = (
    "Your session has ended: it expired, an operator ended it, or its key is no longer valid. Sign in again."
)


class SignIn:
    """The page to sign in."""

    def __init__(
        self, gate: Gate, sessions: ConsoleSessions, keys: Keys, limiter: SignInLimiter, layout: Layout, urls: Urls
    ) -> None:
        self._gate = gate
        self._sessions = sessions
        self._keys = keys
        self._limiter = limiter
        self._layout = layout
        self._urls = urls

    async def serve(self, request: web.Request, preferences: Preferences) -> web.Response:
        """Show the form, or begin a session with the key that it has."""
        target = self._urls.own(request.query.get("next", "")) or self._urls.to()
        if request.method != "POST":
            if await self._gate.identify(request) is not None:
                return see(target)
            self._gate.require_private(request)
            had_session = await self._sessions.cookie() in request.cookies
            return self._form(request, target, preferences, problem=_ENDED if had_session else "")
        require_own_form(request)
        self._gate.require_private(request)
        address = self._gate.address(request)
        self._require_patience(address)
        form = await read_form(request, SMALL)
        target = self._urls.own(str(form.get("next", ""))) or self._urls.to()
        self._require_patience(address)  # others may have failed meanwhile
        try:
            key = self._keys.find(str(form.get("key", "")).strip())
        except Unauthorized as error:
            self._limiter.failed(address)
            return self._form(request, target, preferences, problem=str(error), status=401)
        self._limiter.succeeded(address)
        old = await self._sessions.find(request)
        token = await self._sessions.begin(key, address)
        if old is not None:  # the browser forgets its cookie now, and cannot end it later
            await self._sessions.end(old)
        response = see(target)
        await self._set_cookie(response, token, LONGEST // SECOND)
        return response

    def _require_patience(self, address: str) -> None:
        if wait := self._limiter.allow(address):
            raise Throttled(f"too many failed sign-ins: wait {wait:.0f} s")

    async def sign_out(self, visitor: Visitor) -> web.Response:
        """End the session of a visitor."""
        response = see(self._urls.to("sign-in"))
        if visitor.session is not None:
            await self._sessions.end(visitor.session)
            await self._set_cookie(response, "", 0)
        return response

    async def _set_cookie(self, response: web.Response, value: str, seconds: int) -> None:
        response.set_cookie(
            await self._sessions.cookie(),
            value,
            max_age=seconds,
            path="/",
            secure=True,
            httponly=True,
            samesite="Lax",
        )

    def _form(
        self, request: web.Request, target: str, preferences: Preferences, *, problem: str = "", status: int = 200
    ) -> web.Response:
        data = {"next": target, "problem": problem, "host": request.host}
        page = ShownPage("Sign in", "sign_in.html", data, live=False, status=status)
        return html(self._layout.alone(page, None, preferences, 0), status)
