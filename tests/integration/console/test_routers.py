"""Routers in the console: drawn, checked, created with what the check predicts, changed and deleted."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from tests.integration.console.conftest import MakeBrowser
from tests.integration.console.test_signing_in import ADMIN, EDGE, READ
from tests.integration.console.test_topics import signed_in
from tests.support.console_pages import Answer, Browser
from tests.support.sites import Site


def fields(text: str) -> dict[str, str]:
    """Return the hidden fields of a form."""
    found = re.findall('type="hidden" name="([^"]*)" value="([^"]*)"', text)
    return {name: unescape(value) for name, value in found}


async def create(one: Browser, source: str, dest: str, **options: Any) -> Answer:
    """Fill in the form of a new router, and confirm what is shown then."""
    given = {"source": source, "dest": dest, "back": "/console/routers"} | options
    asked = await one.post("/console/do/routers.create", asked="yes", **given)
    assert asked.heading == f"Create the router {source}-&gt;{dest}?"
    return await one.post("/console/do/routers.create", **fields(asked.text) | given)


async def test_a_router_is_created_after_the_check_was_shown(site: Site, browser: MakeBrowser) -> None:
    one = await signed_in(site, browser)
    assert "No router yet." in (await one.get("/console/routers")).text
    assert (await one.get("/console/do/routers.create")).heading == "Create a router"
    form = {"source": "a", "dest": "b", "asked": "yes"}
    asked = await one.post("/console/do/routers.create", **form)
    assert "The check of the graph finds no new problem." in asked.text
    assert (await site.ask("topology.show"))["routers"] == [], "nothing is done before the visitor has seen it"
    done = await create(one, "a", "b", filter="eu:*")
    assert "The router is created." in done.text
    [router] = (await site.ask("topology.show"))["routers"]
    assert (router["router"], router["filter"]) == ("a->b", ["tag", "Glob", "eu:*"])


async def test_the_graph_is_drawn_with_lines_that_lead_to_routers(site: Site, browser: MakeBrowser) -> None:
    one = await signed_in(site, browser)
    await create(one, "a", "b")
    await create(one, "b", "c")
    shown = (await one.get("/console/routers")).text
    assert re.findall('<a id="g-([^"]*)"', shown) == ["a~b", "b~c", "a", "b", "c"]
    assert 'href="/console/routers/a-%3Eb"' in shown
    assert "No record returns to its topic" in shown
    filtered = (await one.get("/console/routers?q=c")).text
    assert re.findall('<tr id="r-([^"]*)"', filtered) == ["b-&gt;c"]


async def test_what_a_node_would_refuse_is_not_created(site: Site, browser: MakeBrowser) -> None:
    one = await signed_in(site, browser)
    await create(one, "a", "b")
    refused = await create(one, "b", "a")
    assert refused.heading == "Create the router b-&gt;a?"
    assert "the new router would be refused" in refused.text
    assert len((await site.ask("topology.show"))["routers"]) == 1


async def test_a_loop_is_shown_before_it_is_made_and_then_on_the_page(site: Site, browser: MakeBrowser) -> None:
    one = await signed_in(site, browser)
    await create(one, "a", "b", allow_cycle="yes")
    form = {"source": "b", "dest": "a", "allow_cycle": "yes", "back": "/console/routers"}
    asked = await one.post("/console/do/routers.create", asked="yes", **form)
    assert "a =&gt; a: loop, a record written to the topic returns" in asked.text
    done = await one.post("/console/do/routers.create", **fields(asked.text) | form)
    assert "The router is created." in done.text
    assert '<li class="fail"><strong>a =&gt; a</strong>' in done.text
    assert 'class="site r-bad"' in done.text


async def test_a_change_keeps_the_options_that_it_does_not_name(site: Site, browser: MakeBrowser) -> None:
    one = await signed_in(site, browser)
    await create(one, "a", "b", filter="eu:*", preserve_node="no")
    asked = await one.get("/console/do/routers.change?router=a-%3Eb&seen=x&back=/console/routers")
    assert 'value="tag Glob eu:*"' in asked.text
    assert re.search(r'name="preserve_node">.*?<option selected>no', asked.text)
    form = {"fan_in": "yes", "filter": "tag Glob eu:*", "preserve_node": "no", "preserve_tag": "yes"}
    checked = await one.post("/console/do/routers.change", **fields(asked.text) | form)
    assert "The router is changed." not in checked.text, "the check of the change was not shown yet"
    done = await one.post("/console/do/routers.change", **fields(checked.text) | form)
    assert "The router is changed." in done.text
    shown = (await one.get("/console/routers/a-%3Eb")).text
    assert "<dt>Keeps identities</dt><dd>yes</dd>" in shown
    assert ("<dt>Keeps the node</dt><dd>no</dd>" in shown, "tag Glob eu:*" in shown) == (True, True)


async def test_a_change_of_a_router_that_was_changed_meanwhile_asks_again(site: Site, browser: MakeBrowser) -> None:
    one = await signed_in(site, browser)
    await create(one, "a", "b")
    url = "/console/do/routers.change"
    form = fields((await one.get(f"{url}?router=a-%3Eb&back=/console/routers")).text)
    own = {"fan_in": "no", "allow_cycle": "no", "preserve_node": "yes", "preserve_tag": "yes"}
    own["guarantee"] = "at_least_once"
    assert "The router is changed." in (await one.post(url, **form | own, filter="eu:*")).text
    asked = await one.post(url, **form | own, filter="us:*")
    assert "The router was changed since this form was opened." in asked.text
    assert "Now it has Filter: tag Glob eu:*." in asked.text
    assert 'value="us:*"' in asked.text
    assert "The router is changed." in (await one.post(url, **fields(asked.text) | own, filter="us:*")).text
    [router] = (await site.ask("topology.show"))["routers"]
    assert router["filter"] == ["tag", "Glob", "us:*"]


async def test_a_router_is_deleted_after_a_question(site: Site, browser: MakeBrowser) -> None:
    one = await signed_in(site, browser)
    await create(one, "a", "b")
    asked = await one.get("/console/do/routers.delete?router=a-%3Eb&back=/console/routers")
    assert "Nothing more is copied from a to b." in asked.text
    assert "The router is deleted." in (await one.post("/console/do/routers.delete", **fields(asked.text))).text
    assert (await one.get("/console/routers/a-%3Eb")).status == 404


async def test_a_key_sees_only_routers_between_its_topics_and_a_reader_no_buttons(
    site: Site, browser: MakeBrowser
) -> None:
    one = await signed_in(site, browser)
    await create(one, "a", "b")
    await create(one, "edge.a", "edge.b")
    shown = (await (await signed_in(site, browser, EDGE)).get("/console/routers")).text
    assert re.findall('<tr id="r-([^"]*)"', shown) == ["edge.a-&gt;edge.b"]
    reader = (await (await signed_in(site, browser, READ)).get("/console/routers")).text
    assert (reader.count('<tr id="r-'), "/console/do/" in reader) == (2, False)
    assert (await (await signed_in(site, browser, ADMIN)).get("/console/routers/a-%3Eb")).status == 200
