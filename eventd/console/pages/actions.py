"""Actions: the operations that pages offer as buttons and forms, and the questions asked before them.

An action is a form that is posted to `/console/do/OPERATION`, with the parameters of the operation as its fields. An
action that ends or drops something asks first, on a separate page.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from eventd.console.pages.visit import ShownPage, Visit
from eventd.console.view.node_view import NodeView, V0Request
from eventd.errors import EventdError, Invalid

SURE_FROM: Final = 100
"""If more objects than this would change, the visitor has to type their number first."""


class FormField(NamedTuple):
    """A field of a question's form. `hint`: below it. `choices`: it is a selection of these."""

    name: str
    label: str
    hint: str = ""
    choices: tuple[str, ...] = ()
    required: bool = False
    long: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """What a page asks before an action.

    `count`: how many objects change; None if it is one, or not known. `lines`: the consequences, in sentences.
    `problem`: why nothing was done with the form; it may have several lines.
    `fields`: the choices of the visitor. `diff`: the changes as a unified diff. `ready`: the visitor was shown the
    changes, so the posted form can be executed; else the question is shown again. `button`: the label of its button,
    if it differs from the action's. `danger`: whether it ends or drops something, if that differs from the action's
    `danger`. `stated`: the parameters that the lines mention, which are not listed again.
    """

    title: str
    lines: tuple[str, ...]
    count: int | None = None
    fields: tuple[FormField, ...] = ()
    diff: str = ""
    ready: bool = True
    button: str = ""
    danger: bool | None = None
    stated: tuple[str, ...] = ()
    problem: str = ""


class PageAction(NamedTuple):
    """An operation of /api/v1 as an action, or a route of /v0 as its `request`.

    `label`: of its button. `done`: the sentence that the next page shows.

    `ask` returns the question to ask first, from the parameters that are known; None: the action is executed without a
    question. `danger`: it ends or drops something. `lists`, `switches`: parameters that are lists, and that a checkbox
    sets. `prepare` returns the parameters of the operation for the fields of its form, if they differ. `bound`: the
    field that binds a form to what its question has shown; a URL cannot set it, and a form without it asks. `show`
    returns the page that shows the answer; without it, or for None, the browser is led back to the page it came from.
    `keyed`: the field that gets the idempotency key, where none can be sent beside the parameters.

    Of a `request`, the parameters that are not in its path are the members of its body, or its query if it deletes.
    `check` raises an error for an answer which says that nothing was done.
    """

    label: str
    done: str
    ask: Callable[[Visit, dict[str, Any]], Awaitable[Question]] | None = None
    danger: bool = False
    lists: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    prepare: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    bound: str = ""
    show: Callable[[Visit, dict[str, Any]], ShownPage | None] | None = None
    request: V0Request | None = None
    check: Callable[[Any], None] | None = None
    keyed: str = ""

    def may(
        self, view: NodeView, operation: str, group: str = "", params: Mapping[str, Any] = MappingProxyType({})
    ) -> bool:
        """Return whether a visitor may do the action, for a group or for the names in `params`, as far as given."""
        if self.request is None:
            return view.may(operation, group)
        return view.may_ask(self.request.method, *self.request.fill(params))

    def params_of(self, form: dict[str, Any], key: str) -> dict[str, Any]:
        """Return the parameters for the fields of a form and its idempotency key. Raises EventdError."""
        given = form | ({self.keyed: key} if self.keyed and key else {})
        return self.prepare(given) if self.prepare else given

    async def perform(self, view: NodeView, operation: str, form: dict[str, Any], key: str) -> Any:
        """Do the action with the fields of its form, and return its answer. Raises the errors of the API."""
        params = self.params_of(form, key)
        if self.request is None:
            answer = await view.act(operation, key, **params)
        else:
            path, rest = _split(self.request, params)
            answer = await view.ask(self.request.method, *path, once=key, **rest)
        if self.check:
            self.check(answer)
        return answer

    async def find_answer(self, view: NodeView, operation: str, form: dict[str, Any], key: str) -> Any:
        """Return the answer to an earlier submission of the same form; None if it is not known.

        If the answer was an error, raise it.
        """
        try:
            params = self.params_of(form, key)
            path, rest = _split(self.request, params) if self.request else ((), {})
        except EventdError:
            return None
        if self.request is None:
            return await view.find_answer(operation, key, **params)
        return await view.find_asked(key, self.request.method, *path, **rest)


def _split(request: V0Request, params: dict[str, Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the path of a request to /v0, and the other arguments of `NodeView.ask`. Raises `Invalid`."""
    if missing := [name for name in request.names if not params.get(name)]:
        raise Invalid(f"the {missing[0]} is missing", hint="use the buttons of a page")
    rest = {name: value for name, value in params.items() if name not in request.names}
    return request.fill(params), rest if request.method == "DELETE" else {"body": rest}
