"""Pages of the console: what they show without scripts, to whom, and how actions go."""

from __future__ import annotations

import re

import pytest

from eventd.console.pages import visit
from tests.integration.console.conftest import MakeBrowser, actions_of
from tests.integration.console.test_signing_in import ADMIN, EDGE, READ
from tests.support.declared import callback, group, peer
from tests.support.ports import free_port
from tests.support.sites import Site


async def test_links_are_listed_and_shown_one_by_one(site: Site, browser: MakeBrowser) -> None:
    await site.apply(peer("b", 1))
    await site.emit("e1", "e2")
    one = browser(site)
    await one.sign_in(READ)
    links = await one.get("/console/links")
    assert 'href="/console/links/edge/b"' in links.text
    link = await one.get("/console/links/edge/b")
    assert (link.status, link.heading) == (200, "b")
    assert "<dt>Waiting</dt><dd>2</dd>" in link.text


async def test_a_page_that_does_not_exist_says_so(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(READ)
    for url in ("/console/nothing", "/console/links/edge/nobody", "/console/links/none/b", "/console/do/keys.hack"):
        answer = await one.get(url)
        assert (answer.status, answer.heading) == (404, "Not found"), url
    assert (await one.get("/consoleX")).status == 404


async def test_an_action_asks_then_does_then_shows(site: Site, browser: MakeBrowser) -> None:
    await site.apply(peer("b", 1))
    one = browser(site)
    await one.sign_in(ADMIN)
    link = await one.get("/console/links/edge/b")
    assert "/console/do/links.pause?" in link.text
    asked = await one.get("/console/do/links.pause?group=edge&peer=b&back=/console/links/edge/b")
    assert (asked.status, asked.heading) == (200, "Pause the link to b?")
    form = {"group": "edge", "peer": "b", "by": "<b>Ann</b>", "back": "/console/links/edge/b"}
    again = await one.post("/console/do/links.pause", **form)
    assert again.heading == "Pause the link to b?", "a form that did not ask asks"
    done = await one.post("/console/do/links.pause", asked="yes", **form)
    assert (done.url, done.heading) == ("/console/links/edge/b?done=links.pause", "b")
    assert "The link is paused." in done.text
    assert "Paused: &lt;b&gt;Ann&lt;/b&gt;" in done.text
    resumed = await one.post("/console/do/links.resume", group="edge", peer="b", back="/console/links/edge/b")
    assert "The link resumes at once." in resumed.text
    actions = await actions_of(site)
    assert [(one["operation"], one["object"], one["kind"]) for one in actions] == [
        ("links.resume", "peer edge/b", "session"),
        ("links.pause", "peer edge/b", "session"),
    ]


async def test_an_action_without_its_scope_has_no_button_and_is_refused(site: Site, browser: MakeBrowser) -> None:
    await site.apply(peer("b", 1))
    one = browser(site)
    await one.sign_in(READ)
    offered = re.findall(r"/console/do/([\w.]+)", (await one.get("/console/links/edge/b")).text)
    assert offered == ["links.verify"], "a comparison with the peer reads"
    for answer in (
        await one.get("/console/do/links.pause?group=edge&peer=b"),
        await one.post("/console/do/links.pause", group="edge", peer="b", asked="yes"),
        await one.post("/console/do/links.resume", group="edge", peer="b"),
    ):
        assert (answer.status, answer.heading) == (403, "Not allowed")


async def test_a_key_of_some_names_sees_no_others(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(EDGE)
    await site.apply(
        group("a", port=0, secret=site.secret, name="other"),
        peer("b", 1),
        peer("far", 1, group="other"),
        callback("hook"),
        callback("others-hook", group="other"),
    )
    for page in ("", "links", "events", "subscriptions", "callbacks", "dead-letters", "doctor"):
        shown = await one.get(f"/console/{page}")
        assert (shown.status, "other" in shown.text.partition("<main")[2].partition("</main")[0]) == (200, False), page
    overview = (await one.get("/console/")).text
    assert ('href="/console/jobs"' in overview, 'href="/console/resources"' in overview) == (True, False)
    assert (await one.get("/console/resources")).status == 403
    assert ('id="group-edge"' in overview, 'href="/console/links/edge/b"' in overview) == (True, True)
    hooks = (await one.get("/console/callbacks")).text
    assert ('id="c-hook"' in hooks, 'href="/console/callbacks/hook"' in hooks) == (True, False)
    assert (await one.get("/console/links/other/b")).status == 403
    assert (await one.get("/console/links/edge/nobody")).status == 404


async def test_the_root_leads_browsers_to_the_console_and_nobody_else(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    page = await one.get("/", Accept="text/html,*/*", follow=False)
    assert (page.status, page.headers["Location"]) == (303, "/console/")
    assert (await one.get("/", Accept="*/*")).status == 401


async def test_static_files_are_kept_for_ever_under_a_name_with_their_hash(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    text = (await one.get("/console/sign-in")).text
    url = text.partition('rel="stylesheet" href="')[2].partition('"')[0]
    answer = await one.get(url)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/css; charset=utf-8")
    assert "immutable" in answer.headers["Cache-Control"]
    assert (await one.get("/console/static/000000000000/console.css")).status == 404
    assert (await one.get(url.replace("console.css", "..%2F..%2Fmount.py"))).status == 404


async def test_the_console_can_be_switched_off_and_moved(site: Site, browser: MakeBrowser) -> None:
    await site.stop()
    await site.start(console=False, api_keys=f"{READ}:r")
    assert (await browser(site).get("/console/")).status == 401
    await site.stop()
    await site.start(console_prefix="/site-a", api_keys=f"{READ}:r")
    one = browser(site)
    page = await one.get("/site-a/console/links")
    assert page.heading == "Sign in"
    assert 'action="/site-a/console/sign-in"' in page.text
    shown = await one.post("/site-a/console/sign-in", key=READ, next="/site-a/console/links")
    assert (shown.url, shown.heading) == ("/site-a/console/links", "Links")
    assert 'href="/console' not in shown.text


async def test_the_head_shows_the_address_at_which_the_node_is_served(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(READ)
    page = await one.get("/console/")
    assert f"{one.host}</title>" in page.text
    assert "127.0.0.1:0" not in page.text


@pytest.mark.parametrize("page", ["links", "subscriptions"])
async def test_a_page_says_which_groups_it_could_not_read_in_time(
    site: Site, browser: MakeBrowser, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    for name in ("far", "other"):
        await site.apply(group("a", port=free_port(), secret=site.secret, name=name))
    one = browser(site)
    await one.sign_in(ADMIN)
    said = "3 groups could not be read in time, the first is edge"
    assert "could not be read" not in (await one.get(f"/console/{page}")).text
    monkeypatch.setattr(visit, "GROUPS_SECONDS", 0.0)
    assert said in (await one.get(f"/console/{page}")).text
    assert "could not be read" not in (await one.get(f"/console/{page}?group=other")).text
