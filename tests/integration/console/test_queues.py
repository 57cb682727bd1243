"""Queues in the console: their jobs by state, who holds them, extended and given back."""

from __future__ import annotations

import re
import time
from datetime import datetime
from html import unescape
from typing import Any

import aiohttp

from tests.integration.console.conftest import MakeBrowser
from tests.integration.console.test_signing_in import ADMIN, READ
from tests.integration.console.test_topics import create, signed_in, write
from tests.support.console_pages import Browser
from tests.support.sites import Site


async def with_jobs(site: Site, browser: MakeBrowser) -> Browser:
    """Return a visitor of a node whose queue has three jobs."""
    one = await signed_in(site, browser)
    await create(one, "todo", type="queue", lease_ms="60000", dead_letter="graves")
    for number in range(3):
        await write(one, "todo", str(number))
    return one


async def claim(one: Browser, node: str) -> int:
    """Claim a job as a client, and return its seq."""
    headers = {"Authorization": f"Bearer {ADMIN}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        answer = await session.post(f"http://{one.host}/v0/topics/todo/claim", json={"node": node})
        found: dict[str, Any] = await answer.json()
    seq: int = found["claimed"][0]["$seq"]
    return seq


def job(text: str, seq: int) -> str:
    """Return the text of the row of a job; empty without one."""
    found = re.search(rf'<tr id="j-{seq}">(.*?)</tr>', text, re.S)
    return found[1] if found else ""


async def test_a_queue_is_listed_with_its_jobs_and_its_oldest_ready_one(site: Site, browser: MakeBrowser) -> None:
    one = await with_jobs(site, browser)
    await create(one, "log")
    await claim(one, "w1")
    listed = (await one.get("/console/queues")).text
    assert re.findall('<tr id="q-([^"]*)"', listed) == ["todo"]
    shown = (await one.get("/console/queues/todo")).text
    assert ("<dt>Ready</dt><dd>2</dd>" in shown, "<dt>Leased</dt><dd>1</dd>" in shown) == (True, True)
    assert 'href="/console/topics/todo/records/2"' in shown, "the oldest ready job"
    assert "Dead letters go to the topic graves, which the first of them creates." in shown
    assert "w1" in job(shown, 1)
    assert (await one.get("/console/queues/log")).status == 409
    assert (await one.get("/console/queues/none")).status == 404


async def test_a_job_is_given_back_and_its_client_named_as_text(site: Site, browser: MakeBrowser) -> None:
    one = await with_jobs(site, browser)
    seq = await claim(one, "<b>w</b>")
    row = job((await one.get("/console/queues/todo")).text, seq)
    assert "&lt;b&gt;w&lt;/b&gt;" in row
    [url] = [unescape(url) for url in re.findall(r'href="([^"]*queues\.return[^"]*)"', row)]
    asked = await one.get(url)
    form = dict(re.findall('type="hidden" name="([^"]*)" value="([^"]*)"', asked.text))
    done = await one.post("/console/do/queues.return", **{name: unescape(text) for name, text in form.items()})
    assert "The job is back in its queue." in done.text
    assert ("<dt>Ready</dt><dd>3</dd>" in done.text, job(done.text, seq)) == (True, "")
    newest = (await site.ask("actions.list"))["actions"][0]
    assert (newest["operation"], newest["object"]) == ("POST /v0/topics/{topic}/nack", "topic todo")


async def test_a_job_that_its_client_does_not_hold_any_more_is_not_given_back(site: Site, browser: MakeBrowser) -> None:
    one = await with_jobs(site, browser)
    seq = await claim(one, "w1")
    form = {"topic": "todo", "node": "w2", "seq": str(seq), "asked": "yes", "lease_ms": "1000"}
    for operation in ("queues.return", "queues.extend"):
        answer = await one.post(f"/console/do/{operation}", **form)
        assert (answer.status, "does not hold the job any more" in answer.text) == (409, True), operation


async def test_a_lease_is_extended(site: Site, browser: MakeBrowser) -> None:
    one = await with_jobs(site, browser)
    seq = await claim(one, "w1")

    async def left() -> float:
        """Return the seconds until the lease ends."""
        [lease] = (await site.ask("queues.leases", topic="todo"))["leases"]
        return datetime.fromisoformat(lease["endsAt"]).timestamp() - time.time()

    assert await left() < 61
    form = {"topic": "todo", "node": "w1", "seq": str(seq), "asked": "yes", "back": "/console/queues/todo"}
    wrong = await one.post("/console/do/queues.extend", lease_ms="long", **form)
    assert (wrong.status, await left() < 61) == (400, True)
    done = await one.post("/console/do/queues.extend", lease_ms="3,600,000", **form)
    assert "The lease is extended." in done.text
    assert await left() > 3000


async def test_a_reader_sees_leases_and_no_buttons(site: Site, browser: MakeBrowser) -> None:
    one = await with_jobs(site, browser)
    seq = await claim(one, "w1")
    reader = await signed_in(site, browser, READ)
    shown = (await reader.get("/console/queues/todo")).text
    assert ("w1" in job(shown, seq), "/console/do/" in shown) == (True, False)


async def test_a_delay_is_ended(site: Site, browser: MakeBrowser) -> None:
    one = await with_jobs(site, browser)
    seq = await claim(one, "w1")
    held = {"topic": "todo", "node": "w1", "seq": str(seq), "asked": "yes", "back": "/console/queues/todo"}
    delayed = await one.post("/console/do/queues.return", delay_ms="3600000", **held)
    assert "<dt>Delayed</dt><dd>1</dd>" in delayed.text
    assert "/console/do/queues.release" in job(delayed.text, seq)
    form = {"topic": "todo", "seqs": str(seq), "back": "/console/queues/todo"}
    done = await one.post("/console/do/queues.release", **form)
    assert "The job is ready." in done.text
    assert ("<dt>Ready</dt><dd>3</dd>" in done.text, job(done.text, seq)) == (True, "")
    again = await one.post("/console/do/queues.release", **form)
    assert (again.status, "not delayed any more" in again.text) == (409, True)


async def test_dead_letters_are_retried(site: Site, browser: MakeBrowser) -> None:
    one = await signed_in(site, browser)
    await create(one, "todo", type="queue", dead_letter="graves", max_deliveries="1")
    await write(one, "todo", "1")
    seq = await claim(one, "w1")
    assert "queues.retry" not in (await one.get("/console/queues/todo")).text, "nothing was given up"
    await one.post("/console/do/queues.return", topic="todo", node="w1", seq=str(seq), asked="yes")
    await write(one, "todo", "2")
    assert await claim(one, "w1") == 2, "the first job was claimed as often as the queue allows"
    shown = await one.get("/console/queues/todo")
    assert "<dt>Dead letters so far</dt><dd>1</dd>" in shown.text
    asked = await one.get("/console/do/queues.retry?topic=todo&back=/console/queues/todo")
    assert "Up to 1 dead letter of todo is taken from graves, the oldest first. graves holds 1 record." in asked.text
    assert "/console/do/queues.retry" in (await one.get("/console/dead-letters?kind=queue")).text
    form = {"topic": "todo", "asked": "yes", "back": "/console/queues/todo"}
    done = await one.post("/console/do/queues.retry", **form)
    assert ("Dead letters are jobs again." in done.text, "<dt>Ready</dt><dd>1</dd>" in done.text) == (True, True)
    again = await one.post("/console/do/queues.retry", **form)
    assert (again.status, "no dead letter any more" in again.text) == (409, True)
