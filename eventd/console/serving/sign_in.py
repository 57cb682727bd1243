"""Signing in with an API key, and signing out."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from aiohttp import web

from eventd.api.framework.action_callers import session_caller, unknown_caller
from eventd.api.framework.recorder import ActionDraft, ActionRecorder
from eventd.api.framework.sign_in_limiter import SignInLimiter
from eventd.api.keys.api_key import ApiKey
from eventd.api.keys.valid_keys import Keys
from eventd.console.pages.visit import ShownPage
from eventd.console.rendering.urls import Urls
from eventd.console.serving.answers import html, see
from eventd.console.serving.forms import SMALL, read_form
from eventd.console.serving.gate import Gate, Visitor
from eventd.console.serving.layout import Layout
from eventd.console.serving.own_forms import require_own_form
from eventd.console.serving.preferences import Preferences
from eventd.console.serving.sessions import LONGEST, ConsoleSession, ConsoleSessions
from eventd.errors import Unauthorized
from eventd.log.topics.errors import Throttled
from eventd.runtime.clock import SECOND

SIGN_IN: Final = "sessions.begin"
SIGN_OUT: Final = "sessions.end"
"""What the record of actions calls signing in and signing out.

`sessions.end` is also the operation by which an operator ends the session of another browser.
"""
_ENDED: Final = (
    "Your session has ended: it expired, an operator ended it, or its key is no longer valid. Sign in again."
)


class SignIn:
    """The page to sign in."""

    def __init__(
        self,
        gate: Gate,
        sessions: ConsoleSessions,
        keys: Keys,
        limiter: SignInLimiter,
        recorder: ActionRecorder,
        layout: Layout,
        urls: Urls,
    ) -> None:
        self._gate = gate
        self._sessions = sessions
        self._keys = keys
        self._limiter = limiter
        self._recorder = recorder
        self._layout = layout
        self._urls = urls

    async def serve(self, request: web.Request, preferences: Preferences, request_id: str) -> web.Response:
        """Show the form, or begin a session with the key that it has.

        Sign-ins are actions, also refused ones.
        """
        target = self._urls.own(request.query.get("next", "")) or self._urls.to()
        if request.method != "POST":
            if await self._gate.identify(request) is not None:
                return see(target)
            self._gate.require_private(request)
            had_session = await self._sessions.cookie() in request.cookies
            return self._form(request, target, preferences, problem=_ENDED if had_session else "")
        require_own_form(request)
        address = self._gate.address(request)
        draft = ActionDraft(SIGN_IN, unknown_caller(address), request_id)
        try:
            async with self._recorder.recording(draft):
                self._gate.require_private(request)
                self._require_patience(address)
                form = await read_form(request, SMALL)
                target = self._urls.own(str(form.get("next", ""))) or self._urls.to()
                self._require_patience(address)  # others may have failed meanwhile
                key = self._find_key(str(form.get("key", "")).strip(), address)
        except Unauthorized as error:
            return self._form(request, target, preferences, problem=str(error), status=401)
        old = await self._sessions.find(request)
        token, row = self._sessions.prepare(key, address)
        begun = replace(draft, caller=session_caller(key, address), object=f"session {row.id}")
        await self._recorder.perform(begun, partial(self._sessions.begin, row))
        if old is not None:  # the browser forgets its cookie now, and cannot end it later
            await self._end(old, address, request_id)
        response = see(target)
        await self._set_cookie(response, token, LONGEST // SECOND)
        return response

    def _find_key(self, text: str, address: str) -> ApiKey:
        """Return the key with this text. Raises `Unauthorized`, and counts the failure for the address."""
        try:
            key = self._keys.find(text)
        except Unauthorized:
            self._limiter.failed(address)
            raise
        self._limiter.succeeded(address)
        return key

    async def _end(self, session: ConsoleSession, address: str, request_id: str) -> None:
        caller = session_caller(session.key, address)
        draft = ActionDraft(SIGN_OUT, caller, request_id, f"session {session.row.id}")
        await self._recorder.perform(draft, partial(self._sessions.end, session))

    def _require_patience(self, address: str) -> None:
        if wait := self._limiter.allow(address):
            raise Throttled(f"too many failed sign-ins: wait {wait:.0f} s")

    async def sign_out(self, visitor: Visitor, request_id: str) -> web.Response:
        """End the session of a visitor."""
        response = see(self._urls.to("sign-in"))
        if visitor.session is not None:
            await self._end(visitor.session, visitor.caller.address, request_id)
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
