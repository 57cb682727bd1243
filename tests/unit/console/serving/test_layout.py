"""Pages within their frame."""

from __future__ import annotations

import gc
import weakref

from eventd.console.pages.visit import ShownPage
from eventd.console.rendering.urls import Urls
from eventd.console.serving.layout import Layout, SiteFrame
from eventd.console.serving.preferences import Preferences
from eventd.testing import NOW


class Problem(str):
    """A text that can be referred to weakly."""


def test_nothing_refers_to_what_a_page_has_shown_before_garbage_is_collected() -> None:
    layout = Layout(SiteFrame(Urls(), "1.2.3"))

    def show(text: str) -> weakref.ref[Problem]:
        shown = Problem(text)
        page = ShownPage("Sign in", "sign_in.html", {"next": "/", "problem": shown, "host": "a"}, live=False)
        assert text in layout.alone(page, None, Preferences(), NOW)
        return weakref.ref(shown)

    show("the first page compiles its template")
    gc.disable()
    try:
        assert show("the key is wrong")() is None
    finally:
        gc.enable()
