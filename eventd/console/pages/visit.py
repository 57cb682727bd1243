"""A visit to a page: the visitor, the request, and how values are formatted; and the page's result."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from eventd.console.rendering.formats import TimeStyle
from eventd.console.rendering.urls import Urls, changed
from eventd.console.view.node_view import NodeView
from eventd.console.view.recent import FindRecent, RecentAnswer
from eventd.errors import EventdError, Invalid, NotFound
from eventd.text.quoting import quoted

PAGE_SIZE, MOST_ROWS = 50, 200
"""The default and the largest number of rows of a list."""
GROUPS_SECONDS = 2.0
"""Seconds for which a page asks groups one after the other."""
MOST_GROUPS = 20
"""Maximum number of groups that are asked for one by one, for a key that is limited to some names."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One visit. `names`: the values in the path of the page; `query`: the first value of each field of the query.

    `path`: of the URL. `visitor`: what the page calls the visitor, such as `key ci`. `histories`: the URL of longer
    histories, with `{group}` and `{peer}` to be replaced; empty if there are none. `once`: a value unique to the
    visit, by which a form that is sent twice is recognized; empty for a page that is rendered for many visitors.
    `session`: the id of the visitor's session; empty without one, and on a page that is rendered for many visitors.
    `recent`: see `RecentAnswers.find`; None: each answer is waited for.
    """

    view: NodeView
    urls: Urls
    path: str
    names: Mapping[str, str]
    query: Mapping[str, str]
    style: TimeStyle
    visitor: str = ""
    histories: str = ""
    once: str = ""
    session: str = ""
    recent: FindRecent | None = None

    def asked(self, name: str, default: str = "") -> str:
        """Return a value of the query without the blanks around it; `default` if there is none."""
        return self.query.get(name, "").strip() or default

    @property
    def limit(self) -> int:
        """Return the number of rows of a list: `limit` of the query, at most `MOST_ROWS`. Raises Invalid."""
        return min(MOST_ROWS, self.number("limit") or PAGE_SIZE)

    def chosen(self, name: str, choices: Sequence[str]) -> str:
        """Return a value of the query that is one of these, or empty. Raises Invalid."""
        text = self.asked(name)
        if text and text not in choices:
            raise Invalid(f"{name}: {quoted(text)} is not one of {', '.join(choices)}", hint="choose one, or none")
        return text

    def number(self, name: str, least: int = 1) -> int | None:
        """Return a number of the query, from `least` on; None without one. Raises Invalid."""
        text = self.asked(name)
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) >= least):
            raise Invalid(f"{name}: {quoted(text)} is not a number from {least} on", hint="use the links of the page")
        return int(text)

    def here(self, **changes: Any) -> str:
        """Return the URL of this page with other values of the query."""
        return changed(self.path, {name: text for name, text in self.query.items() if name != "done"}, **changes)

    async def look(self, operation: str, *, even_outdated: bool = False, **params: Any) -> RecentAnswer | None:
        """Return a recent answer of an operation that may take long; None while there is no answer yet.

        `even_outdated`: until there is another one, an answer of the time before an action, too.
        """
        ask = partial(self.view.call, operation, **params)
        if self.recent is None:
            return RecentAnswer(await ask(), self.style.now)
        found = await self.recent((self.view.name, operation, tuple(sorted(params.items()))), ask)
        return None if found is not None and found.is_outdated and not even_outdated else found

    async def groups(self) -> list[dict[str, Any]]:
        """Return the status of the groups that the visitor may see, by name."""
        groups: list[dict[str, Any]] = (await self.view.call("groups.status"))["groups"]
        return groups

    async def group_names(self) -> list[str]:
        """Return the names of the groups that the visitor may see."""
        return [group["group"] for group in await self.groups()]

    async def ask_groups(self, operation: str, groups: Sequence[str]) -> tuple[list[dict[str, Any]], list[str]]:
        """Run an operation for each group until `GROUPS_SECONDS` have passed.

        Return the answers, and the groups that did not answer in time. Each group but the last gets half of the
        remaining time, so that a slow group leaves time for the groups after it.
        """
        if len(groups) == 1:  # the visitor chose it
            return [await self.view.call(operation, group=groups[0])], []
        time = asyncio.get_running_loop().time
        found, late = list[dict[str, Any]](), list[str]()
        until = time() + GROUPS_SECONDS
        for place, group in enumerate(groups):
            if (left := until - time()) <= 0:
                return found, [*late, *groups[place:]]
            try:
                async with asyncio.timeout(left / 2):
                    found.append(await self.view.call(operation, group=group))
            except TimeoutError:
                late.append(group)
        return found, late

    async def scopes_of_groups(self) -> list[str]:
        """Return the groups for which an operation is called one by one.

        That is only "", which stands for all groups, unless the key is limited to some names.
        """
        return [""] if self.view.sees("") else (await self.group_names())[:MOST_GROUPS]


class ShownPage(NamedTuple):
    """What a page shows: its title, its template and the template's values.

    `live`: the page is kept up to date. `target`: the URL of another page to which the visitor is redirected instead.
    """

    title: str
    template: str
    data: Mapping[str, Any] = MappingProxyType({})
    live: bool = True
    status: int = 200
    target: str = ""


def unfit_page(title: str, template: str, data: Mapping[str, Any], error: EventdError) -> ShownPage:
    """Return a page without rows whose filters do not fit: they stay in its form, and `problem` says what is wrong."""
    status = 404 if isinstance(error, NotFound) else 400
    return ShownPage(title, template, {**data, "problem": error}, live=False, status=status)


class ForeignPage(NamedTuple):
    """A page that another program has written: it is shown by itself, without scripts, forms and other files."""

    content: bytes


class FilePage(NamedTuple):
    """A file that the browser saves and never shows."""

    name: str
    content: bytes


AnyPage = ShownPage | FilePage | ForeignPage
