"""API keys in the console: listed, created and shown once, revoked, and removed from the list."""

from __future__ import annotations

import logging
import re
from html import unescape

import pytest

from eventd.store.engine.statements import fetch
from tests.integration.console.conftest import MakeBrowser
from tests.integration.console.test_signing_in import ADMIN, READ
from tests.support.sites import Site


async def test_a_created_key_is_shown_once_and_nowhere_else(
    site: Site, browser: MakeBrowser, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    one = browser(site)
    await one.sign_in(ADMIN)
    assert "No key yet." in (await one.get("/console/keys")).text
    asked = await one.get("/console/do/keys.create?back=/console/keys")
    assert asked.heading == "Create a key?"
    form = {"name": "ci", "access": "operator", "prefixes": "edge lab", "expires": "1h", "asked": "yes"}
    made = await one.post("/console/do/keys.create", **form, back="/console/keys")
    assert (made.status, made.heading, made.url) == (200, "Key ci", "/console/do/keys.create")
    assert made.headers["Cache-Control"] == "no-store"
    (key,) = re.findall(r"evk_[\w-]+", made.text)
    (row,) = (await site.ask("keys.list"))["keys"]
    assert (sorted(row["scopes"]), row["prefixes"]) == (["delete", "read", "write"], ["edge", "lab"])
    assert (await browser(site).sign_in(key)).status != 401
    shown = await one.get("/console/keys")
    actions = await one.get("/console/actions")
    stored = await site.running.log.database.read(lambda conn: fetch(conn, "SELECT * FROM actions"))
    assert "keys.create" in actions.text
    for place in (shown.text, actions.text, str(stored), caplog.text):
        assert key not in place


async def test_a_form_that_is_sent_again_makes_no_second_key(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(ADMIN)
    form = {"name": "ci", "access": "look", "asked": "yes"}
    await one.post("/console/do/keys.create", **form)
    again = await one.post("/console/do/keys.create", **form)
    assert (again.status, again.heading) == (409, "Create a key?")
    assert "evk_" not in again.text
    for wrong in ({"access": "root"}, {"access": ""}, {"expires": "soon"}, {"name": "<b>"}):
        asked = await one.post("/console/do/keys.create", **{**form, "name": "other", **wrong})
        assert (asked.status, asked.heading) == (400, "Create a key?"), wrong
    twice = await one.post("/console/do/keys.create", name="other", access=["look", "admin"], asked="yes")
    assert (twice.status, "access" in twice.text) == (400, True)
    assert len((await site.ask("keys.list"))["keys"]) == 1


async def test_a_key_is_revoked_with_its_sessions_and_then_removed(site: Site, browser: MakeBrowser) -> None:
    one, other = browser(site), browser(site)
    await one.sign_in(ADMIN)
    made = await one.post("/console/do/keys.create", name="ci", access="read", asked="yes")
    (key,) = re.findall(r"evk_[\w-]+", made.text)
    assert (await other.sign_in(key)).heading == "Overview"
    (way,) = re.findall(r'href="(/console/do/keys\.revoke[^"]*)"', (await one.get("/console/keys")).text)
    asked = await one.get(unescape(way))
    assert (asked.heading, "<dt>name</dt>" in asked.text) == ("Revoke the key ci?", False)
    form = {"name": "ci", "asked": "yes", "back": "/console/keys"}
    done = await one.post("/console/do/keys.revoke", **form, then="keep it in the list")
    assert "The key is revoked." in done.text
    assert 's-revoked">revoked' in done.text
    assert re.search(
        r'href="/console/actions\?operation=keys.revoke&amp;object=key\+ci">session of settings key', done.text
    )
    assert (await other.get("/console/")).heading == "Sign in"
    (way,) = re.findall(r'href="(/console/do/keys\.revoke[^"]*)"', done.text)
    asked = await one.get(unescape(way))
    assert asked.heading == "Remove the key ci from the list?"
    assert ('class="main danger">Remove<' in asked.text, 'id="f-then"' in asked.text) == (True, False)
    fields = dict(re.findall('type="hidden" name="([^"]*)" value="([^"]*)"', asked.text))
    await one.post("/console/do/keys.revoke", **fields)
    assert "No key yet." in (await one.get("/console/keys")).text
    assert (await one.get("/console/do/keys.revoke?name=ci")).status == 404


async def test_keys_are_listed_page_by_page_and_filtered(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(ADMIN)
    for number in range(5):
        await site.ask("keys.create", name=f"k{number}", scopes=["look"])
    await site.ask("keys.revoke", name="k1")
    first = await one.get("/console/keys?limit=3")
    assert first.text.count('<tr id="k-') == 3
    url = unescape(first.text.partition('rel="next" href="')[2].partition('"')[0])
    assert (await one.get(url)).text.count('<tr id="k-') == 2
    assert (await one.get("/console/keys?state=revoked")).text.count('<tr id="k-') == 1
    assert (await one.get("/console/keys?q=K4")).text.count('<tr id="k-') == 1
    assert "No key matches." in (await one.get("/console/keys?q=other")).text


async def test_the_last_use_of_a_key_is_shown_also_in_the_console(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(ADMIN)
    made = {}
    for name in ("used", "unused"):
        answer = await one.post("/console/do/keys.create", name=name, access="read", asked="yes")
        (made[name],) = re.findall(r"evk_[\w-]+", answer.text)
    await browser(site).sign_in(made["used"])
    rows = {
        name: row
        for name, row in re.findall(r'<tr id="k-(\w+)">(.*?)</tr>', (await one.get("/console/keys")).text, re.S)
    }
    assert rows["used"].count("<time") == 2, "when it was created, and when it was used"
    assert 'class="quiet">never<' in rows["unused"]


async def test_a_key_that_reads_sees_no_keys(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(READ)
    assert (await one.get("/console/keys")).status == 403
    assert 'href="/console/keys"' not in (await one.get("/console/")).text


async def test_the_first_key_of_an_open_node_must_be_able_to_make_keys(open_site: Site, browser: MakeBrowser) -> None:
    one = browser(open_site)
    asked = await one.get("/console/do/keys.create")
    assert asked.heading == "Create the first key?"
    assert ("requests without a key are refused" in asked.text, "<option selected>admin<" in asked.text) == (True, True)
    for narrow in ({"access": "look"}, {"access": "admin", "prefixes": "edge"}):
        refused = await one.post("/console/do/keys.create", name="first", asked="yes", **narrow)
        assert (refused.status, "you are locked out with it" in refused.text) == (422, True), narrow
    found = await open_site.ask("keys.list")
    assert (found["keys"], found["required"]) == ([], False)
    made = await one.post("/console/do/keys.create", name="first", access="admin", asked="yes")
    (key,) = re.findall(r"evk_[\w-]+", made.text)
    assert (await one.sign_in(key)).heading == "Overview"
    asked = await one.get("/console/do/keys.create")
    assert (asked.heading, "the first key" in asked.text) == ("Create a key?", False)
