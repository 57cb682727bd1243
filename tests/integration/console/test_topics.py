"""Topics in the console: listed, shown page by page, created, configured, written to, emptied and deleted."""

from __future__ import annotations

import asyncio
import re
from html import unescape
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest

from eventd.console.pages import record_removal
from eventd.testing import until
from tests.integration.console.conftest import MakeBrowser
from tests.integration.console.test_events import HOSTILE
from tests.integration.console.test_signing_in import ADMIN, EDGE, READ
from tests.integration.console.test_streams import following
from tests.support.console_pages import Browser
from tests.support.sites import Site

LOOK = "lookkey-lookkey"


async def signed_in(site: Site, browser: MakeBrowser, key: str = ADMIN) -> Browser:
    one = browser(site)
    await one.sign_in(key)
    return one


async def write(one: Browser, topic: str, data: str, **form: Any) -> str:
    answer = await one.post("/console/do/topics.write", topic=topic, data=data, asked="yes", **form)
    assert "The record is written." in answer.text, answer.text
    return answer.text


async def fill(one: Browser, topic: str, count: int) -> None:
    """Write small records, every second one with the tag eu:a."""
    records = [{"data": at, "tag": "eu:a" if at % 2 else "us:a"} for at in range(count)]
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {ADMIN}"}) as session:
        answer = await session.post(f"http://{one.host}/v0/topics/{topic}", json={"records": records})
        assert answer.status == 201


async def create(one: Browser, topic: str, **form: Any) -> None:
    answer = await one.post("/console/do/topics.create", topic=topic, asked="yes", back="/console/topics", **form)
    assert "The topic is created." in answer.text, answer.text


def fields(text: str) -> dict[str, str]:
    """Return the hidden fields of a form."""
    found = re.findall('type="hidden" name="([^"]*)" value="([^"]*)"', text)
    return {name: unescape(value) for name, value in found}


def ways(text: str, relation: str) -> list[str]:
    """Return the targets of the links of this relation."""
    return [unescape(url) for url in re.findall(f'rel="{relation}" href="([^"]*)"', text)]


async def test_topics_are_listed_page_by_page_and_by_the_beginning_of_their_names(
    site: Site, browser: MakeBrowser
) -> None:
    one = await signed_in(site, browser)
    for name in ("a.1", "a.2", "b.1"):
        await create(one, name)
    first = await one.get("/console/topics?prefix=a.&limit=1")
    assert re.findall('<tr id="t-([^"]*)"', first.text) == ["a.1"]
    [url] = ways(first.text, "next")
    second = await one.get(url)
    assert re.findall('<tr id="t-([^"]*)"', second.text) == ["a.2"]
    assert ways(second.text, "next") == []
    assert "No topic begins with zz." in (await one.get("/console/topics?prefix=zz")).text


async def test_a_key_of_some_names_sees_their_topics_only(site: Site, browser: MakeBrowser) -> None:
    await create(await signed_in(site, browser), "other")
    await create(await signed_in(site, browser), "edge.own")
    one = await signed_in(site, browser, EDGE)
    text = (await one.get("/console/topics")).text
    assert ('id="t-edge.own"' in text, 'id="t-other"' in text) == (True, False)
    assert (await one.get("/console/topics/other")).status == 403
    assert (await one.get("/console/topics/edge.own")).status == 200


async def test_the_newest_records_stand_last_and_older_ones_are_pages_before(site: Site, browser: MakeBrowser) -> None:
    one = await signed_in(site, browser)
    await create(one, "orders")
    for number in range(1, 6):
        await write(one, "orders", f'{{"item": {number}}}')

    def seqs(text: str) -> list[int]:
        return [int(seq) for seq in re.findall('<tr id="r-([0-9]+)"', text)]

    newest = await one.get("/console/topics/orders?limit=2")
    assert (seqs(newest.text), 'data-live="yes"' in newest.text) == ([4, 5], True)
    assert ways(newest.text, "next") == []
    [url] = ways(newest.text, "prev")
    middle = await one.get(url)
    assert (seqs(middle.text), 'data-live="yes"' in middle.text) == ([2, 3], False)
    assert seqs((await one.get(ways(middle.text, "next")[0])).text) == [4, 5]
    oldest = await one.get(ways(middle.text, "prev")[0])
    assert (seqs(oldest.text)[0], ways(oldest.text, "prev")) == (1, [])


async def test_data_is_shown_and_downloaded_as_it_was_written(site: Site, browser: MakeBrowser) -> None:
    one = await signed_in(site, browser)
    await create(one, "t")
    number = "12345678901234567890.10"
    await write(one, "t", f'{{"count":{number}}}', tag=HOSTILE[:40], node="n<b>")
    listed = (await one.get("/console/topics/t")).text
    assert number in listed
    shown = await one.get("/console/topics/t/records/1")
    assert (shown.heading, number in shown.text) == ("Record 1", True)
    for text in (listed, shown.text):
        assert "n&lt;b&gt;" in text
        assert "<script>alert" not in text
        assert "n<b>" not in text
    file = await one.get("/console/topics/t/records/1/data")
    assert file.text == f'{{"count":{number}}}'
    assert file.headers["Content-Type"] == "application/octet-stream"


async def test_large_data_is_only_downloaded(site: Site, browser: MakeBrowser) -> None:
    one = await signed_in(site, browser)
    await create(one, "t")
    await write(one, "t", f'"{"x" * 64_000}"')
    shown = (await one.get("/console/topics/t/records/1")).text
    assert ("It is too large to show." in shown, "x" * 100 in shown) == (True, False)
    assert len((await one.get("/console/topics/t")).text) < 25_000
    assert len((await one.get("/console/topics/t/records/1/data")).text) == 64_002


async def test_the_newest_of_large_records_are_shown(site: Site, browser: MakeBrowser) -> None:
    one = await signed_in(site, browser)
    await create(one, "t")
    for _ in range(12):
        await write(one, "t", f'"{"x" * 300_000}"')
    newest = await one.get("/console/topics/t")
    assert re.findall('<tr id="r-([0-9]+)"', newest.text)[-1] == "12"
    assert ways(newest.text, "next") == []
    older = await one.get(ways(newest.text, "prev")[0])
    assert re.findall('<tr id="r-([0-9]+)"', older.text)[0] == "1"


async def test_a_record_that_is_gone_says_what_is_known_of_it(site: Site, browser: MakeBrowser) -> None:
    one = await signed_in(site, browser)
    await create(one, "t", cap_records="2")
    for number in range(4):
        await write(one, "t", str(number))
    for seq, known in (("1", "were removed (cap)"), ("9", "the newest record of t has seq 4"), ("x", "is not a seq")):
        answer = await one.get(f"/console/topics/t/records/{seq}")
        assert (answer.status, known in unescape(answer.text)) == (404, True), answer.text
    assert (await one.get("/console/topics/none")).status == 404


async def test_a_topic_is_created_once_and_configured(site: Site, browser: MakeBrowser) -> None:
    one = await signed_in(site, browser)
    await create(one, "jobs", type="queue", lease_ms="5,000", durability="fsync")
    again = await one.post("/console/do/topics.create", topic="jobs", asked="yes", type="log")
    assert "The topic jobs exists already" in again.text
    asked = await one.get("/console/do/topics.configure?topic=jobs")
    assert 'name="lease_ms" value="5000"' in asked.text
    form = fields(asked.text) | {"topic": "jobs", "durability": "fsync"}
    wrong = await one.post("/console/do/topics.configure", cap_records="many", **form)
    assert (wrong.status, "must be a whole number" in wrong.text) == (400, True)
    done = await one.post("/console/do/topics.configure", cap_records="9", **form | {"back": "/console/topics/jobs"})
    assert "The topic is configured." in done.text
    assert "<dt>Maximum records</dt><dd>9</dd>" in done.text
    assert "<dt>Lease of a job</dt><dd>30 s</dd>" in done.text, "an emptied field has its default again"
    assert "<dt>Durability</dt><dd>fsync</dd>" in done.text


async def test_data_that_is_not_json_is_refused_and_stays_in_the_form(site: Site, browser: MakeBrowser) -> None:
    one = await signed_in(site, browser)
    await create(one, "t")
    for data in ("{", '1}, {"data": 2'):
        wrong = await one.post("/console/do/topics.write", topic="t", data=data, tag="eu", asked="yes")
        assert (wrong.status, wrong.heading) == (400, "Write a record to t"), data
        assert 'value="eu"' in wrong.text
    assert "<dt>Records</dt><dd>0</dd>" in (await one.get("/console/topics/t")).text


async def test_a_purge_deletes_what_was_counted_and_not_what_came_later(site: Site, browser: MakeBrowser) -> None:
    one = await signed_in(site, browser)
    await create(one, "t")
    await write(one, "t", "1")
    await write(one, "t", "2")
    asked = await one.get("/console/do/topics.purge?topic=t&before_seq=1&back=/console/topics/t")
    form = dict(re.findall('type="hidden" name="([^"]*)" value="([^"]*)"', asked.text))
    assert (form["before_seq"], form["count"]) == ("3", "2"), "a URL does not choose them"
    await write(one, "t", "3")
    done = await one.post("/console/do/topics.purge", **form)
    assert "The records are deleted." in done.text
    assert re.findall('<tr id="r-([0-9]+)"', done.text) == ["3"]


async def test_records_are_deleted_by_their_tag(site: Site, browser: MakeBrowser) -> None:
    one = await signed_in(site, browser)
    await create(one, "t")
    await write(one, "t", "1", tag="eu:a")
    await write(one, "t", "2", tag="us:a")
    none = await one.post("/console/do/topics.remove", topic="t", asked="yes")
    assert none.heading == "Delete records of t?"
    url, form = "/console/do/topics.remove", {"topic": "t", "asked": "yes", "back": "/console/topics/t"}
    asked = await one.post(url, match="eu:*", **form)
    assert "This deletes 1 record for good." in asked.text
    await write(one, "t", "3", tag="eu:b")
    shown = fields(asked.text)
    assert "This deletes 3 records for good." in (await one.post(url, match="*", **shown)).text, "another choice asks"
    assert "This deletes 2 records for good." in (await one.get(f"{url}?{urlencode(shown)}&match=eu:*")).text
    done = await one.post(url, match="eu:*", **shown)
    assert "The records are deleted." in done.text
    assert re.findall('<tr id="r-([0-9]+)"', done.text) == ["2", "3"], "what was written since the question stays"
    none = await one.post(url, match="eu:a", **form)
    assert "No record matches" in none.text
    wrong = await one.post(url, before_seq="soon", **form)
    assert "Nothing was deleted: <code>before_seq</code> must be a whole number" in unescape(wrong.text)


async def test_the_number_of_many_records_is_typed_before_they_are_deleted(site: Site, browser: MakeBrowser) -> None:
    one = await signed_in(site, browser)
    await fill(one, "t", 2500)
    url, form = "/console/do/topics.remove", {"topic": "t", "asked": "yes", "back": "/console/topics/t"}
    for chosen, count in (({"match": "eu:*"}, "1,250"), ({"match": "eu:*", "before_seq": "2,001"}, "1,000")):
        asked = await one.post(url, **chosen, **form)
        assert f"This deletes {count} records for good." in asked.text
        unsure = await one.post(url, **chosen, **fields(asked.text))
        assert (unsure.status, f"type {count} to confirm" in unsure.text) == (422, True)
    done = await one.post(url, **chosen, **fields(unsure.text), sure="1000")
    assert "<dt>Records</dt><dd>1,500</dd>" in done.text
    asked = await one.post(url, before_seq="2001", **form)
    assert "This deletes 1,000 records for good." in asked.text, "records between others are gone"


async def test_of_too_many_records_the_question_says_how_many_there_are_at_most(
    site: Site, browser: MakeBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_removal, "_PAGES", 1)
    one = await signed_in(site, browser)
    await fill(one, "t", 1400)
    asked = await one.post("/console/do/topics.remove", topic="t", match="eu:*", asked="yes")
    assert "This deletes at most 900 records for good." in asked.text
    await site.stop()
    await site.start(api_keys=f"{LOOK}:look+delete")
    one = await signed_in(site, browser, LOOK)
    asked = await one.post("/console/do/topics.remove", topic="t", match="eu:*", asked="yes")
    assert "This deletes at most 1,400 records for good." in asked.text, "a key that may not read the records"


async def test_a_lower_limit_says_how_many_records_it_removes(site: Site, browser: MakeBrowser) -> None:
    one = await signed_in(site, browser)
    await fill(one, "t", 200)
    url = "/console/do/topics.configure"
    form = fields((await one.get(f"{url}?topic=t&back=/console/topics/t")).text) | {"durability": "disk"}
    for limits, lines in (
        ({"cap_records": "50"}, "remove 150 records at once"),
        ({"cap_bytes": "5"}, "remove up to 200 records at once"),
        ({"ttl_ms": "1"}, "remove up to 200 records at once"),
    ):
        asked = await one.post(url, **form, **limits)
        assert lines in asked.text
        assert 'class="main danger">' in asked.text
    asked = await one.post(url, **form, cap_records="50")
    shown = fields(asked.text) | {"durability": "disk"}
    assert "remove 190 records at once" in (await one.post(url, **shown, cap_records="10")).text
    assert (await one.post(url, **shown, cap_records="50")).status == 422
    done = await one.post(url, **shown, cap_records="50", sure="150")
    assert "The topic is configured." in done.text
    assert "<dt>Records</dt><dd>50</dd>" in done.text
    form = fields((await one.get(f"{url}?topic=t")).text) | {"durability": "disk"}
    kept = await one.post(url, **form, cap_records="10", discard="reject")
    assert "The topic is configured." in kept.text, "a topic that rejects writes removes nothing"


async def test_a_form_that_began_with_another_configuration_asks_again(site: Site, browser: MakeBrowser) -> None:
    one = await signed_in(site, browser)
    await create(one, "t")
    url, own = "/console/do/topics.configure", {"durability": "disk", "discard": "old"}
    form = fields((await one.get(f"{url}?topic=t&back=/console/topics/t")).text) | own
    assert "The topic is configured." in (await one.post(url, **form, ttl_ms="60000")).text
    asked = await one.post(url, **form, cap_records="9")
    assert "Now it has Time to live, in milliseconds: 60000; Maximum number of records: the default." in asked.text
    assert 'name="cap_records" value="9"' in asked.text
    done = await one.post(url, **fields(asked.text) | own, cap_records="9", ttl_ms="60000")
    assert "<dt>Time to live</dt><dd>60 s</dd>" in done.text


async def test_a_deletion_names_the_routers_that_go_with_the_topic(site: Site, browser: MakeBrowser) -> None:
    one = await signed_in(site, browser)
    await create(one, "a")
    url, auth = f"http://{one.host}/v0/routers/a-%3Eb", {"Authorization": f"Bearer {ADMIN}"}
    async with aiohttp.ClientSession(headers=auth) as session:
        assert (await session.put(url, json={"source": "a", "dest": "b"})).status == 201
    assert 'id="via-a-&gt;b"' in (await one.get("/console/topics/b")).text
    asked = await one.get("/console/do/topics.delete?topic=b&back=/console/topics")
    assert "Its routers are deleted, too: a-&gt;b." in asked.text
    form = dict(re.findall('type="hidden" name="([^"]*)" value="([^"]*)"', asked.text))
    done = await one.post("/console/do/topics.delete", **form)
    assert "The topic is deleted." in done.text
    assert (await one.get("/console/topics/b")).status == 404
    [action] = (await site.ask("actions.list", operation="DELETE /v0/topics/{topic}"))["actions"]
    assert (action["object"], action["kind"]) == ("topic b", "session")


async def test_the_topic_of_a_group_leads_to_its_events_and_has_no_buttons(site: Site, browser: MakeBrowser) -> None:
    await site.emit("e1", payload={"a": "1"})
    one = await signed_in(site, browser)
    shown = await one.get("/console/topics/group%3Aedge")
    assert 'href="/console/events?group=edge"' in shown.text
    assert "/console/do/topics." not in shown.text
    assert '<tr id="r-1">' in shown.text


async def test_a_key_that_may_only_look_sees_no_records(site: Site, browser: MakeBrowser) -> None:
    await create(await signed_in(site, browser), "t")
    await site.stop()
    await site.start(api_keys=f"{LOOK}:look,{READ}:r")
    one = await signed_in(site, browser, LOOK)
    shown = await one.get("/console/topics/t")
    assert (shown.status, "shown to keys with the scope" in shown.text) == (200, True)
    assert (await one.get("/console/topics/t/records/1")).status == 403
    assert "/console/do/" not in shown.text


async def test_requests_of_pages_to_v0_count_towards_the_limit_of_their_key(site: Site, browser: MakeBrowser) -> None:
    await site.stop()
    await site.start(api_keys=ADMIN, max_inflight_per_key=1)
    one = await signed_in(site, browser)
    await create(one, "orders")
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {ADMIN}"}) as session:

        async def wait_for_records() -> None:
            """Wait for records as a client, as soon as the key has a place for it."""
            status = 429
            while status == 429:
                body = {"wait_ms": 30_000}
                status = (await session.post(f"http://{one.host}/v0/topics/orders/diff", json=body)).status

        waiting = asyncio.ensure_future(wait_for_records())

        async def is_refused() -> bool:
            return (await one.get("/console/topics/orders")).status == 429

        await until(is_refused, "the page to be refused")
        async with following(one, "/console/stream?view=/console/topics/orders") as stream:
            assert await stream.content.readline() == b"event: view\n", "others look at it, too: it counts for no key"
        waiting.cancel()


async def test_a_look_at_the_page_of_a_topic_does_not_count_as_a_read(site: Site, browser: MakeBrowser) -> None:
    one = await signed_in(site, browser)
    await create(one, "t")
    await write(one, "t", "1")
    for _ in range(2):
        page = (await one.get("/console/topics/t")).text
        assert '<tr id="r-1">' in page
        assert "<dt>Last read by a program</dt><dd>not since this process started</dd>" in page
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {ADMIN}"}) as session:
        assert (await session.post(f"http://{one.host}/v0/topics/t/diff", json={})).status == 200
    assert "not since this process started" not in (await one.get("/console/topics/t")).text
