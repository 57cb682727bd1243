"""Actions: the operations that pages offer as buttons and forms, and what they ask first.

An action is a form that is posted to `/console/do/OPERATION`, with the parameters of the operation as its fields. What
ends or drops something asks first, on a page of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from eventd.console.pages.visit import ShownPage, Visit

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
    """An operation as an action. `label`: of its button. `done`: the sentence that the next page shows.

    `ask` returns what is asked first, from the parameters that are known; None: the action is done at once. `danger`:
    it ends or drops something. `lists`, `switches`: parameters that are lists, and that a checkbox sets. `prepare`
    returns the parameters of the operation for the fields of its form, if they differ. `bound`: the field that binds a
    form to what its question has shown; a URL cannot set it, and a form without it asks. `show` returns the page that
    answers the form, for what the node shows only once; without it, the browser is led back to the page it came from.
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
