"""Resources in the console: listed, described, applied after their diff was shown, deleted."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from aiohttp import ClientSession

from tests.integration.console.conftest import MakeBrowser
from tests.integration.console.test_signing_in import ADMIN, READ
from tests.support.declared import declare, peer
from tests.support.ports import free_port
from tests.support.sites import Site

TOPIC = "apiVersion: topic.routerd.net/v1alpha1\nkind: Topic\nmetadata: {name: orders}\nspec: {capRecords: 5}\n"


async def test_resources_are_listed_and_described(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(READ)
    listed = await one.get("/console/resources")
    assert 'href="/console/resources/EventGroup/edge"' in listed.text
    assert "/console/do/" not in listed.text
    shown = await one.get("/console/resources/EventGroup/edge")
    assert (shown.status, shown.heading) == (200, "edge")
    assert "&#34;nodeName&#34;: &#34;a&#34;" in shown.text
    for missing in ("EventGroup/none", "Nothing/edge"):
        assert (await one.get(f"/console/resources/{missing}")).status in (400, 404)


async def test_resources_are_applied_only_after_their_diff_was_shown(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(ADMIN)
    form: dict[str, Any] = {"asked": "yes", "back": "/console/resources"}
    wrong = await one.post("/console/do/resources.apply", text="kind: <b>", **form)
    (box,) = re.findall('<p class="note bad" role="alert">(.*?)</p>', wrong.text)
    assert (wrong.status, box.startswith("Nothing was applied"), "<br>" in box, r"\n" in box) == (
        422,
        True,
        True,
        False,
    )
    text = "# first\r\n" + declare(peer("b", 1)).replace("\n", "\r\n")
    asked = await one.post("/console/do/resources.apply", text=text, **form)
    assert asked.headers["Cache-Control"] == "private, no-cache", "the browser shows it again on the way back"
    assert asked.heading == "Apply these changes?"
    assert "EventPeer edge-b will be created." in asked.text
    assert not (await site.ask("resources.list", kind="EventPeer"))["resources"]
    found = re.search('name="seen" value="(.*?)"', asked.text)
    assert found
    other = await one.post("/console/do/resources.apply", text=declare(peer("c", 1)), seen=found[1], **form)
    assert other.heading == "Apply these changes?", "another text is shown first"
    typed = re.search("<textarea.*?>(.*?)</textarea>", asked.text, re.DOTALL)
    assert typed
    text = unescape(typed[1])
    done = await one.post("/console/do/resources.apply", text=text, seen=found[1], **form)
    assert "The resources are applied." in done.text
    (stored,) = (await site.ask("resources.list", kind="EventPeer"))["resources"]
    assert stored["metadata"]["name"] == "edge-b"


def _form_of(text: str) -> dict[str, str]:
    """Return the hidden fields and the text of the form of a question."""
    form = {name: unescape(value) for name, value in re.findall('type="hidden" name="(.*?)" value="(.*?)"', text)}
    written = re.search("<textarea.*?>\n(.*?)</textarea>", text, re.DOTALL)
    assert written
    return form | {"text": unescape(written[1])}


async def test_a_resource_is_changed_in_the_form_that_its_page_opens(site: Site, browser: MakeBrowser) -> None:
    await site.apply(peer("b", 1))
    one = browser(site)
    await one.sign_in(ADMIN)
    page = await one.get("/console/resources/EventPeer/edge-b")
    way = re.search('href="(/console/do/resources.apply[^"]*)"', page.text)
    assert way
    form = _form_of((await one.get(unescape(way[1]))).text)
    assert "nodeName: b" in form["text"]
    same = await one.post("/console/do/resources.apply", **form)
    assert "there is nothing to apply" in same.text
    renamed = form["text"].replace("edge-b", "edge-c").replace("nodeName: b", "nodeName: c")
    other = await one.post("/console/do/resources.apply", **form | {"text": renamed})
    assert "the text must hold EventPeer/edge-b" in unescape(other.text)
    changed = form["text"].replace("http://127.0.0.1:1", "http://127.0.0.1:2")
    asked = await one.post("/console/do/resources.apply", **form | {"text": changed})
    assert (asked.heading, "EventPeer edge-b will be changed." in asked.text) == ("Apply this change?", True)
    assert re.search("<del>-[^<]*:1</del>\n<ins>[+][^<]*:2</ins>", unescape(asked.text))
    link = (await one.get("/console/links/edge/b")).text
    assert unescape(way[1]).partition("&kind")[2] in unescape(link), "the page of the link leads to the same form"
    assert 'href="/console/resources/EventPeer/edge-b"' in link
    done = await one.post("/console/do/resources.apply", **_form_of(asked.text))
    assert "The resources are applied." in done.text
    assert done.url.startswith("/console/resources/EventPeer/edge-b")
    stored = await site.ask("resources.get", kind="EventPeer", name="edge-b")
    assert stored["spec"]["endpoint"] == "http://127.0.0.1:2"


async def test_a_change_says_that_another_was_applied_meanwhile(site: Site, browser: MakeBrowser) -> None:
    await site.apply(peer("b", 1))
    one = browser(site)
    await one.sign_in(ADMIN)
    form = _form_of((await one.get("/console/do/resources.apply?kind=EventPeer&name=edge-b")).text)
    form["text"] = form["text"].replace("http://127.0.0.1:1", "http://127.0.0.1:2")
    asked = _form_of((await one.post("/console/do/resources.apply", **form)).text)
    await site.apply(peer("b", 3))
    mistake = asked | {"text": asked["text"].replace("groupRef: edge", "groupRef: none")}
    asked = _form_of((await one.post("/console/do/resources.apply", **mistake)).text) | {"text": asked["text"]}
    conflict = await one.post("/console/do/resources.apply", **asked)
    assert "Conflict: EventPeer edge-b has changed meanwhile" in conflict.text
    assert "http://127.0.0.1:3" in conflict.text, "the difference is that to what is stored now"
    done = await one.post("/console/do/resources.apply", **_form_of(conflict.text))
    assert "The resources are applied." in done.text
    await site.ask("resources.delete", kind="EventPeer", name="edge-b")
    gone = await one.post("/console/do/resources.apply", **asked | {"once": "another"})
    assert "It was deleted meanwhile" in gone.text
    assert "http://127.0.0.1:2" in gone.text, "what was written is not lost"


async def test_a_topic_of_the_api_is_adopted_only_if_the_form_says_so(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(ADMIN)
    async with ClientSession(headers={"Authorization": f"Bearer {ADMIN}"}) as session:
        assert (await session.put(f"http://{one.host}/v0/topics/orders", json={})).status == 201
    form: dict[str, Any] = {"asked": "yes", "back": "/console/resources", "text": TOPIC}
    refused = await one.post("/console/do/resources.apply", **form)
    assert "Nothing was applied: Topic/orders exists already" in unescape(refused.text)
    assert '<select id="f-adopt" name="adopt">' in refused.text
    asked = await one.post("/console/do/resources.apply", adopt="yes", **form)
    assert "Topic orders will be created, and will take over what was made through the API; lower limits" in asked.text
    found = re.search('name="seen" value="(.*?)"', asked.text)
    assert found
    other = await one.post("/console/do/resources.apply", adopt="no", seen=found[1], **form)
    assert "Nothing was applied" in other.text
    done = await one.post("/console/do/resources.apply", adopt="yes", seen=found[1], **form)
    assert "The resources are applied." in done.text
    (stored,) = (await site.ask("resources.list", kind="Topic"))["resources"]
    assert stored["metadata"]["name"] == "orders"
    page = (await one.get("/console/topics/orders")).text
    assert 'href="/console/do/resources.apply?' in page, "what only the resource changes is changed there"
    assert "/console/do/topics.configure" not in page
    assert "/console/do/topics.delete" not in page


async def test_a_deletion_says_what_goes_with_it(site: Site, browser: MakeBrowser) -> None:
    await site.emit("e1", "e2")
    one = browser(site)
    await one.sign_in(ADMIN)
    form: dict[str, Any] = {"kind": "EventGroup", "name": "edge", "back": "/console/resources"}
    asked = await one.post("/console/do/resources.delete", **form)
    assert "EventGroup edge will be deleted, with its 2 events." in asked.text
    done = await one.post("/console/do/resources.delete", asked="yes", **form)
    assert "Nothing is declared yet." in done.text


async def test_the_deletion_of_a_peer_says_what_waits_for_it(site: Site, browser: MakeBrowser) -> None:
    await site.apply(peer("b", free_port()))
    await site.emit("e1", "e2")
    one = browser(site)
    await one.sign_in(ADMIN)
    asked = await one.get("/console/do/resources.delete?kind=EventPeer&name=edge-b")
    assert "EventPeer edge-b will be deleted." in asked.text
    assert "2 events wait for b, and will not be sent; 0 dead letters of the link will be dropped." in asked.text
    assert "b keeps its own link to this node" in asked.text


async def test_a_change_that_removes_a_filter_says_that_stored_events_are_sent(
    site: Site, browser: MakeBrowser
) -> None:
    await site.apply(peer("b", free_port(), types=["a.*", "b"]))
    one = browser(site)
    await one.sign_in(ADMIN)
    url, form = "/console/do/resources.apply", {"asked": "yes", "back": "/console/resources"}
    wider = await one.post(url, text=declare(peer("b", 1, types=["a.*", "c"])), **form)
    narrower = await one.post(url, text=declare(peer("b", 1, types=["a.b"])), **form)
    said = "stored events that it has left out will be sent, too"
    assert (said in wider.text, said in narrower.text) == (True, False)


async def test_a_question_says_that_a_lower_limit_deletes(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(ADMIN)
    form = _form_of((await one.get("/console/do/resources.apply?kind=EventGroup&name=edge")).text)
    lower = form["text"].replace("spec:\n", "spec:\n  retention:\n    maxAge: 1m\n", 1)
    asked = await one.post("/console/do/resources.apply", **form | {"text": lower})
    lowered = "lower limits (retention.maxAge) will delete older records or events"
    assert f"EventGroup edge will be changed; {lowered}." in asked.text


async def test_a_resource_that_others_name_is_not_deleted(site: Site, browser: MakeBrowser) -> None:
    await site.apply(peer("b", 1))
    one = browser(site)
    await one.sign_in(ADMIN)
    form: dict[str, Any] = {"kind": "EventGroup", "name": "edge", "asked": "yes"}
    assert "It cannot be deleted now" in (await one.post("/console/do/resources.delete", **form)).text
    assert (await site.ask("resources.list", kind="EventGroup"))["resources"]


async def test_a_question_sends_back_what_was_written_also_where_it_is_invisible(
    site: Site, browser: MakeBrowser
) -> None:
    """A page spells out such characters everywhere else."""
    one = browser(site)
    await one.sign_in(ADMIN)
    written = "\n\tkey:\u00a0value\u200b # \u202e<b>&\"'"
    answer = await one.post("/console/do/resources.apply", text=written, asked="yes", follow=False)
    shown = answer.text.partition("<textarea")[2].partition(">")[2].partition("</textarea>")[0]
    assert unescape(shown) == f"\n{written}", "the first newline is not part of the field"
