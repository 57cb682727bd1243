"""The browser itself, before any test of a page: its version, and whether reports of pages reach a test."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import INSTALL, Visitor, Visitors, chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser


def test_this_playwright_opens_a_page_in_this_chromium(browser: Browser, visitor: Visitor) -> None:
    """Fails first if the two do not work together."""
    versions = f"Playwright {version('playwright')}, Chromium {browser.version} ({chromium()})"
    print(versions)  # noqa: T201
    visitor.page.goto("data:text/html,<title>opened</title><h1>a page</h1>")
    assert visitor.page.locator("h1").inner_text() == "a page", versions
    assert visitor.page.title() == "opened", versions


@pytest.mark.parametrize(
    ("body", "report"),
    [
        ("<script>console.error('broken')</script>", "error: broken"),
        ("<script>setTimeout(() => { throw Error('uncaught one') })</script>", "uncaught: Error: uncaught one"),
        ("<meta http-equiv=Content-Security-Policy content=\"img-src 'none'\"><img src='data:,x'>", "img-src 'none'"),
    ],
)
def test_what_a_page_reports_reaches_the_test(visitors: Visitors, body: str, report: str) -> None:
    visitor = visitors()
    with visitor.context.expect_event("console" if "uncaught" not in report else "weberror"):
        visitor.page.goto("data:text/html," + body.replace("#", "%23"))
    (told,) = visitor.unexpected()
    assert report in told
    visitor.expect_reports("broken", "uncaught one", "img-src")
    assert visitor.unexpected() == []


def test_without_a_browser_the_reason_of_the_skip_says_how_to_install_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("EVENTD_BROWSER", raising=False)
    with pytest.raises(pytest.skip.Exception, match=INSTALL):
        chromium()
    monkeypatch.setenv("EVENTD_BROWSER", "/nowhere/chromium")
    with pytest.raises(AssertionError, match="EVENTD_BROWSER=/nowhere/chromium is not a program"):
        chromium()
