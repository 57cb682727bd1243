"""Dead letters and bulk jobs in the console: listed by reason, retried, dropped, and changed by jobs."""

from __future__ import annotations

import re

import pytest

from eventd.log.core.head import lock_head
from eventd.log.cursors.dead_letters import DeadLetter, insert_dead_letters
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute
from eventd.testing import NOW, until
from tests.integration.console.conftest import MakeBrowser
from tests.integration.console.test_signing_in import ADMIN, READ
from tests.support.declared import callback, peer
from tests.support.sites import Site

HOSTILE = '<script>alert("1")</script>' + "x" * 200


def pass_events(conn: Connection, position: int) -> None:
    execute(conn, "UPDATE cursors SET position = ? WHERE name = 'peer:edge/b'", (position,))


def store(conn: Connection, letters: list[tuple[str, int, int, str, str, str, int, int]]) -> None:
    """Store dead letters, given as the values of `DeadLetter`."""
    lock_head(conn)
    insert_dead_letters(conn, [DeadLetter(*letter) for letter in letters])


async def park(site: Site, count: int, reason: str = "loop", detail: str = "said so") -> None:
    """Make dead letters of the peer b."""
    await site.apply(peer("b", 1))
    ((topic,),) = await site.rows("SELECT id FROM topics WHERE name = 'group:edge'")
    rows = [("peer:edge/b", at, topic, f"d{at:03}", reason, detail, 1, NOW) for at in range(1, count + 1)]
    await site.running.log.database.write(store, rows)


async def test_dead_letters_are_counted_by_reason_and_listed_page_by_page(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(READ)
    assert "No dead letters now. Those that were dropped are in" in (await one.get("/console/dead-letters")).text
    await park(site, 60)
    first = await one.get("/console/dead-letters")
    assert (first.heading, first.text.count('<tr id="d-')) == ("Dead letters", 50)
    assert '<td class="n hot">60</td>' in first.text
    assert "/console/do/" not in first.text.partition("<main")[2], "a key that reads is offered no action"
    url = first.text.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
    assert (await one.get(url)).text.count('<tr id="d-') == 10
    assert "No dead letter matches" in (await one.get("/console/dead-letters?reason=other")).text
    unfit = await one.get("/console/dead-letters?kind=nothing")
    assert (unfit.status, unfit.heading, "<option selected>nothing</option>" in unfit.text) == (
        400,
        "Dead letters",
        True,
    )


async def test_a_dead_letter_is_dropped_after_a_question(site: Site, browser: MakeBrowser) -> None:
    await park(site, 2)
    one = browser(site)
    await one.sign_in(ADMIN)
    found = re.search(r'href="(/console/do/dead_letters\.drop[^"]*)"', (await one.get("/console/dead-letters")).text)
    assert found is not None
    asked = await one.get(found[1].replace("&amp;", "&"))
    assert asked.heading == "Drop the dead letter?"
    assert "This drops 1 dead letter of a peer of group edge. The event is never delivered." in asked.text
    assert "Event d002 of the peer b in edge: loop." in asked.text
    (number,) = re.findall(r'name="ids" value="(\d+)"', asked.text)
    done = await one.post(
        "/console/do/dead_letters.drop", group="edge", ids=number, asked="yes", back="/console/dead-letters"
    )
    assert "The dead letter is dropped." in done.text
    assert done.text.count('<tr id="d-') == 1
    (row,) = (await site.ask("actions.list", operation="dead_letters.drop"))["actions"]
    assert row["object"] == "event d002 of peer b: loop", "the record tells which event was dropped"


async def test_an_event_shows_its_dead_letter_with_the_actions_that_end_it(site: Site, browser: MakeBrowser) -> None:
    await site.emit("e1")
    await site.apply(peer("b", 1))
    ((topic, at),) = await site.rows("SELECT topic_id, position FROM event_ids WHERE event_id = 'e1'")
    letters = [
        ("peer:edge/b", at, topic, "e1", "loop", "", 1, NOW),
        ("subscription:edge/routes", at, topic, "e1", "plugin_failed", "it wrote: one\ntwo\n", 1, NOW),
    ]
    await site.running.log.database.write(store, letters)
    one = browser(site)
    await one.sign_in(ADMIN)
    page = (await one.get("/console/events/edge/e1")).text
    assert 'href="/console/dead-letters?kind=peer&amp;owner=b&amp;group=edge"' in page
    assert "two<details><summary>All lines</summary>it wrote: one<br>two</details></td>" in page
    dropped = re.findall(r'href="(/console/do/dead_letters\.drop[^"]*)"', page)
    for url, heading in zip(dropped, ("Drop 1 dead letter?", "Drop the dead letter?"), strict=True):
        asked = await one.get(url.replace("&amp;", "&"))
        assert asked.heading == heading
        form = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', asked.text))
        done = await one.post(url.partition("?")[0], **form)
        assert done.url.startswith("/console/events/edge/e1")
    assert "Dead letters" not in done.text.partition("<main")[2]


@pytest.mark.parametrize(("operation", "field"), [("dead_letters.retry", "ids"), ("dead_letters.retry_chosen", "pick")])
async def test_a_dead_letter_that_is_sent_again_is_named_in_the_record_of_actions(
    site: Site, browser: MakeBrowser, operation: str, field: str
) -> None:
    """The retry takes it from the list: nothing else tells afterwards which event it was of."""
    await site.emit("e1")
    await site.apply(peer("b", 1))
    ((topic, at),) = await site.rows("SELECT topic_id, position FROM event_ids WHERE event_id = 'e1'")
    await site.running.log.database.write(store, [("peer:edge/b", at, topic, "e1", "loop", "", 1, NOW)])
    await site.running.log.database.write(pass_events, at)
    ((number,),) = await site.rows("SELECT id FROM dead_letters")
    one = browser(site)
    await one.sign_in(ADMIN)
    form = {"asked": "yes", field: number} | ({"group": "edge"} if field == "ids" else {})
    await one.post(f"/console/do/{operation}", **form)
    assert await site.rows("SELECT id FROM dead_letters") == []
    (row,) = (await site.ask("actions.list", operation=operation))["actions"]
    assert row["object"] == "event e1 of peer b: loop"


async def test_chosen_dead_letters_are_dropped_after_a_question(site: Site, browser: MakeBrowser) -> None:
    await park(site, 4)
    one = browser(site)
    await one.sign_in(ADMIN)
    page = (await one.get("/console/dead-letters")).text
    assert page.count('name="pick"') == 4
    assert 'formaction="/console/do/dead_letters.drop_chosen"' in page
    assert (await one.get("/console/dead-letters?choose=all")).text.count(" checked>") == 4
    picks = re.findall(r'name="pick" value="(\d+)"', page)
    url, back = "/console/do/dead_letters.drop_chosen", "/console/dead-letters"
    nothing = await one.post(url, back=back)
    assert (nothing.status, "no dead letter is chosen" in nothing.text) == (400, True)
    asked = await one.post(url, pick=picks[:3], back=back)
    assert asked.heading == "Drop 3 dead letters?"
    assert "Drops 3 dead letters: they are never delivered and cannot be restored." in asked.text
    assert re.findall(r'name="pick" value="(\d+)"', asked.text) == picks[:3]
    done = await one.post(url, pick=picks[:3], asked="yes", back=back)
    assert "The chosen dead letters are dropped." in done.text
    assert re.findall(r'name="pick" value="(\d+)"', done.text) == picks[3:]
    again = await one.post("/console/do/dead_letters.retry_chosen", pick=picks[3:], back=back)
    assert again.heading == "Retry 1 dead letter?"


async def test_a_key_of_some_names_is_offered_nothing_for_callbacks(site: Site, browser: MakeBrowser) -> None:
    await site.apply(callback("hook"))
    await site.emit("e1")
    await park(site, 1, "loop")
    ((topic, at),) = await site.rows("SELECT topic_id, position FROM event_ids WHERE event_id = 'e1'")
    row = ("callback:hook", at, topic, "e1", "refused", "", 1, NOW)
    await site.running.log.database.write(store, [row])
    await site.stop()
    await site.start(api_keys="edgekey-edgekey:read+write+delete+admin:edge,adminkey-adminkey")
    for key, count in (("edgekey-edgekey", 0), ("adminkey-adminkey", 2)):
        one = browser(site)
        await one.sign_in(key)
        text = (await one.get("/console/dead-letters")).text
        assert text.count('<tr id="d-') == 2, key
        assert text.count("/console/do/callback_letters.") == count
        assert len(re.findall(r"/console/do/jobs\.start[^\"]*callback=hook", text)) == count
        assert ('aria-label="Choose e1 of callback hook"' in text) == bool(count)
        assert 'aria-label="Choose d001 of peer b"' in text


async def test_all_that_match_are_dropped_by_a_job(site: Site, browser: MakeBrowser) -> None:
    await park(site, 120)
    one = browser(site)
    await one.sign_in(ADMIN)
    asked = await one.get("/console/do/jobs.start?action=drop&group=edge&peer=b&reason=loop&back=/console/jobs")
    assert asked.heading == "Drop 120 dead letters?"
    assert "This drops 120 dead letters of the peer b in group edge with the reason loop." in asked.text
    assert "<dt>" not in asked.text.partition("<main")[2], "the sentence says all that the address has set"
    form = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', asked.text))
    url = f"/console/do/jobs.start?action=drop&group=edge&peer=b&reason=loop&token={form['token']}&count=1"
    lured = await one.get(url)
    assert "120 dead letters" in lured.text, "the count is not that of a link"
    assert f'value="{form["token"]}"' not in lured.text
    unplanned = {name: text for name, text in form.items() if name not in ("token", "count")}
    assert (await one.post("/console/do/jobs.start", **unplanned)).heading == "Drop 120 dead letters?"
    unsure = await one.post("/console/do/jobs.start", **form)
    assert (unsure.status, "type 120 to confirm" in unsure.text) == (422, True)
    assert f'value="{form["token"]}"' in unsure.text, "the plan stays the same"
    done = await one.post("/console/do/jobs.start", **form, sure="120")
    assert (done.heading, "The job has started." in done.text) == ("Job 1", True)
    (job,) = (await site.ask("jobs.list"))["jobs"]
    shown = await one.get(f"/console/jobs/{job['number']}")
    assert shown.heading == f"Job {job['number']}"

    async def ended() -> bool:
        return bool((await site.ask("jobs.get", number=job["number"]))["job"]["state"] == "done")

    await until(ended, "the job to end")
    assert "dropped" in (await one.get(f"/console/jobs/{job['number']}")).text
    again = await one.get("/console/do/jobs.start?action=drop&group=edge&peer=b&reason=loop")
    assert (again.status, "no dead letter matches any more" in again.text) == (409, True)


async def test_a_job_that_is_gone_is_not_found(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(READ)
    for name in ("7", "x", "0", "9" * 40):
        assert (await one.get(f"/console/jobs/{name}")).status == 404, name
    assert "No job." in (await one.get("/console/jobs")).text


async def test_hostile_details_are_text(site: Site, browser: MakeBrowser) -> None:
    await park(site, 1, HOSTILE, HOSTILE)
    one = browser(site)
    await one.sign_in(READ)
    text = (await one.get("/console/dead-letters")).text
    assert "<script>alert" not in text
    assert "&lt;script&gt;" in text
