"""The record of actions in the console: filtered, page by page, and for keys with admin alone."""

from __future__ import annotations

from html import unescape
from urllib.parse import urlencode

from eventd.log.core.head import lock_head
from eventd.store.engine.database import Connection
from eventd.store.rows.actions import ActionRow, add_action
from eventd.testing import NOW, until
from tests.integration.console.conftest import MakeBrowser
from tests.integration.console.test_signing_in import ADMIN, READ
from tests.support.sites import Site

HOSTILE = '<script>alert("1")</script>' + "x" * 200


async def record(site: Site, count: int, **other: str) -> None:
    """Store actions of the key ci."""
    fields = {"kind": "key", "who": "key ci", "address": "10.0.0.1", "operation": "keys.create", "object": "key a"}
    fields |= {"arguments": '{"scopes":["read"]}', "result": "ok", "request": "r1", **other}

    def write(conn: Connection) -> None:
        lock_head(conn)
        for _ in range(count):
            add_action(conn, ActionRow(at=NOW, **fields))

    await site.running.log.database.write(write)


async def test_actions_are_listed_page_by_page_and_filtered(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(ADMIN)
    await record(site, 60, who="key pager")
    await record(site, 1, who="key pager", result="not_found", object="peer edge/b")
    first = await one.get("/console/actions?who=key+pager")
    assert (first.heading, first.text.count('<tr id="a-')) == ("Actions", 50)
    assert "scopes: read" in first.text
    url = unescape(first.text.partition('rel="next" href="')[2].partition('"')[0])
    assert (await one.get(url)).text.count('<tr id="a-') == 11
    for query in ("result=not_found", "object=peer+edge", "operation=keys.create&result=not_found"):
        found = await one.get(f"/console/actions?who=key+pager&{query}")
        assert found.text.count('<tr id="a-') == 1, query
    assert "No action matches." in (await one.get("/console/actions?who=other")).text
    unfit = await one.get("/console/actions?since=soon")
    assert (unfit.status, unfit.heading, 'name="since" value="soon"' in unfit.text) == (400, "Actions", True)


async def test_what_a_visitor_does_is_recorded_as_done_in_a_session(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(ADMIN)
    await site.ask("keys.create", name="ci", scopes=["look"])
    await one.post("/console/do/keys.revoke", name="ci", then="keep it in the list", asked="yes")
    shown = (await one.get("/console/actions")).text
    assert "session of settings key" in shown
    assert "keys.revoke" in shown


async def test_what_a_visitor_may_not_do_is_recorded_as_refused(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(READ)
    forms: tuple[tuple[str, dict[str, str]], ...] = (
        ("links.pause", {"group": "edge", "peer": "b"}),
        ("doctor.fix", {"group": "edge"}),
        ("topics.delete", {"topic": "t"}),
        ("topics.purge", {"topic": "t"}),
    )
    for name, form in forms:
        assert (await one.get(f"/console/do/{name}?{urlencode(form)}")).status == 403, name
        assert (await one.post(f"/console/do/{name}", **form, asked="yes")).status == 403, name
    refused = ["DELETE /v0/topics/{topic}", "doctor.fix", "links.pause"]

    async def recorded() -> bool:
        rows = (await site.ask("actions.list", result="forbidden"))["actions"]
        return sorted(row["operation"] for row in rows) == refused

    await until(recorded, "the refusals to be recorded")
    other = browser(site)
    await other.sign_in(ADMIN)
    page = (await other.get("/console/actions?result=forbidden&operation=links.pause")).text
    assert '<td class="name">peer edge/b' in page, "a refusal names the last object"


async def test_a_key_that_reads_sees_no_actions(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(READ)
    assert (await one.get("/console/actions")).status == 403
    assert 'href="/console/actions"' not in (await one.get("/console/")).text


async def test_hostile_actions_are_text(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(ADMIN)
    await record(site, 1, who=HOSTILE, object=HOSTILE, operation=HOSTILE, result=HOSTILE, address=HOSTILE)
    text = (await one.get("/console/actions")).text
    assert "<script>alert" not in text
    assert "&lt;script&gt;" in text
