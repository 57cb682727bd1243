"""The scopes that pages name when they refuse a visitor."""

from __future__ import annotations

from eventd.console.pages.table import PAGES
from eventd.console.view.permissions import scopes_for


def test_scopes_are_named_in_words() -> None:
    assert scopes_for("events.search") == "the scope read"
    assert scopes_for("jobs.start") == "the scope admin or delete"
    assert all(page.needed.startswith("the scope") for page in PAGES)
