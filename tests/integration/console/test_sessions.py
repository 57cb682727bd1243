"""Sessions in the console: who is signed in, and ended by an operator."""

from __future__ import annotations

import re
from html import unescape

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch
from tests.integration.console.conftest import MakeBrowser
from tests.integration.console.test_signing_in import ADMIN, READ
from tests.support.sites import Site


async def test_a_session_is_listed_and_ended(site: Site, browser: MakeBrowser) -> None:
    one, other = browser(site), browser(site)
    await one.sign_in(ADMIN)
    made = await one.post("/console/do/keys.create", name="ci", access="read", asked="yes")
    (key,) = re.findall(r"evk_[\w-]+", made.text)
    await other.sign_in(key)
    shown = await one.get("/console/sessions?key=ci")
    assert shown.text.count('<tr id="se-') == 1
    assert not [value for value in (*other.cookies.values(), key) if value in shown.text]
    (way,) = re.findall(r'href="(/console/do/sessions\.end[^"]*)"', shown.text)
    assert (await one.get(unescape(way))).heading == "End the session?"
    (name,) = re.findall(r'<tr id="se-(\w+)"', shown.text)
    done = await one.post("/console/do/sessions.end", id=name, asked="yes", back="/console/sessions")
    assert "The session has ended." in done.text
    again = await other.get("/console/")
    assert (again.heading, "Your session has ended" in again.text) == ("Sign in", True)
    first = (await browser(site).get("/console/")).text
    assert (f"To the node at {one.host}." in first, "Your session has ended" in first) == (True, False)
    assert (await one.post("/console/do/sessions.end", id=name, asked="yes")).status == 404
    assert "sessions.end" in (await one.get("/console/actions?object=session+" + name)).text


async def test_sessions_are_listed_page_by_page(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(ADMIN)
    for _ in range(4):
        await browser(site).sign_in(READ)
    first = await one.get("/console/sessions?limit=3")
    assert first.text.count('<tr id="se-') == 3
    url = unescape(first.text.partition('rel="next" href="')[2].partition('"')[0])
    second = await one.get(url)
    assert second.text.count('<tr id="se-') == 2
    names = [re.findall(r'<tr id="se-(\w+)"', answer.text) for answer in (first, second)]
    assert not set(names[0]) & set(names[1])
    assert (await one.get("/console/sessions?after=x")).status == 400


async def test_a_key_that_reads_sees_no_sessions(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(READ)
    assert (await one.get("/console/sessions")).status == 403


async def test_sessions_of_a_key_that_was_removed_from_the_settings_are_not_listed(
    site: Site, browser: MakeBrowser
) -> None:
    await browser(site).sign_in(READ)
    await site.stop()
    await site.start(api_keys=ADMIN)
    one = browser(site)
    await one.sign_in(ADMIN)
    assert (await one.get("/console/sessions")).text.count('<tr id="se-') == 1


async def test_the_session_of_the_browser_itself_is_marked_and_no_other(site: Site, browser: MakeBrowser) -> None:
    one, other = browser(site), browser(site)
    await other.sign_in(ADMIN)
    await one.sign_in(ADMIN)
    shown = [(await each.get("/console/sessions")).text for each in (one, other)]
    marked = [re.findall(r'<tr id="se-(\w+)">\s*<th[^>]*>\w+ <span class="tag">this browser', text) for text in shown]
    assert [len(found) for found in marked] == [1, 1]
    assert marked[0] != marked[1]
    asked = await one.get(f"/console/do/sessions.end?id={marked[0][0]}")
    assert "It is the session of this browser: you are signed out." in asked.text


async def test_sign_ins_and_sign_outs_are_in_the_record_of_actions_with_their_session(
    site: Site, browser: MakeBrowser
) -> None:
    one = browser(site)
    await one.sign_in(ADMIN)
    found = (await one.get("/console/actions?operation=sessions.begin")).text
    (name,) = re.findall(r"session (\w{16})</a>", found)
    assert "session of settings key" in found
    await one.post("/console/sign-out")
    await one.sign_in(ADMIN)
    ended = (await one.get(f"/console/actions?operation=sessions.end&object=session+{name}")).text
    assert ended.count('<tr id="a-') == 1


async def test_refused_sign_ins_are_counted_by_the_minute_and_do_not_fill_the_record(
    site: Site, browser: MakeBrowser
) -> None:
    one, other = browser(site), browser(site)
    await one.sign_in(ADMIN)
    for number in range(12):
        await other.sign_in(f"wrong-{number}")
    rows = await site.running.log.database.read(_refused_sign_ins)
    assert sorted(rows) == [("unknown", "throttled"), ("unknown", "unauthorized")]


def _refused_sign_ins(conn: Connection) -> list[tuple[str, str]]:
    sql = "SELECT who, result FROM actions WHERE operation = 'sessions.begin' AND result <> 'ok'"
    return [(str(who), str(result)) for who, result in fetch(conn, sql)]
