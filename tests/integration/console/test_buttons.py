"""The buttons of a node on which everything can be done: all pages, followed link by link, with each set of scopes."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest

from eventd.console.pages.table import ACTIONS, PAGES, PageRoute, find_page
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch
from eventd.testing import NOW, until
from tests.integration.console.conftest import MakeBrowser
from tests.integration.console.test_letters import store
from tests.integration.console.test_parts import derive
from tests.integration.console.test_roles import API_KEYS, HOLDERS, KEYS, lacks_action
from tests.integration.console.test_routemaster import use_surface
from tests.support.console_pages import Browser
from tests.support.declared import callback, peer
from tests.support.derived import subscription
from tests.support.ports import free_port
from tests.support.sites import Site

OF_EACH = 3
"""How many pages of one route are looked at: more of them have the same buttons."""

TOPICS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("PUT", "/v0/topics/t", {"type": "queue", "max_deliveries": 1, "dead_letter": "graves"}),
    ("PUT", "/v0/routers/t-%3Eu", {"source": "t", "dest": "u"}),
    ("POST", "/v0/topics/t", {"records": [{"data": 1}]}),
    ("POST", "/v0/topics/t/claim", {"node": "w"}),
    ("POST", "/v0/topics/t/nack", {"node": "w", "seqs": [1]}),
    ("POST", "/v0/topics/t", {"records": [{"data": 2}, {"data": 3}]}),
    ("POST", "/v0/topics/t/claim", {"node": "w", "max": 2}),
    ("POST", "/v0/topics/t/nack", {"node": "w", "seqs": [2], "delay_ms": 3_600_000}),
)
"""Requests that make a queue, a router that reads it, and jobs: a dead letter, one that waits, and one in progress."""


@pytest.fixture
async def everything(site: Site, tmp_path: Path) -> AsyncIterator[Site]:
    """A node that has something for each action to act on."""
    await site.stop()
    await site.start(api_keys=API_KEYS, callback_allow="127.0.0.1,::1")
    others = [
        callback(name, url=f"http://localhost:{free_port()}/hooks", allowPlain=True) for name in ("hook", "quiet")
    ]
    far = await Site("far", tmp_path).start()
    await far.join(site)
    await site.apply(peer("b", 1), peer("far", far.port), *others)
    await derive(site, tmp_path, "e1")
    await site.apply(subscription(name="idle"))
    await site.ask("subscriptions.pause", group="edge", subscription="idle")
    await site.ask("callbacks.pause", callback="quiet")
    await site.ask("keys.create", name="ci", scopes=["look"])
    await site.ask("routemaster.create_token", name="shop")
    await use_surface(site)
    database = site.running.log.database
    await database.write(_park)
    await site.ask("jobs.plan", action="retry", group="edge", peer="b")
    await database.write(_run_elsewhere)

    async def delivered() -> bool:
        return (await site.deliveries())["e1", "far"] == "delivered"

    await until(delivered, "the event to be delivered")
    yield site
    await far.stop()


def _park(conn: Connection) -> None:
    """Make dead letters of the event, one of each owner."""
    ((topic, position),) = fetch(conn, "SELECT topic_id, position FROM event_ids WHERE event_id = 'e1'")
    cursors = ("peer:edge/b", "callback:hook", "subscription:edge/claims")
    store(conn, [(cursor, position, topic, "e1", "refused", "", 1, NOW) for cursor in cursors])


def _run_elsewhere(conn: Connection) -> None:
    """Turn the planned job into one that another process does and does not end."""
    sql = "UPDATE bulk_jobs SET state = 'running', started_at = ?, runner = 'another', leased_until = ?"
    execute(conn, sql, (NOW, time.time_ns() // 1000 + 100 * SECOND))


async def fill_topics(one: Browser) -> None:
    headers = {"Authorization": f"Bearer {KEYS['admin']}"}
    async with aiohttp.ClientSession(f"http://{one.host}", headers=headers) as session:
        for method, path, body in TOPICS:
            assert (await session.request(method, path, json=body)).status in (200, 201), path


async def follow(one: Browser) -> list[tuple[str, str]]:
    """Return the paths and texts of the pages that a visitor reaches from the overview by links."""
    found: dict[PageRoute, list[str]] = {}
    pages, waiting = [], ["/console/", *(f"/console{page.path}" for page in PAGES if page.title)]
    while waiting:
        path = waiting.pop(0)
        route = find_page(path.removeprefix("/console").partition("?")[0], PAGES)
        if route is None:
            continue
        seen = found.setdefault(route.route, [])
        if path in seen or len(seen) >= OF_EACH:
            continue
        seen.append(path)
        answer = await one.get(path)
        if answer.status == 200 and answer.headers["Content-Type"].startswith("text/html"):
            pages.append((path, answer.text))
            waiting += links_in(answer.text)
    return pages


def links_in(text: str) -> Iterator[str]:
    for link in re.findall(r'<a\s[^>]*href="(/console/[^"]*)"', text):
        yield unescape(link).partition("#")[0]


def offered_by(pages: list[tuple[str, str]]) -> dict[str, str]:
    """Return the page of each action that pages offer."""
    return {name: path for path, text in pages for name in re.findall(r"/console/do/([\w.]+)", text)}


async def test_no_page_offers_an_action_to_a_key_that_may_not_do_it(everything: Site, browser: MakeBrowser) -> None:
    admin = browser(everything)
    await admin.sign_in(KEYS["admin"])
    await fill_topics(admin)
    for holder in HOLDERS:
        one = browser(everything)
        await one.sign_in(KEYS[holder])
        pages = await follow(one)
        offered = offered_by(pages)
        assert not {name: path for name, path in offered.items() if lacks_action(holder, name)}, holder
        if holder == "admin":
            assert [name for name in ACTIONS if name not in offered] == [], "actions without a button"
            for path, text in pages:
                forms = re.findall(r'<form[^>]*action="/console/do/[^>]*>(.*?)</form>', text, re.S)
                assert not [form for form in forms if not re.search('name="once" value="[^"]+"', form)], path


async def test_an_action_of_a_visitor_without_a_session_is_refused(everything: Site, browser: MakeBrowser) -> None:
    one, before = browser(everything), (await everything.ask("actions.list"))["actions"]
    for name in ACTIONS:
        query = urlencode({"group": "edge", "peer": "b", "name": "ci", "callback": "hook"})
        asked = await one.get(f"/console/do/{name}?{query}")
        assert asked.heading == "Sign in", name
        done = await one.post(f"/console/do/{name}", **_given(query), asked="yes", follow=False)
        assert (done.status, done.heading) == (401, "Sign in again"), name
    assert (await everything.ask("actions.list"))["actions"] == before


def _given(query: str) -> dict[str, Any]:
    return dict(pair.split("=") for pair in query.split("&"))
