"""Every page and every action with every role, and every link under a prefix: computed from the tables, over HTTP."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import urlencode

import pytest

from eventd.api.framework.route import Route
from eventd.api.keys.api_key import ApiKey
from eventd.api.keys.scopes import SCOPES
from eventd.api.routes import OPERATIONS
from eventd.api.topic_routes import TOPIC_ROUTES
from eventd.console.pages.table import ACTIONS, PAGES
from eventd.console.view.node_view import V0Request
from tests.integration.console.conftest import MakeBrowser
from tests.support.console import ROLES
from tests.support.declared import peer
from tests.support.sites import Site

HOLDERS = {**ROLES, **{f"only-{scope}": (scope,) for scope in SCOPES if scope not in ("look", "read")}}
"""The scopes of the keys: those of each role, and each scope alone."""
KEYS = {role: f"{role}-key-of-this-test" for role in HOLDERS}
API_KEYS = ",".join(f"{KEYS[role]}:{'+'.join(scopes)}" for role, scopes in HOLDERS.items())
NAMES = {"group": "edge", "peer": "b", "topic": "t", "router": "t->u"}


@pytest.fixture
async def kept(site: Site) -> Site:
    """A node with a key for each role, and a link."""
    await site.apply(peer("b", 1))
    await site.stop()
    return await site.start(api_keys=API_KEYS)


def route_of(needed: str | V0Request) -> Route:
    """Return the route of an operation, or of a request to /v0."""
    if isinstance(needed, str):
        return OPERATIONS[needed]
    path = "/".join(["/v0", *needed.path])
    return next(route for route in TOPIC_ROUTES if (route.method, route.path) == (needed.method, path))


def lacks(role: str, needed: str | V0Request) -> bool:
    """Return whether the role lacks a scope of what is needed, or all of them if one is enough."""
    route, key = route_of(needed), ApiKey(b"", frozenset(HOLDERS[role]), ())
    return not (any if route.any_scope else all)(map(key.may, route.scopes))


def lacks_action(role: str, name: str) -> bool:
    return lacks(role, ACTIONS[name].request or name)


@pytest.mark.parametrize("role", HOLDERS)
async def test_an_action_is_refused_to_those_who_lack_its_scope_and_to_no_role_that_has_it(
    kept: Site, browser: MakeBrowser, role: str
) -> None:
    """A key with the scope of an action alone may not be able to read what the action's question shows."""
    one = browser(kept)
    await one.sign_in(KEYS[role])
    for operation in ACTIONS:
        asked = await one.get(f"/console/do/{operation}?{urlencode(NAMES)}")
        done = await one.post(f"/console/do/{operation}", **NAMES, asked="yes", follow=False)
        refused = [answer.status == 403 for answer in (asked, done)]
        if lacks_action(role, operation) or role in ROLES:
            assert refused == [lacks_action(role, operation)] * 2, (operation, asked.status, done.status)


async def test_a_page_is_refused_exactly_to_those_who_lack_the_scope_of_what_it_shows(
    kept: Site, browser: MakeBrowser
) -> None:
    for role in HOLDERS:
        one = browser(kept)
        await one.sign_in(KEYS[role])
        for page in PAGES:
            path = re.sub(r"{(\w+)(:\w+)?}", lambda found: NAMES.get(found[1], "x"), page.path)
            answer = await one.get(f"/console{path}")
            assert answer.status < 500, (role, path)
            assert (answer.status == 403) == lacks(role, page.needs), (role, path, answer.status)


async def test_each_link_and_form_of_each_page_stays_under_the_prefix_and_is_served(
    kept: Site, browser: MakeBrowser
) -> None:
    await kept.stop()
    await kept.start(api_keys=API_KEYS, console_prefix="/site-a")
    one = browser(kept)
    await one.post("/site-a/console/sign-in", key=KEYS["admin"])
    seen: set[str] = set()
    waiting = ["/site-a/console/"]
    while waiting:
        path = waiting.pop()
        seen.add(path)
        answer = await one.get(path)
        assert answer.status == 200, path
        if not answer.headers["Content-Type"].startswith("text/html"):
            continue
        links = re.findall(r'(?:href|src|action|data-base)="([^"]*)"', answer.text)
        assert links
        for link in map(unescape, links):
            assert link.startswith(("/site-a/console", "#", "?", "http")), (path, link)
        ways = {unescape(link).partition("#")[0] for link in re.findall(r'<a\s[^>]*href="(/[^"]*)"', answer.text)}
        waiting += sorted(ways - seen - set(waiting))
    assert len(seen) >= len([page for page in PAGES if page.title])
