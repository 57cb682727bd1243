"""Events in the console: searched, found by id, shown with their course, emitted, sent again."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

from eventd.log.delivery.returned import StoreReturned
from eventd.log.history.refuted import RefutedRecord, keep_refuted
from eventd.store.rows.returned_events import ReturnedMark
from eventd.testing import draft, until
from tests.integration.console.conftest import MakeBrowser
from tests.integration.console.test_signing_in import ADMIN, READ
from tests.support.declared import peer
from tests.support.sites import Site

HOSTILE = '<script>alert("1")</script>\u202e' + "x" * 200


async def test_events_are_searched_page_by_page(site: Site, browser: MakeBrowser) -> None:
    await site.emit(*[f"e{number:03}" for number in range(60)])
    one = browser(site)
    await one.sign_in(READ)
    first = await one.get("/console/events?group=edge")
    assert first.text.count('<tr id="e-') == 50
    assert "e059" in first.text
    assert "e009" not in first.text
    url = first.text.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
    second = await one.get(url)
    assert second.text.count('<tr id="e-') == 10
    assert "e009" in second.text
    assert 'rel="next"' not in second.text


async def test_filters_are_those_of_the_search(site: Site, browser: MakeBrowser) -> None:
    await site.emit("red", subject="10.0.0.1", payload={"metric": "1"})
    await site.emit("blue", subject="10.0.1.1", payload={"metric": "2"})
    one = browser(site)
    await one.sign_in(READ)
    for query in ("subject_prefix=10.0.0.", "payload=metric%3D1", "id=red&group=edge"):
        text = (await one.get(f"/console/events?group=edge&{query}")).text
        assert ("/console/events/edge/red" in text, "/console/events/edge/blue" in text) == (True, False), query
    unfit = await one.get("/console/events?group=edge&since=soon&type=t")
    assert (unfit.status, unfit.heading) == (400, "Events")
    assert "since: &#39;soon&#39; is not a time" in unfit.text
    assert 'name="since" value="soon"' in unfit.text, "what was typed can be corrected"
    assert "/console/events/edge/red" in (await one.get("/console/events?group=edge&since=2026-01-01")).text
    lost = await one.get("/console/events?group=nobody")
    assert (lost.status, lost.heading) == (404, "Events")


async def test_an_id_leads_to_its_event(site: Site, browser: MakeBrowser) -> None:
    await site.emit("e1", payload={"count": "12345678901234567890.10"})
    one = browser(site)
    await one.sign_in(READ)
    shown = await one.get("/console/events?id=e1")
    assert (shown.url, shown.heading) == ("/console/events/edge/e1", "e1")
    assert "12345678901234567890.10" in shown.text
    missing = await one.get("/console/events?id=nobody")
    assert (missing.status, missing.heading) == (404, "Not found")


async def test_an_event_shows_each_delivery_and_is_sent_again(site: Site, browser: MakeBrowser) -> None:
    await site.apply(peer("b", 1))
    await site.emit("e1")
    one = browser(site)
    await one.sign_in(ADMIN)
    shown = await one.get("/console/events/edge/e1")
    assert 'href="/console/links/edge/b"' in shown.text
    assert '<tr id="d-b">' in shown.text
    asked = await one.get("/console/do/deliveries.redeliver?group=edge&peer=b&ids=e1&back=/console/events/edge/e1")
    assert (asked.status, asked.heading) == (200, "Send again to b?")
    assert "Nothing was changed: event e1 cannot be sent again" in asked.text
    assert "/console/do/deliveries.redeliver" not in shown.text, "only what was delivered can be sent again"


async def test_an_event_that_came_back_shows_what_names_it(site: Site, browser: MakeBrowser) -> None:
    log = site.running.log
    mark = ReturnedMark("b", 1, "", "the peer has no receipt")
    drafts = [draft("named", node="a"), draft("confirmed", node="a"), draft("doubtful", node="a")]
    named = mark._replace(batch_id="batch-1", unproven="")
    marks = [named, named._replace(confirmed=1), mark]
    await log.submit(StoreReturned(await log.topic("group:edge"), drafts, marks, ceiling=None))
    one = browser(site)
    await one.sign_in(READ)
    found = {each: (await one.get(f"/console/events/edge/{each}")).text for each in ("named", "confirmed", "doubtful")}
    assert all("<dt>Returned by</dt><dd>b</dd>" in text for text in found.values())
    words = "No receipt of the peer names this event: the peer has no receipt."
    assert [name for name, text in found.items() if words in text] == ["doubtful"]
    words = "the peer&#39;s receipt of batch batch-1"
    assert [name for name, text in found.items() if words in text] == ["named", "confirmed"]
    words = "confirmed by this node&#39;s own ledger"
    assert [name for name, text in found.items() if words in text] == ["confirmed"]


async def test_an_event_with_a_blank_in_its_id_is_sent_to_a_peer_again(
    site: Site, browser: MakeBrowser, tmp_path: Path
) -> None:
    far = await Site("far", tmp_path).start()
    await far.join(site)
    await site.apply(peer("far", far.port))
    await site.emit("e 3")

    async def delivered() -> bool:
        return (await site.deliveries())["e 3", "far"] == "delivered"

    await until(delivered, "the event to be delivered")
    one = browser(site)
    await one.sign_in(ADMIN)
    page = await one.get("/console/events/edge/e%203")
    (way,) = re.findall(r'href="(/console/do/deliveries.redeliver[^"]*)"', page.text)
    asked = await one.get(unescape(way))
    assert (asked.status, asked.heading) == (200, "Send again to far?")
    fields = dict(re.findall('type="hidden" name="([^"]*)" value="([^"]*)"', asked.text))
    done = await one.post("/console/do/deliveries.redeliver", **fields)
    assert "The events are sent again." in done.text
    choosing = await one.get("/console/do/deliveries.redeliver?group=edge&peer=far")
    assert 'name="since"' in choosing.text
    form = {"group": "edge", "peer": "far", "asked": "yes", "since": "1h"}
    asked = await one.post("/console/do/deliveries.redeliver", **form)
    assert (asked.heading, "sent to far again." in asked.text) == ("Send again to far?", True)
    await far.stop()


async def test_questions_without_their_object_say_where_to_choose_one(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(ADMIN)
    for name, hint in (("links.pause", "the page Links"), ("events.emit", "the page Events")):
        for answer in (await one.get(f"/console/do/{name}"), await one.post(f"/console/do/{name}", asked="yes")):
            assert (answer.status, hint in answer.text) == (404, True), name


async def test_a_payload_is_downloaded_as_it_is_stored(site: Site, browser: MakeBrowser) -> None:
    await site.emit("e1", payload={"a": "ü"})
    one = browser(site)
    await one.sign_in(READ)
    answer = await one.get("/console/events/edge/e1/payload")
    assert answer.text == '{"a":"ü"}'
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"].startswith("attachment;")


async def test_an_event_is_emitted_by_a_form(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(ADMIN)
    form = {"group": "edge", "asked": "yes", "type": "t", "subject": "s", "back": "/console/events?group=edge"}
    wrong = await one.post("/console/do/events.emit", payload="{", **form)
    assert (wrong.status, wrong.heading) == (400, "Emit an event")
    assert "the payload is not JSON" in wrong.text
    assert 'value="s"' in wrong.text, "what was typed stays"
    done = await one.post("/console/do/events.emit", payload='{"a": "1"}', **form)
    assert "The event is stored." in done.text
    (event,) = (await site.ask("events.list", group="edge"))["events"]
    assert (event["type"], event["subject"], event["payload"]) == ("t", "s", {"a": "1"})


async def test_hostile_names_are_text(site: Site, browser: MakeBrowser) -> None:
    await site.emit("e1", subject=HOSTILE, payload={HOSTILE: HOSTILE})
    one = browser(site)
    await one.sign_in(READ)
    for url in ("/console/events?group=edge", "/console/events/edge/e1"):
        text = (await one.get(url)).text
        assert "<script>alert" not in text
        assert "\u202e" not in text
        assert "&lt;script&gt;" in text


@pytest.mark.parametrize("name", [".", "..", "...", "%2e%2e", "a/.."])
async def test_a_page_of_an_event_is_reached_whatever_its_id_is(site: Site, browser: MakeBrowser, name: str) -> None:
    await site.emit(name)
    one = browser(site)
    await one.sign_in(READ)
    (way,) = re.findall(r'href="(/console/events/edge/[^"]+)"', (await one.get("/console/events?group=edge")).text)
    assert (await one.get(way)).heading == name


async def test_an_event_that_a_filter_keeps_back_says_so_with_the_resource_to_change(
    site: Site, browser: MakeBrowser
) -> None:
    await site.apply(peer("b", 1, types=["dns.*"]))
    await site.emit("e1")
    one = browser(site)
    await one.sign_in(READ)
    shown = await one.get("/console/events/edge/e1")
    row = shown.text.partition('<tr id="d-b">')[2].partition("</tr>")[0]
    assert "not meant for b: its filter takes only types dns.*" in row
    assert 'href="/console/resources/EventPeer/edge-b"' in row
    assert "Sends</dt>" in (await one.get("/console/links/edge/b")).text


async def test_a_refuted_event_is_marked_in_the_search_and_on_its_page(site: Site, browser: MakeBrowser) -> None:
    log = site.running.log
    topic = await log.topic("group:edge")
    appended = await log.append(topic, [draft("e1", group="edge", path="b,hub")])
    record = RefutedRecord(appended.positions[0], "e1", "eventd/edge/b/tree", 7, log.clock.now())
    await log.database.write(keep_refuted, topic, record)
    one = browser(site)
    await one.sign_in(READ)
    assert '<span class="state s-refuted">refuted</span>' in (await one.get("/console/events?group=edge")).text
    assert (
        "leaf 7 of the tree <code>eventd/edge/b/tree</code> is another event"
        in (await one.get("/console/events/edge/e1")).text
    )
