"""Forms that are sent twice, by a double click or by reloading the answer: done once, and answered alike."""

from __future__ import annotations

import asyncio
import re
from html import unescape

from tests.integration.console.conftest import MakeBrowser, actions_of
from tests.integration.console.test_signing_in import ADMIN, READ
from tests.support.console_pages import Answer, Browser
from tests.support.declared import peer
from tests.support.sites import Site

HOME = "/console/"


def fields_of(page: Answer, operation: str) -> dict[str, str]:
    """Return the hidden fields of the form of an action on a page."""
    form = page.text.partition(f'action="/console/do/{operation}"')[2].partition("</form>")[0]
    found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', form)
    return {name: unescape(value) for name, value in found}


async def ask(one: Browser, operation: str, **query: str) -> dict[str, str]:
    """Return the hidden fields of the question of an action."""
    given = "&".join(f"{name}={value}" for name, value in query.items())
    fields = fields_of(await one.get(f"/console/do/{operation}?{given}"), operation)
    assert fields["once"]
    return fields


async def test_a_form_that_is_sent_twice_is_done_once(site: Site, browser: MakeBrowser) -> None:
    await site.apply(peer("b", 1))
    one = browser(site)
    await one.sign_in(ADMIN)
    form = await ask(one, "links.pause", group="edge", peer="b", back="/console/links/edge/b")
    answers = await asyncio.gather(*(one.post("/console/do/links.pause", **form) for _ in range(3)))
    assert {answer.url for answer in answers} == {"/console/links/edge/b?done=links.pause"}
    await site.ask("links.resume", group="edge", peer="b")
    again = await one.post("/console/do/links.pause", **form)
    assert again.url == "/console/links/edge/b?done=links.pause"
    (link,) = (await site.ask("links.status", group="edge"))["outbound"]
    assert link["state"] != "paused"
    assert [row["operation"] for row in await actions_of(site)] == ["links.pause"]


async def test_buttons_have_a_key_of_their_page(site: Site, browser: MakeBrowser) -> None:
    await site.apply(peer("b", 1))
    one = browser(site)
    await one.sign_in(ADMIN)
    await site.ask("links.pause", group="edge", peer="b")
    form = fields_of(await one.get("/console/links/edge/b"), "links.resume")
    for _ in range(2):
        await one.post("/console/do/links.resume", **form)
        await site.ask("links.pause", group="edge", peer="b")
    assert len(await actions_of(site)) == 1
    other = fields_of(await one.get("/console/links/edge/b"), "links.resume")
    assert other["once"] != form["once"]
    await one.post("/console/do/links.resume", **other)
    assert len(await actions_of(site)) == 2


async def test_a_form_whose_object_is_gone_since_it_was_sent_shows_that_it_was_done(
    site: Site, browser: MakeBrowser
) -> None:
    one = browser(site)
    await one.sign_in(ADMIN)
    await site.ask("keys.create", name="ci", scopes=["look"])
    form = await ask(one, "keys.revoke", name="ci", back="/console/keys") | {"then": "remove it from the list"}
    for _ in range(2):
        done = await one.post("/console/do/keys.revoke", **form)
        assert (done.status, "The key is revoked." in done.text) == (200, True)
    other = await ask(one, "keys.create")
    assert (await one.post("/console/do/keys.revoke", **form | {"once": other["once"]})).status == 404


async def test_a_key_is_made_once_and_shown_once(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(ADMIN)
    form = await ask(one, "keys.create", back="/console/keys") | {"name": "ci", "access": "look"}
    made = await one.post("/console/do/keys.create", **form)
    again = await one.post("/console/do/keys.create", **form)
    assert (made.status, again.status) == (200, 409)
    assert "evk_" in made.text
    assert "evk_" not in again.text
    assert "its answer was not kept" in again.text
    await site.ask("keys.revoke", name="ci", forget=True)
    assert (await one.post("/console/do/keys.create", **form)).status == 409
    assert (await site.ask("keys.list"))["keys"] == []


async def test_an_event_is_emitted_once_and_its_page_is_shown(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(ADMIN)
    form = await ask(one, "events.emit", group="edge", back="/console/events") | {"type": "t", "payload": '{"a": "1"}'}
    first, again = [await one.post("/console/do/events.emit", **form) for _ in range(2)]
    assert (first.status, first.url) == (again.status, again.url)
    assert first.url.startswith("/console/events/edge/")
    assert "The event is stored." in first.text
    other = await one.post("/console/do/events.emit", **form | {"payload": '{"a": "2"}'})
    assert other.url not in (first.url, again.url)
    assert len((await site.ask("events.list", group="edge"))["events"]) == 2


async def test_what_failed_without_an_effect_is_done_when_it_is_sent_again(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(ADMIN)
    form = await ask(one, "keys.create", back="/console/keys") | {"name": "ci", "access": "look"}
    await site.ask("keys.create", name="ci", scopes=["look"])
    assert (await one.post("/console/do/keys.create", **form)).status == 409
    await site.ask("keys.revoke", name="ci", forget=True)
    assert "evk_" in (await one.post("/console/do/keys.create", **form)).text


async def test_the_key_of_another_visitor_is_not_known(site: Site, browser: MakeBrowser) -> None:
    await site.apply(peer("b", 1))
    one, other = browser(site), browser(site)
    await one.sign_in(ADMIN)
    await other.sign_in(READ)
    form = await ask(one, "links.pause", group="edge", peer="b", back=HOME)
    await one.post("/console/do/links.pause", **form)
    assert (await other.post("/console/do/links.pause", **form)).status == 403


async def test_what_is_done_to_topics_is_done_once(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(ADMIN)
    create = await ask(one, "topics.create", back="/console/topics") | {"topic": "orders", "type": "log"}
    for _ in range(2):
        assert "The topic is created." in (await one.post("/console/do/topics.create", **create)).text
    write = await ask(one, "topics.write", topic="orders", back="/console/topics/orders") | {"data": '{"item": 1}'}
    for _ in range(2):
        assert "The record is written." in (await one.post("/console/do/topics.write", **write)).text
    await one.post("/console/do/topics.write", **write | {"data": '{"item": 2}'})
    assert (await one.get("/console/do/topics.purge?topic=orders")).text.count("All 2 records") == 1
    delete = await ask(one, "topics.delete", topic="orders", back="/console/topics")
    for _ in range(2):
        done = await one.post("/console/do/topics.delete", **delete)
        assert (done.status, "The topic is deleted." in done.text) == (200, True)
    actions = [row["operation"] for row in await actions_of(site)]
    assert actions == ["DELETE /v0/topics/{topic}", "PUT /v0/topics/{topic}"]


async def test_a_question_shows_all_that_a_link_has_set(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in("adminkey-adminkey")
    asked = await one.get("/console/do/events.emit?group=edge&type=t&observedAt=2020-01-01T00:00:00Z&node=x")
    shown = dict(re.findall(r"<dt>(.*?)</dt><dd[^>]*>(.*?)</dd>", asked.text))
    hidden = set(re.findall(r'type="hidden" name="([^"]+)"', asked.text)) - {"back", "asked", "once"}
    assert hidden == {"group", "observedAt", "node"}
    assert set(shown) == {"observedAt", "node"}
    assert "stored in group edge" in asked.text, "a sentence says it"
    assert shown["node"] == "x"
