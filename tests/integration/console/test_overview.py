"""The overview with its map, and the charts of a link."""

from __future__ import annotations

import re
from html import unescape

from eventd.store.rows.links import StoredMark, write_mark
from eventd.testing import until
from tests.integration.console.conftest import KEYS, MakeBrowser
from tests.integration.console.test_signing_in import ADMIN, READ
from tests.support.declared import group, peer
from tests.support.sites import Site


async def test_the_map_has_a_line_and_a_row_for_a_link_and_both_lead_to_its_page(
    site: Site, browser: MakeBrowser
) -> None:
    await site.apply(peer("b", 1))
    one = browser(site)
    await one.sign_in(READ)
    page = await one.get("/console/")
    line = re.search(r'<a id="m-a~b" class="line [^"]*" href="([^"]+)" aria-label="From a to b: [^"]+"', page.text)
    assert line is not None
    assert line[1] == "/console/links/edge/b"
    assert '<tr id="l-a~b">' in page.text
    assert re.search(r'<a id="m-a" class="site own', page.text)
    assert "style=" not in page.text, "the policy refuses inline styles"


async def test_the_map_of_another_group_is_chosen_in_the_query(site: Site, browser: MakeBrowser) -> None:
    await site.apply(group("a", port=0, secret=site.secret, name="core"), peer("b", 1), peer("far", 1, group="core"))
    one = browser(site)
    await one.sign_in(READ)
    page = await one.get("/console/?group=edge")
    assert ('id="m-b"' in page.text, 'id="m-far"' in page.text) == (True, False)
    page = await one.get("/console/?group=core")
    assert ('id="m-b"' in page.text, 'id="m-far"' in page.text) == (False, True)


async def test_what_needs_attention_leads_to_the_page_of_its_link(site: Site, browser: MakeBrowser) -> None:
    await site.apply(peer("b", 1))
    await site.emit("e1")
    one = browser(site)
    await one.sign_in(READ)

    async def named() -> bool:
        problems = (await one.get("/console/")).text.partition('<ul class="problems">')[2].partition("</ul>")[0]
        return 'href="/console/links/edge/b"' in problems

    await until(named, "doctor to report the link")


async def test_the_page_of_a_link_that_cannot_send_says_what_to_do(site: Site, browser: MakeBrowser) -> None:
    await site.apply(peer("b", 1))
    await site.emit("e1")
    await site.in_state("b", "backing-off")
    (link,) = (await site.ask("links.status", group="edge"))["outbound"]
    assert link["remedy"]
    one = browser(site)
    await one.sign_in(READ)
    note = (await one.get("/console/links/edge/b")).text.partition('class="note bad"')[2].partition("</p>")[0]
    assert link["remedy"] in unescape(note)


async def test_the_page_of_a_link_has_charts_with_their_figures_and_longer_histories(
    site: Site, browser: MakeBrowser
) -> None:
    await site.stop()
    await site.start(api_keys=KEYS, console_metrics_url="https://metrics.example/d?group={group}&peer={peer}")
    await site.apply(peer("b", 1))
    await site.emit("e1")
    one = browser(site)
    await one.sign_in(READ)
    page = await one.get("/console/links/edge/b")
    assert 'href="https://metrics.example/d?group=edge&amp;peer=b"' in page.text

    async def drawn() -> bool:
        text = (await one.get("/console/links/edge/b")).text
        return 'aria-label="Lag: now ' in text and "Figures by the minute" in text

    await until(drawn, "the first samples of the link", seconds=25)


async def test_the_page_of_a_node_that_only_sends_shows_this_half_and_how_to_get_the_other(
    site: Site, browser: MakeBrowser
) -> None:
    topic = await site.running.log.topic("group:edge")
    await site.running.log.database.write(write_mark, topic, "gone", StoredMark("epoch", 1, 0, 9), 1)
    one = browser(site)
    await one.sign_in(ADMIN)
    assert 'href="/console/links/edge/gone"' in (await one.get("/console/")).text, "the map leads there"
    page = await one.get("/console/links/edge/gone")
    assert "it has no EventPeer for it" in page.text
    assert "<dt>Received up to</dt><dd>9</dd>" in page.text
    assert "links.pause" not in page.text
    assert (await one.get("/console/do/links.pause?group=edge&peer=gone")).status == 404
    assert (await one.get("/console/links/edge/nobody")).status == 404
