"""Actions: the operations that pages offer as buttons and forms, and what they ask first.

An action is a form that is posted to `/console/do/OPERATION`, with the parameters of the operation as its fields. What
ends or drops something asks first, on a page of its own.
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
"""More objects than that are only changed after their number was typed."""


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
    """What a page asks before an action. `count`: how many objects change; None if it is one or not known.

    `lines`: what happens, in sentences. `fields`: what the visitor can choose. `diff`: what changes, as a unified diff.
    `ready`: the visitor was shown what changes; else a form that was asked is shown once more. `button`: the label of
    its button, if that is not the action's. `danger`: it ends or drops something, or not, if the action does not say so
    of all. `stated`: the parameters that the lines state, which are not listed once more.
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


class PageAction(NamedTuple):
    """An operation of /api/v1 as an action, or a route of /v0 as its `request`. `label`: of its button. `done`: the
    sentence that the next page shows.

    `ask` returns what is asked first, from the parameters that are known; None: the action is done at once. `danger`:
    it ends or drops something. `lists`, `switches`: parameters that are lists, and that a checkbox sets. `prepare`
    returns the parameters of the operation for the fields of its form, if they differ. `bound`: the field that binds a
    form to what its question has shown; a URL cannot set it, and a form without it asks. `show` returns the page that
    shows the answer; without it, or for None, the browser is led back to the page it came from. `keyed`: the field
    that gets the idempotency key, where none can be sent beside the parameters.

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
        """Return the answer to the same form, sent before; None if it is not known. Raises the error that it was."""
        try:
            params = self.params_of(form, key)
            path, rest = _split(self.request, params) if self.request else ((), {})
        except EventdError:
            return None
        if self.request is None:
            return await view.find_answer(operation, key, **params)
        return await view.find_asked(key, self.request.method, *path, **rest)


def _split(request: V0Request, params: dict[str, Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the path of a request to /v0, and what else `NodeView.ask` needs. Raises `Invalid`."""
    if missing := [name for name in request.names if not params.get(name)]:
        raise Invalid(f"the {missing[0]} is missing", hint="use the buttons of a page")
    rest = {name: value for name, value in params.items() if name not in request.names}
    return request.fill(params), rest if request.method == "DELETE" else {"body": rest}
