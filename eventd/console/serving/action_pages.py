"""Does actions: asks first where an action ends or drops something, and leads to where the result shows."""

from __future__ import annotations

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
from eventd.errors import EventdError, Forbidden, Invalid
from eventd.text.quoting import quoted

_OWN: Final = ("back", "sure", "asked")
"""Fields of a form that are not parameters of its operation: where to go then, the typed number, and that the visitor
was asked."""


class ActionPages:
    """The pages below /console/do/."""

    def __init__(self, urls: Urls, layout: Layout) -> None:
        self._urls = urls
        self._layout = layout

    async def serve(self, request: web.Request, operation: str, visit: Visit, preferences: Preferences) -> web.Response:
        """Ask (GET), or do the action (POST)."""
        action = ACTIONS[operation]
        if not action.may(visit.view, operation):
            raise Forbidden(f"your key may not use {operation}", hint="sign in with a key that has its scope")
        if request.method in ("GET", "HEAD"):
            if not action.ask:
                raise Invalid("this action is a button of a page, and asks nothing")
            given = _params(operation, dict(visit.query))
            given.pop(action.bound, None)
            return await self._ask(operation, visit, given, visit.asked("back"), preferences)
        if request.method != "POST":
            raise Invalid(f"an action is posted, not sent with {request.method}")
        form = await read_form(request)
        back = self._urls.own(str(form.get("back", ""))) or self._urls.to()
        params = _params(operation, form)
        question: Question | None = None
        if action.ask:
            was_asked = "asked" in form and (not action.bound or action.bound in params)
            question = await action.ask(visit, params)
            problem = _unsure(question, form)
            if problem or not was_asked or not question.ready:
                return await self._ask(operation, visit, params, back, preferences, problem=problem, asked=question)
        try:
            answer = await action.perform(visit.view, operation, params)
        except EventdError as error:
            if question is not None:
                return await self._ask(operation, visit, params, back, preferences, error=error, asked=question)
            raise
        if action.show:
            page = action.show(answer)
            page = page._replace(data={**page.data, "back": back})
            return html(self._layout.alone(page, visit, preferences, 0), page.status)
        path, _, query = back.partition("?")
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
    ) -> web.Response:
        action = ACTIONS[operation]
        assert action.ask is not None
        question = asked or await action.ask(visit, params)
        named = {one.name for one in question.fields}
        data = {
            "operation": operation,
            "action": action,
            "question": question,
            "hidden": {name: value for name, value in params.items() if name not in named},
            "given": params,
            "back": self._urls.own(back) or self._urls.to(),
            "problem": problem,
            "error": error,
            "sure": (question.count or 0) > SURE_FROM,
        }
        status = API_FORM.status(error) if error else 422 if problem else 200
        page = ShownPage(question.title, "question.html", data, live=False, status=status)
        return html(self._layout.alone(page, visit, preferences, 0), status)


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
    """Return what is wrong with the typed number; empty if it is right or not needed."""
    if "asked" not in form or question.count is None or question.count <= SURE_FROM:
        return ""
    typed = str(form.get("sure", "")).replace(",", "").strip()
    return "" if typed == str(question.count) else f"type {question.count:,} to confirm"
