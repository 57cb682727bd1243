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
from eventd.errors import Invalid

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
    `ready`: the visitor was shown what changes; else a form that was asked is shown once more.
    """

    title: str
    lines: tuple[str, ...]
    count: int | None = None
    fields: tuple[FormField, ...] = ()
    diff: str = ""
    ready: bool = True


class PageAction(NamedTuple):
    """An operation of /api/v1 as an action, or a route of /v0 as its `request`. `label`: of its button. `done`: the
    sentence that the next page shows.

    `ask` returns what is asked first, from the parameters that are known; None: the action is done at once. `danger`:
    it ends or drops something. `lists`, `switches`: parameters that are lists, and that a checkbox sets. `prepare`
    returns the parameters of the operation for the fields of its form, if they differ. `bound`: the field that binds a
    form to what its question has shown; a URL cannot set it, and a form without it asks. `show` returns the page that
    answers the form, for what the node shows only once; without it, the browser is led back to the page it came from.

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
    show: Callable[[dict[str, Any]], ShownPage] | None = None
    request: V0Request | None = None
    check: Callable[[Any], None] | None = None

    def may(
        self, view: NodeView, operation: str, group: str = "", params: Mapping[str, Any] = MappingProxyType({})
    ) -> bool:
        """Return whether a visitor may do the action, for a group or for the names in `params`, as far as given."""
        if self.request is None:
            return view.may(operation, group)
        return view.may_ask(self.request.method, *self.request.fill(params))

    async def perform(self, view: NodeView, operation: str, form: dict[str, Any]) -> Any:
        """Do the action with the fields of its form, and return its answer. Raises the errors of the API."""
        params = self.prepare(form) if self.prepare else form
        if self.request is None:
            return await view.call(operation, **params)
        method, names = self.request.method, self.request.names
        if missing := [name for name in names if not params.get(name)]:
            raise Invalid(f"the {missing[0]} is missing", hint="use the buttons of a page")
        path, rest = self.request.fill(params), {name: value for name, value in params.items() if name not in names}
        deletes = method == "DELETE"
        answer = await (view.ask(method, *path, **rest) if deletes else view.ask(method, *path, body=rest))
        if self.check:
            self.check(answer)
        return answer
