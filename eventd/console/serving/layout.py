"""The frame around pages: head, navigation, preferences."""

from __future__ import annotations

from typing import Any

from eventd.console.pages.table import ACTIONS, PAGES
from eventd.console.pages.visit import ShownPage, Visit
from eventd.console.rendering.environment import templates
from eventd.console.rendering.formats import TIMES
from eventd.console.rendering.urls import Urls
from eventd.console.serving.preferences import THEMES, Preferences
from eventd.console.serving.static_files import release


class Layout:
    """Renders pages within their frame."""

    def __init__(self, urls: Urls, version: str) -> None:
        self._urls = urls
        self._version = version

    def whole(self, page: ShownPage, visit: Visit, section: str, preferences: Preferences) -> str:
        """Return a page with its frame."""
        return self._render("base.html", page, visit, preferences, section=section, done=visit.asked("done"))

    def fragment(self, page: ShownPage, visit: Visit) -> str:
        """Return only what changes when a page is kept up to date."""
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
        return (
            templates()
            .get_template(page.template)
            .render(
                frame=frame,
                title=page.title,
                live=page.live,
                visit=visit,
                urls=self._urls,
                static=self._static,
                pages=[route for route in PAGES if route.title],
                actions=ACTIONS,
                preferences=preferences,
                themes=THEMES,
                times=TIMES,
                version=self._version,
                time_style=style if visit is None else visit.style,
                done_text=ACTIONS[more["done"]].done if more["done"] in ACTIONS else "",
                **page.data,
                **more,
            )
        )

    def _static(self, name: str) -> str:
        """Return the URL of a static file."""
        return f"{self._urls.base}/static/{release()}/{name}"
