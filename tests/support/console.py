"""Nodes with a console, for tests in a browser: processes with a key for each role, and visitors that sign in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import unescape
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from eventd.api.keys.scopes import SCOPES
from eventd.console.pages.table import PageRoute, find_page
from tests.support.browser import Visitor
from tests.support.processes import Processes
from tests.support.running import NodeProcess

if TYPE_CHECKING:
    from playwright.sync_api import Page

_ROLES = {
    "look": ("look",),
    "read": ("read",),
    "operator": ("read", "write", "delete"),
    "admin": SCOPES,
}
ROLES = {role: scopes for role, scopes in _ROLES.items() if set(scopes) <= set(SCOPES)}
KEYS = {role: f"{role}-key-of-the-console-tests" for role in ROLES}
_LINK = re.compile(r'<a\s[^>]*?href="([^"]+)"')


class ConsoleNode(NodeProcess):
    """A node that a browser can open. The test itself calls its API with the key of `admin`."""

    def __init__(self, processes: Processes, name: str, *, keys: Sequence[str] = tuple(ROLES), **env: str) -> None:
        told = ",".join(f"{KEYS[role]}:{'+'.join(ROLES[role])}" for role in keys)
        super().__init__(processes, name, **{"EVENTD_API_KEYS": told, **env} if keys else env)
        if keys:
            self.headers = {"Authorization": f"Bearer {KEYS['admin']}"}

    def url(self, path: str = "/") -> str:
        """Return the URL of a page."""
        return f"{self.process.url}/console{path}"


def sign_in(visitor: Visitor, node: ConsoleNode, role: str = "admin", *, key: str = "", path: str = "/") -> Visitor:
    """Sign in with the key of a role, or with `key`, and open a page; return the visitor."""
    visitor.page.goto(node.url(path))
    visitor.page.get_by_label("API key").fill(key or KEYS[role])
    visitor.page.get_by_role("button", name="Sign in").click()
    visitor.page.get_by_role("navigation", name="Pages").wait_for()
    return visitor


def wait_for_keys(page: Page) -> None:
    """Wait until a page listens for shortcuts: those pressed while it loads are lost."""
    page.locator("#find[aria-keyshortcuts]").wait_for()


def find_links(visitor: Visitor, node: ConsoleNode, path: str) -> list[str] | None:
    """Return the paths below the console that a page links to, with their queries; None if it is not a page."""
    answer = visitor.context.request.get(node.url(path))
    if path.startswith("/do/") and answer.status in (409, 422):
        return None  # the state of what the page shows does not allow the action
    assert answer.ok, f"{path}: {answer.status}"
    if not answer.headers["content-type"].startswith("text/html"):
        return None
    found = {urljoin(answer.url, unescape(link)) for link in _LINK.findall(answer.text())}
    own = [urlsplit(url)._replace(fragment="") for url in found if url.startswith(node.url("/"))]
    return sorted(f"{url.path.removeprefix('/console')}{'?' if url.query else ''}{url.query}" for url in own)


def find_pages(visitor: Visitor, node: ConsoleNode, *, of_each: int = 1) -> list[str]:
    """Return the paths of `of_each` pages of each kind that can be reached by links from the overview."""
    seen: dict[PageRoute | str, list[str]] = {}
    waiting = ["/"]
    while waiting:
        path = waiting.pop(0)
        plain = path.partition("?")[0]
        route = find_page(plain)
        paths = seen.setdefault(route.route if route else re.sub(r"^(/do/[^/]+).*", r"\1", plain), [])
        if len(paths) < of_each and path not in paths:
            links = find_links(visitor, node, path)
            paths += [] if links is None else [path]
            waiting += links or []
    return [path for paths in seen.values() for path in paths]
