"""One console for many nodes: real nodes over their APIs, one that is silent, and one that stops."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from html import unescape
from pathlib import Path

import aiohttp
import pytest
from aiohttp import test_utils, web

from eventd.client.connection import ONCE, Connection
from eventd.console.many.console import ManyConsole, NodeAccess
from eventd.console.many.remote_node import SILENCE_SECONDS, NodeOptions
from eventd.runtime.chance import SYSTEM
from eventd.runtime.clock import SystemClock
from eventd.runtime.supervisor import Supervisor
from eventd.testing import until
from tests.integration.console.conftest import KEYS
from tests.integration.console.test_letters import park
from tests.support.console_pages import Answer, Browser
from tests.support.sites import Site

KEY = "adminkey-adminkey"


def access(name: str, port: int, key: str = KEY, **about: object) -> NodeAccess:
    """Return a node of this machine."""
    address = f"http://127.0.0.1:{port}"
    options = NodeOptions(name, address)._replace(**about)
    return NodeAccess(options, Connection(address, key, retry=ONCE))


def port_of(site: Site) -> int:
    assert site.running.api_address is not None
    return site.running.api_address[1]


class Opened:
    """A console, and a browser of this machine; `link` is the path that the operator opens."""

    def __init__(self, session: aiohttp.ClientSession, port: int, link: str) -> None:
        self.session = session
        self.browser = Browser(session, port)
        self.link = link

    async def get(self, path: str) -> Answer:
        return await self.browser.get(path)


@asynccontextmanager
async def opened(*nodes: NodeAccess, enter: bool = True) -> AsyncIterator[Opened]:
    """Serve the console of these nodes, and open its link."""
    clock = SystemClock()
    supervisor = Supervisor(clock)
    console = ManyConsole(nodes, clock, SYSTEM, supervisor.spawn, "test")
    runner = web.AppRunner(console.app(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
            found = Opened(session, runner.addresses[0][1], console.entrance)
            if enter:
                assert (await found.get(found.link)).url == "/console/"
            yield found
    finally:
        await runner.cleanup()
        await supervisor.stop()
        await console.close()


@asynccontextmanager
async def silent_server() -> AsyncIterator[int]:
    """Listen, accept connections, and answer nothing."""
    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await server.wait_closed()


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Site, Site]]:
    """Two nodes with keys that are peers of each other in the group edge."""
    sites = Site("a", tmp_path), Site("b", tmp_path)
    for site, other in zip(sites, reversed(sites), strict=True):
        await site.start(api_keys=KEYS)
        await site.join(other)
    yield sites
    for site in sites:
        await site.stop()


def row_of(answer: Answer, name: str) -> str:
    """Return the row of a node on the page of all nodes."""
    found = re.search(rf'<tr id="node-{name}".*?</tr>', answer.text, re.S)
    assert found is not None, answer.text
    return found[0]


async def test_the_page_of_a_node_shows_the_same_as_its_own_console(pair: tuple[Site, Site]) -> None:
    a, b = pair
    async with opened(access("one", port_of(a)), access("two", port_of(b))) as console:
        for path in (
            "",
            "links",
            "links/edge/b",
            "events?group=edge",
            "resources",
            "doctor",
            "topics",
            "keys",
            "settings",
        ):
            shown = await console.get(f"/at/one/console/{path}")
            own = Browser(console.session, port_of(a))
            await own.sign_in(KEY)
            assert (shown.status, shown.heading) == (200, (await own.get(f"/console/{path}")).heading), path
        assert "links/edge/a" in (await console.get("/at/two/console/links")).text
        assert (await console.get("/at/three/console/")).status == 404


async def test_an_action_is_done_by_the_node_with_the_key_of_its_context(pair: tuple[Site, Site]) -> None:
    a, b = pair
    async with opened(access("one", port_of(a)), access("two", port_of(b))) as console:
        asked = await console.get("/at/one/console/do/links.pause?group=edge&peer=b")
        assert asked.heading == "Pause the link to b?"
        done = await console.browser.post(
            "/at/one/console/do/links.pause", group="edge", peer="b", asked="1", back="/at/one/console/links"
        )
        assert done.url.startswith("/at/one/console/links")
        assert (await a.ask("links.status", group="edge"))["outbound"][0]["state"] == "paused"
        assert (await b.ask("links.status", group="edge"))["outbound"][0]["state"] != "paused"


async def test_a_form_that_is_sent_twice_is_done_once(pair: tuple[Site, Site]) -> None:
    async with opened(access("one", port_of(pair[0]))) as console:
        asked = await console.get("/at/one/console/do/links.pause?group=edge&peer=b")
        fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', asked.text))
        for _ in range(2):
            assert (await console.browser.post("/at/one/console/do/links.pause", **fields)).status == 200
        rows = (await pair[0].ask("actions.list"))["actions"]
        assert [row["operation"] for row in rows].count("links.pause") == 1


async def test_a_form_of_a_topic_that_is_sent_twice_is_done_once(pair: tuple[Site, Site]) -> None:
    async with opened(access("one", port_of(pair[0]))) as console:
        asked = await console.get("/at/one/console/do/topics.create")
        form = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', asked.text))
        for _ in range(2):
            given = form | {"topic": "orders", "type": "log"}
            done = await console.browser.post("/at/one/console/do/topics.create", **given)
            assert "The topic is created." in done.text
        asked = await console.get("/at/one/console/do/topics.delete?topic=orders")
        form = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', asked.text))
        for _ in range(2):
            done = await console.browser.post("/at/one/console/do/topics.delete", **form)
            assert "The topic is deleted." in done.text
        rows = (await pair[0].ask("actions.list"))["actions"]
        assert [row["operation"] for row in rows] == ["DELETE /v0/topics/{topic}", "PUT /v0/topics/{topic}"]


async def test_what_a_key_may_not_do_has_no_button_and_is_refused(pair: tuple[Site, Site]) -> None:
    async with opened(access("one", port_of(pair[0]), "readkey-readkey")) as console:
        assert "do/links.pause" not in (await console.get("/at/one/console/links/edge/b")).text
        refused = await console.browser.post("/at/one/console/do/links.pause", group="edge", peer="b", asked="1")
        assert refused.status == 403
        assert (await console.get("/at/one/console/keys")).status == 403


async def test_a_node_that_refuses_the_key_is_not_called_silent(pair: tuple[Site, Site]) -> None:
    async with opened(access("one", port_of(pair[0]), "an-unknown-key")) as console:

        async def refused() -> bool:
            row = row_of(await console.get("/console/"), "one")
            return "refused" in row and "this key is not known" in row

        await until(refused, "the page to show the refusal")
        page = await console.get("/at/one/console/links")
        assert (page.status, page.heading) == (401, "The node refuses the key")
        advice = (await console.get("/console/nodes/one")).text.partition('id="todo"')[2]
        assert "routerctl key create" in advice
        assert "routerd-eventd serve" not in advice, "it runs"


async def test_the_link_opens_one_browser_once(pair: tuple[Site, Site]) -> None:
    async with opened(access("one", port_of(pair[0])), enter=False) as console:
        other = Browser(console.session, int(console.browser.host.partition(":")[2]))
        assert (await other.get("/console/")).status == 401
        assert (await other.get("/at/one/console/links")).status == 401
        refused = await other.get("/console/sign-in?token=wrong")
        assert refused.status == 403
        for page in (await other.get("/console/"), refused, await other.post("/at/one/console/do/links.resume")):
            assert "Open the address that routerctl console has printed" in page.text
            assert "Sign in" not in page.text, "a button that leads back to the same page"
        assert (await other.get("/console/")).heading == "Open the printed link"
        assert (await console.get(console.link)).heading == "Nodes"
        assert (await other.get(console.link)).status == 403
        assert (await console.get(console.link)).heading == "Nodes", "the same browser may open it again"
        assert (await console.get("/at/one/console/links")).status == 200


async def test_a_preview_of_the_link_does_not_use_it_up_and_gets_no_way_in(pair: tuple[Site, Site]) -> None:
    async with opened(access("one", port_of(pair[0])), enter=False) as console:
        preview = Browser(console.session, int(console.browser.host.partition(":")[2]))
        assert (await preview.get(console.link, follow=False)).status == 303
        assert (await console.get(console.link)).heading == "Nodes"
        assert (await preview.get("/console/")).status == 401
        assert (await preview.get(console.link)).status == 403


async def test_a_node_that_begins_to_refuse_is_shown_with_the_age_of_its_figures_and_as_refused_on_find(
    pair: tuple[Site, Site],
) -> None:
    a, b = pair
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session, AsyncExitStack() as stack:
        there = Browser(session, port_of(b))
        await there.sign_in(KEY)
        made = await there.post("/console/do/keys.create", name="operator", access="read", asked="yes")
        (key,) = re.findall(r"evk_[\w-]+", made.text)
        console = await stack.enter_async_context(opened(access("one", port_of(a)), access("two", port_of(b), key)))

        async def shows(text: str) -> bool:
            return text in row_of(await console.get("/console/"), "two")

        await until(lambda: shows("running"), "the links of the node to be shown")
        assert not await shows(" ago: ")
        await there.post("/console/do/keys.revoke", name="operator", asked="yes", then="revoke")
        await until(lambda: shows("refused"), "the page to show the refusal")
        assert await shows(" ago: ")
        assert not await shows("s-running"), "what it said last does not look as if it were so now"
        page = await console.get("/console/events?id=x")
        assert "s-refused" in page.text
        assert "s-silent" not in page.text


async def test_only_pages_of_this_machine_under_its_own_name_are_answered(pair: tuple[Site, Site]) -> None:
    async with opened(access("one", port_of(pair[0]))) as console:
        browser = console.browser
        assert (await browser.get("/console/", Host="rebound.example")).status == 403
        assert (await browser.get("/console/", Origin="http://127.0.0.1:1")).status == 403
        form = {"group": "edge", "peer": "b", "asked": "1"}
        foreign = ("Origin", "http://127.0.0.1:1"), ("Sec-Fetch-Site", "same-site"), ("Origin", "null")
        for headers in ({}, *({name: value} for name, value in foreign)):
            told = await browser.post("/at/one/console/do/links.pause", headers=headers, **form)
            assert told.status == 403, headers
        assert (await pair[0].ask("links.status", group="edge"))["outbound"][0]["state"] != "paused"


async def test_a_node_that_stops_is_shown_and_the_others_go_on_until_it_is_back(pair: tuple[Site, Site]) -> None:
    a, b = pair
    port = port_of(b)
    async with opened(access("one", port_of(a)), access("two", port)) as console:

        async def shows(text: str) -> bool:
            return text in row_of(await console.get("/console/"), "two")

        await until(lambda: shows(">yes<"), "the second node to answer")
        await until(lambda: shows("running"), "its links to be shown")
        await b.stop()
        await until(lambda: shows("silent"), "the page to say that it does not answer")
        page = await console.get("/console/")
        assert ">yes<" in row_of(page, "one")
        assert re.search(r'<a id="m-b" class="site [^"]*r-bad"', page.text), "the map shows it, too"
        assert 'href="/console/nodes/two"' in row_of(page, "two"), "its own pages would be a dead end"
        assert 's-running">' not in row_of(page, "two")
        refused = await console.get("/at/two/console/links")
        assert (refused.status, 'href="/console/nodes/two"' in refused.text) == (503, True)
        known = await console.get("/console/nodes/two")
        assert (known.status, known.heading) == (200, "two")
        report = known.text.partition('<tr id="r-edge-one">')[2].partition("</tr>")[0]
        assert 'href="/at/one/console/links/edge/b"' in report
        assert "What to do" in known.text
        assert (await console.get("/console/nodes/none")).status == 404
        assert (await console.get("/at/one/console/links")).status == 200
        assert 'data-live="yes"' in refused.text
        async with follow(console, "/at/two/console", "/at/two/console/links") as stream:
            assert (await stream.content.readline()).startswith(b"event: trouble")
            await b.start(api_keys=KEYS, api_listen=f"127.0.0.1:{port}")
            while not (await stream.content.readline()).startswith(b"event: view"):
                assert not stream.content.at_eof(), "the page of the node that is back"
        await until(lambda: shows(">yes<"), "the second node to answer again")
        assert (await console.get("/at/two/console/links")).status == 200


async def test_a_server_that_is_no_node_is_unreadable_and_its_events_are_not_called_none() -> None:
    async with test_utils.TestServer(web.Application()) as server, opened(access("one", server.port or 0)) as console:

        async def unreadable() -> bool:
            return "s-unreadable" in row_of(await console.get("/console/"), "one")

        await until(unreadable, "the page to say that the node cannot be read")
        row = row_of(await console.get("/console/"), "one")
        assert "s-refused" not in row
        assert '<td class="n">–</td>' in row
        assert "is not a node" in (await console.get("/console/nodes/one")).text


async def test_dead_letters_of_a_node_need_attention_on_the_page_of_all_nodes(pair: tuple[Site, Site]) -> None:
    await park(pair[0], 2)
    async with opened(access("one", port_of(pair[0])), access("two", port_of(pair[1]))) as console:

        async def named() -> bool:
            row = row_of(await console.get("/console/"), "one")
            return 'href="/at/one/console/dead-letters">2 dead letters</a>' in row

        await until(named, "the dead letters to be shown")
        assert "dead letter" not in row_of(await console.get("/console/"), "two")


async def test_a_silent_node_is_shown_as_such_and_delays_no_other(pair: tuple[Site, Site]) -> None:
    async with silent_server() as port, opened(access("one", port_of(pair[0])), access("mute", port)) as console:
        clock = SystemClock()

        async def shows() -> bool:
            begun = clock.monotonic()
            page = await console.get("/console/")
            assert clock.monotonic() - begun < SILENCE_SECONDS, "the page does not wait for the silent node"
            return "silent" in row_of(page, "mute") and ">yes<" in row_of(page, "one")

        await until(shows, "the page to say that the node is silent")
        told = await console.get("/at/mute/console/")
        assert (told.status, "mute does not answer" in told.text) == (503, True)


async def test_an_event_is_found_at_all_nodes_with_its_way(pair: tuple[Site, Site]) -> None:
    a, b = pair
    await a.ask("events.emit", group="edge", events=[{"id": "e<1>", "type": "x.y", "subject": "s"}])

    async def arrived() -> bool:
        return bool((await b.ask("events.list", group="edge"))["events"])

    await until(arrived, "the event to arrive")
    async with opened(access("one", port_of(a)), access("two", port_of(b)), access("gone", 1)) as console:
        page = await console.get("/console/events?id=e%3C1%3E")
        ways = re.findall(r'<ol class="way">(.*?)</ol>', page.text)
        assert [re.findall(r"<li[^>]*>(.*?)</li>", way) for way in ways] == [["a"], ["a", "b"]]
        assert "/at/two/console/events/edge/e%3C1%3E" in page.text
        assert "e&lt;1&gt;" in page.text
        assert "gone does not answer" in page.text
        assert "No node that answers" in (await console.get("/console/events?id=other")).text
        assert (await console.get("/console/events")).heading == "Find an event"
        assert 'action="/console/events"' in (await console.get("/at/one/console/links")).text


async def test_dead_letters_of_all_nodes_are_counted_by_reason_the_most_first(pair: tuple[Site, Site]) -> None:
    a, b = pair
    async with opened(access("one", port_of(a)), access("two", port_of(b)), access("gone", 1)) as console:
        page = await console.get("/console/dead-letters")
        assert "No node that answers has dead letters." in page.text
        assert "gone does not answer" in page.text
        await park(a, 2)
        page = await console.get("/console/dead-letters")
        found = re.search(r'href="(/at/one/console/dead-letters\?[^"]+)">loop</a>', page.text)
        assert found is not None
        assert '<td class="n hot">2</td>' in page.text
        there = await console.get(unescape(found[1]))
        assert (there.heading, there.text.count('<tr id="d-')) == ("Dead letters", 2)


def follow(console: Opened, base: str, view: str) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
    """Open the stream of a page, as its script does."""
    browser = console.browser
    cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    return console.session.get(f"http://{browser.host}{base}/stream?view={view}", headers={"Cookie": cookies})


async def test_a_live_page_of_a_node_is_streamed(pair: tuple[Site, Site]) -> None:
    async with opened(access("one", port_of(pair[0]))) as console:
        for base, view in ("/at/one/console", "/at/one/console/links"), ("/console", "/console/"):
            async with follow(console, base, view) as stream:
                assert (await stream.content.readline()).startswith(b"event: view")


async def test_the_switcher_shows_colours_and_what_is_protected(pair: tuple[Site, Site]) -> None:
    nodes = access("one", port_of(pair[0]), colour="red", protected=True), access("two", 1)
    async with opened(*nodes) as console:
        text = (await console.get("/at/one/console/links")).text
        switcher = re.search(r'<details class="switcher">.*?</details>', text, re.S)
        assert switcher is not None
        assert 't-red" aria-hidden="true"></span>one <span class="quiet">protected' in switcher[0]
        assert 'href="/at/two/console/"' in switcher[0]


async def test_keys_reach_no_page_no_address_and_no_log(
    pair: tuple[Site, Site], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    lame = NodeAccess(NodeOptions("lame", "http://x", problem="key file: No such file"), None)
    async with opened(access("one", port_of(pair[0])), access("gone", 1), lame) as console:
        for path in ("/console/", "/at/one/console/", "/at/one/console/keys", "/at/gone/console/", "/at/lame/console/"):
            page = await console.get(path)
            assert KEY not in page.text + page.url + str(page.headers), path
        assert "key file: No such file" in page.text
        assert page.status == 503
    assert KEY not in caplog.text


HOSTILE_ANSWERS = (
    b'{"groups": [1]}',
    b'{"groups": [{"group": "edge", "stored": true}], "event": {}}',
    b'{"groups": [{"group": "\\ud800", "stored": false, "kind": "peer", "owner": "\\ud800", "topic": "", "reason":'
    b' "\\udc00", "count": 1, "exact": true, "events": 1, "links": {}}]}',
    b'{"groups": [{"group": "edge", "stored": false, "count": NaN}]}',
    b'{"groups": ' + b"[" * 5000 + b"]" * 5000 + b"}",
)


@pytest.mark.parametrize("content", HOSTILE_ANSWERS, ids=range(len(HOSTILE_ANSWERS)))
async def test_no_answer_of_a_node_breaks_the_pages_of_all_nodes(content: bytes) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=content, content_type="application/json")

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", answer)
    async with test_utils.TestServer(app) as server, opened(access("one", server.port or 0)) as console:
        for path in ("/console/", "/console/events?id=e1", "/console/dead-letters"):
            assert (await console.get(path)).status == 200, path


async def test_a_name_with_which_several_addresses_answer_is_shown_as_a_contradiction(pair: tuple[Site, Site]) -> None:
    port = port_of(pair[0])
    other = NodeAccess(
        NodeOptions("other", f"http://localhost:{port}"), Connection(f"http://localhost:{port}", KEY, retry=ONCE)
    )
    async with opened(access("one", port), other, access("two", port_of(pair[1]))) as console:
        said = f"Several addresses answer as a: one (http://127.0.0.1:{port}), other (http://localhost:{port})."

        async def is_shown() -> bool:
            return said in (await console.get("/console/")).text

        await until(is_shown, "the contradiction to be shown")
        assert "answer as b" not in (await console.get("/console/")).text


async def test_an_address_that_leads_nowhere_is_answered_with_a_page() -> None:
    async with opened(access("a", 1)) as console:
        for path in ("/at/nosuch/", "/at/nosuch/console/", "/at/a/other", "/nosuch"):
            answer = await console.get(path)
            assert (answer.status, answer.heading) == (404, "Not found"), path
            assert 'rel="stylesheet"' in answer.text
        assert (await console.get("/at/a")).url == "/at/a/console/"
    async with opened(access("a", 1), enter=False) as console:
        assert "Switcher" not in (stranger := await console.get("/at/nosuch/")).text
        assert (stranger.status, "All nodes" in stranger.text) == (404, False)
