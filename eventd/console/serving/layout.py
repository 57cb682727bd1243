"""The frame around pages: head, navigation, preferences."""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from eventd.console.pages.commands import find_commands
from eventd.console.pages.table import ACTIONS, AREAS, PAGES, PageRoute
from eventd.console.pages.visit import ShownPage, Visit
from eventd.console.rendering.environment import render
from eventd.console.rendering.formats import TIMES
from eventd.console.rendering.urls import Urls
from eventd.console.serving.preferences import THEMES, Preferences
from eventd.console.serving.static_files import release
from eventd.console.view.node_view import NodeView


class SwitcherEntry(NamedTuple):
    """A node in the switcher: `url` of its overview. `colour` is empty without one.

    `known`: the URL of what is known of it while it does not answer.
    """

    name: str
    url: str
    colour: str = ""
    protected: bool = False
    current: bool = False
    known: str = ""


class Switcher(NamedTuple):
    """The menu that leads from the pages of one node to those of other nodes.

    `home`: the URL of the page of all nodes.
    """

    home: str
    entries: tuple[SwitcherEntry, ...]

    @property
    def current(self) -> SwitcherEntry | None:
        """Return the node that is shown; None on the page of all."""
        return next((entry for entry in self.entries if entry.current), None)


class SiteFrame(NamedTuple):
    """The common parts of the pages of a site.

    `pages`: the table of its pages. `switcher`: None for a single node. `find`: the URL of the page that finds an
    event by its id; empty: the site's own page. `entry`: how a browser without a cookie gets access; empty: it signs
    in.
    """

    urls: Urls
    version: str
    pages: tuple[PageRoute, ...] = PAGES
    switcher: Switcher | None = None
    find: str = ""
    entry: str = ""


class Layout:
    """Renders pages within their frame."""

    def __init__(self, frame: SiteFrame) -> None:
        self._frame = frame
        self._urls = frame.urls

    def whole(self, page: ShownPage, visit: Visit, section: str, preferences: Preferences) -> str:
        """Return a page with its frame."""
        return self._render("base.html", page, visit, preferences, section=section, done=visit.asked("done"))

    def fragment(self, page: ShownPage, visit: Visit) -> str:
        """Return only the part of a page that changes when the page is kept up to date."""
        return self._render("fragment.html", page, visit, Preferences(), section="", done="")

    def alone(self, page: ShownPage, visit: Visit | None, preferences: Preferences, now: int) -> str:
        """Return a page that stands outside of the navigation: sign-in, questions and errors."""
        frame = "base.html" if visit is not None else "alone.html"
        return self._render(frame, page, visit, preferences, section="", done="", style=preferences.style(now))

    def _render(
        self,
        frame: str,
        page: ShownPage,
        visit: Visit | None,
        preferences: Preferences,
        *,
        style: Any = None,
        **more: Any,
    ) -> str:
        values = {
            "frame": frame,
            "title": page.title,
            "live": page.live,
            "visit": visit,
            "urls": self._urls,
            "static": self._static,
            "areas": None if visit is None else self._areas(visit.view),
            "switcher": self._frame.switcher,
            "find": self._frame.find or self._urls.to("events"),
            "entry": self._frame.entry,
            "actions": ACTIONS,
            "find_commands": None if visit is None else partial(find_commands, visit),
            "preferences": preferences,
            "themes": THEMES,
            "times": TIMES,
            "version": self._frame.version,
            "time_style": style if visit is None else visit.style,
            "done_text": ACTIONS[more["done"]].done if more["done"] in ACTIONS else "",
        }
        return render(page.template, dict(**values, **page.data, **more))

    def _areas(self, view: NodeView) -> list[tuple[str, list[PageRoute]]]:
        """Return the pages of the navigation that a visitor may open, by the titles above them.

        Those of a section without a title come first.
        """
        titled = [page for page in self._frame.pages if page.title and page.is_offered_to(view)]
        named = {section: title for title, sections in AREAS.items() for section in sections}
        order = [section for sections in AREAS.values() for section in sections]
        titled.sort(key=lambda page: order.index(page.section) if page.section in order else -1)
        return [(title, list(pages)) for title, pages in groupby(titled, lambda page: named.get(page.section, ""))]

    def _static(self, name: str) -> str:
        """Return the URL of a static file."""
        return f"{self._urls.base}/static/{release()}/{name}"
