"""Executes actions: asks first if an action ends or drops something, and redirects to the page that shows the
result."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qsl

from aiohttp import web

from eventd.api.errors.codes import API_FORM
from eventd.console.pages.actions import SURE_FROM, Question
from eventd.console.pages.table import ACTIONS
from eventd.console.pages.visit import ShownPage, Visit
from eventd.console.rendering.urls import Urls, changed
from eventd.console.serving.answers import html, see
from eventd.console.serving.forms import read_form
from eventd.console.serving.layout import Layout
from eventd.console.serving.preferences import Preferences
from eventd.console.view.permissions import scopes_for
from eventd.errors import EventdError, Forbidden, Invalid
from eventd.text.quoting import quoted

_OWN: Final = ("back", "sure", "asked", "once")
"""Fields of a form that are not parameters of its operation: the page to go to afterwards, the typed number, the mark
that the visitor was asked, and the form's unique value."""

_OBJECTS: Final = ("callback", "group", "kind", "name", "number", "peer", "router", "source", "subscription", "topic")
"""Parameters that name what an action is about."""


class ActionPages:
    """The pages below /console/do/. `note_done` is called after each action that was done."""

    def __init__(self, urls: Urls, layout: Layout, note_done: Callable[[], None]) -> None:
        self._urls = urls
        self._layout = layout
        self._note_done = note_done

    async def serve(self, request: web.Request, operation: str, visit: Visit, preferences: Preferences) -> web.Response:
        """Ask (GET), or do the action (POST)."""
        action = ACTIONS[operation]
        if not action.may(visit.view, operation):
            needed = scopes_for(action.request or operation)
            refused = Forbidden(f"this action needs a key with {needed}", hint="sign in with such a key")
            if request.method != "POST":
                raise refused
            return await self._try(operation, visit, await read_form(request), preferences, refused)
        if request.method in ("GET", "HEAD"):
            if not action.ask:
                raise Invalid("this action is a button of a page, and asks nothing")
            given = _params(operation, dict(visit.query))
            given.pop(action.bound, None)
            return await self._ask(operation, visit, given, visit.asked("back"), preferences, linked=tuple(given))
        if request.method != "POST":
            raise Invalid(f"an action is posted, not sent with {request.method}")
        return await self._act(operation, visit, await read_form(request), preferences)

    async def _try(
        self, operation: str, visit: Visit, form: dict[str, Any], preferences: Preferences, refused: Forbidden
    ) -> web.Response:
        """Let the API refuse an action for which the visitor lacks a scope, so that the refusal is recorded."""
        params = _params(operation, form)
        try:
            key = _key_of(operation, visit, form, params)
            answer = await ACTIONS[operation].perform(visit.view, operation, params, key)
        except Invalid:  # the API was not asked: it refuses before it reads the parameters
            raise refused from None
        back = self._urls.own(str(form.get("back", ""))) or self._urls.to()
        return self._lead(operation, visit, answer, back, preferences)  # another node gave the key the scope just now

    async def _act(self, operation: str, visit: Visit, form: dict[str, Any], preferences: Preferences) -> web.Response:
        action = ACTIONS[operation]
        back = self._urls.own(str(form.get("back", ""))) or self._urls.to()
        params = _params(operation, form)
        sent, key = dict(params), _key_of(operation, visit, form, params)  # the question may change the parameters
        question: Question | None = None
        if action.ask:
            was_asked = "asked" in form and (not action.bound or action.bound in params)
            try:
                question = await action.ask(visit, params)
                # a number is typed where it was asked for, which only a question that is ready does
                problem = _unsure(question, form) if was_asked and question.ready else ""
                is_sure = was_asked and question.ready and not problem
            except EventdError:
                # what the form is about may be gone because the form was sent before, which its own key tells
                is_known = was_asked and "once" in form
                if not is_known or (answer := await action.find_answer(visit.view, operation, sent, key)) is None:
                    raise
                return self._lead(operation, visit, answer, back, preferences)
            if not is_sure:
                if was_asked and (answer := await action.find_answer(visit.view, operation, sent, key)) is not None:
                    return self._lead(operation, visit, answer, back, preferences)
                return await self._ask(operation, visit, params, back, preferences, problem=problem, asked=question)
        try:
            answer = await action.perform(visit.view, operation, sent, key)
        except EventdError as error:
            if question is not None:
                return await self._ask(operation, visit, params, back, preferences, error=error, asked=question)
            raise
        self._note_done()
        return self._lead(operation, visit, answer, back, preferences)

    def _lead(self, operation: str, visit: Visit, answer: Any, back: str, preferences: Preferences) -> web.Response:
        """Show the answer to an action, or redirect to the page that shows its result."""
        show = ACTIONS[operation].show
        page = show(visit, answer) if show else None
        if page is not None and not page.target:
            page = page._replace(data={**page.data, "back": back})
            return html(self._layout.alone(page, visit, preferences, 0), page.status)
        path, _, query = (page.target if page else back).partition("?")
        return see(changed(path, dict(parse_qsl(query)), done=operation))

    async def _ask(
        self,
        operation: str,
        visit: Visit,
        params: dict[str, Any],
        back: str,
        preferences: Preferences,
        *,
        problem: str = "",
        error: EventdError | None = None,
        asked: Question | None = None,
        linked: tuple[str, ...] = (),
    ) -> web.Response:
        """Show a question. `linked`: the parameters that a link has set, perhaps one of another site: all are shown."""
        action = ACTIONS[operation]
        assert action.ask is not None
        question = asked or await action.ask(visit, params)
        named = {one.name for one in question.fields}
        hidden = {name: value for name, value in params.items() if name not in named}
        data = {
            "operation": operation,
            "action": action,
            "question": question,
            "hidden": hidden,
            "linked": {
                name: hidden[name] for name in linked if name in hidden and not _is_stated(question, name, hidden[name])
            },
            "given": params,
            "back": self._urls.own(back) or self._urls.to(),
            "problem": problem,
            "error": error,
            "sure": (question.count or 0) > SURE_FROM,
        }
        refused = problem or (asked is not None and question.problem)  # a link to a question is answered with a page
        status = API_FORM.status(error) if error else 422 if refused else 200
        page = ShownPage(question.title, "question.html", data, live=False, status=status)
        return html(self._layout.alone(page, visit, preferences, 0), status, is_preview=asked is not None)


def _is_stated(question: Question, name: str, value: Any) -> bool:
    """Return whether a question says the value of a parameter in its sentences, so that it need not be listed."""
    if name in question.stated:
        return True
    said = "\n".join((question.title, *question.lines))
    return name in _OBJECTS and re.search(rf"(?<![\w-]){re.escape(str(value))}(?![\w-])", said) is not None


def _key_of(operation: str, visit: Visit, form: dict[str, Any], params: dict[str, Any]) -> str:
    """Return the idempotency key of a form: a hash of the operation, its parameters, and the page's random value.

    A form without that value gets a new key with each visit.
    """
    content = json.dumps([form.get("once") or visit.once, operation, params], sort_keys=True)
    return hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()


def _params(operation: str, form: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of an operation in a form; fields that were left empty are left out."""
    action = ACTIONS[operation]
    params: dict[str, Any] = {}
    for name, value in form.items():
        if name in _OWN or value == "":
            continue
        if name in action.lists:
            value = value.split() if isinstance(value, str) else value
        elif not isinstance(value, str):
            raise Invalid(f"the form has the field {quoted(name)} several times")
        params[name] = value
        if name in action.switches:
            params[name] = value not in ("", "off", "false")
    return params


def _unsure(question: Question, form: dict[str, Any]) -> str:
    """Return the error of the typed number; empty if the number is right or not required."""
    if "asked" not in form or question.count is None or question.count <= SURE_FROM:
        return ""
    typed = str(form.get("sure", "")).replace(",", "").strip()
    return "" if typed == str(question.count) else f"type {question.count:,} to confirm"
