"""A real browser for tests: finding and starting the machine's Chromium, and the visitors that open pages with it.

A visitor is one profile: cookies, window size, colours, with or without JavaScript. What its pages report is collected:
errors and warnings on the console, what a content security policy blocked, and exceptions that no code caught. A test
with such a report fails, unless it expected it.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, WebError

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""The first is Chromium without windows: a visitor costs it a third of the processor time of a whole Chromium."""
INSTALL = "apt-get install -y --no-install-recommends chromium-headless-shell"
WIDTHS = (320, 768, 1280, 1920)
"""A telephone, or a desk with 400 % zoom; a tablet; a laptop; a desk."""
STEP_MS = 15_000
"""How long a step may take on a machine that does other work, too: it ends as soon as what it waits for is there."""
_OPTIONS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
)
REBOUND = "rebound.test"
"""A name that leads to this machine, as that of a hostile page may do once its address has changed."""
_REPORTED = ("error", "warning", "assert")


def chromium() -> str:
    """Return the path of Chromium: EVENTD_BROWSER, or found on the PATH. Skips the test if there is none."""
    if named := os.environ.get("EVENTD_BROWSER"):
        assert shutil.which(named), f"EVENTD_BROWSER={named} is not a program"
        return named
    for name in NAMES:
        if path := shutil.which(name):
            return path
    pytest.skip(f"no browser is installed (looked for {', '.join(NAMES)}): {INSTALL}, or name one with EVENTD_BROWSER")


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Start Chromium, and close it at the end of the block. Skips the test if it or Playwright is not installed."""
    path = chromium()
    try:
        playwright: Any = importlib.import_module("playwright.sync_api")
    except ImportError:
        pytest.skip("Playwright is not installed: make browser")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=path, args=[*_OPTIONS, f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1"], timeout=30_000
        )
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """One profile of the browser, the pages it opens, and what these report."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.reports: list[str] = []
        self.requested: list[str] = []
        self._expected: list[re.Pattern[str]] = []
        context.set_default_timeout(STEP_MS)
        context.on("console", self._note)
        context.on("weberror", self._note_uncaught)
        context.on("request", lambda request: self.requested.append(request.url))
        self.page: Page = context.new_page()

    def expect_reports(self, *patterns: str) -> None:
        """Accept reports that match one of these expressions: a test that breaks something provokes them."""
        self._expected += map(re.compile, patterns)

    def unexpected(self) -> list[str]:
        """Return the reports that no test expected, after those on their way have arrived."""
        for page in self.context.pages:
            page.title()  # an answer of the page comes after what the page has reported
        return [text for text in self.reports if not any(each.search(text) for each in self._expected)]

    def _note_uncaught(self, raised: WebError) -> None:
        self.reports.append(f"uncaught: {raised.error.name}: {raised.error.message}")

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in _REPORTED:
            self.reports.append(f"{message.type}: {message.text} ({message.location.get('url', '')})")


class Visitors:
    """All visitors of one test."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._all: list[Visitor] = []

    def __call__(
        self, *, width: int = 1280, height: int = 900, dark: bool = False, javascript: bool = True, **more: Any
    ) -> Visitor:
        """Return a new visitor; `more` are the other arguments of `Browser.new_context`."""
        context = self._browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            java_script_enabled=javascript,
            **more,
        )
        self._all.append(Visitor(context))
        return self._all[-1]

    def photograph(self, folder: Path, name: str) -> list[Path]:
        """Take a picture of each open page; return the files."""
        pages = [page for visitor in self._all for page in visitor.context.pages]
        files = [folder / f"{name}-{number}.png" for number in range(len(pages))]
        for page, file in zip(pages, files, strict=True):
            page.screenshot(path=file, full_page=True)
        return files

    def close(self) -> list[str]:
        """Close all visitors; return the reports that no test expected."""
        reports = []
        for visitor in self._all:
            reports += visitor.unexpected()
            visitor.context.close()
        self._all.clear()
        return reports
