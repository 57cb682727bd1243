"""Subscriptions in the console: their states, their runs, and the actions on them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from eventd.testing import until
from tests.integration.console.conftest import MakeBrowser
from tests.integration.console.test_signing_in import ADMIN, EDGE, READ
from tests.support.console_pages import Browser
from tests.support.derived import OBSERVED, plugin, program, subscription
from tests.support.sites import Site

URL = "/console/subscriptions/edge/claims"
FAILING = "print('<b>no route</b>', file=sys.stderr); sys.exit(42)"


async def fail_once(site: Site, directory: Path) -> None:
    """Apply a subscription whose plugin fails, and wait until its event is a dead letter."""
    await site.apply(plugin(program(directory, FAILING)), subscription(retry={"maxAttempts": 1}))
    await site.emit("e1", type=OBSERVED, subject="10.88.60.9/32")

    async def refused() -> bool:
        (one,) = (await site.ask("subscriptions.list"))["subscriptions"]
        return bool(one["deadLetters"])

    await until(refused, "the run to fail", seconds=20)


async def test_a_subscription_shows_its_runs_with_their_errors(
    site: Site, browser: MakeBrowser, tmp_path: Path
) -> None:
    await fail_once(site, tmp_path)
    one = browser(site)
    await one.sign_in(READ)
    listed = (await one.get("/console/subscriptions")).text
    assert (f'href="{URL}"' in listed, 's-degraded">degraded' in listed) == (True, True)
    shown = await one.get(URL)
    assert (shown.status, shown.heading) == (200, "claims")
    letters = "/console/dead-letters?kind=subscription&amp;owner=claims&amp;group=edge"
    assert f'<dt>Dead letters</dt><dd><a class="hot" href="{letters}">1</a></dd>' in shown.text
    assert 'href="/console/events/edge/e1"' in shown.text
    assert "<pre>&lt;b&gt;no route&lt;/b&gt;" in shown.text
    assert "<b>no route" not in shown.text
    assert '<span class="reason">dead letter</span>' in shown.text
    assert "/console/do/" not in shown.text
    assert "No run on this page" in (await one.get(f"{URL}?status=succeeded")).text
    assert (await one.get("/console/subscriptions/edge/nobody")).status == 404


async def test_an_empty_list_says_what_to_do(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(EDGE)
    assert "No subscription yet." in (await one.get("/console/subscriptions")).text
    assert "No subscription yet." in (await one.get("/console/subscriptions?group=edge")).text
    assert (await one.get("/console/subscriptions?group=other")).status == 403


async def move(one: Browser, form: dict[str, Any]) -> None:
    """Move a subscription that has one dead letter, and nothing else, behind its newest event."""
    url = "/console/do/subscriptions.reset"
    refused = await one.post(url, asked="yes", where="the time below", since="", **form)
    assert "Nothing was changed: the time is empty" in refused.text
    oldest = await one.post(url, asked="yes", where="the oldest stored event", **form)
    assert "1 event is run again." in oldest.text
    assert "1 dead letter after the new position is dropped." in oldest.text
    seen = re.findall(r'name="seen" value="([^"]*)"', oldest.text)
    newest = await one.post(url, asked="yes", where="after the newest event", seen=seen[0], **form)
    assert "0 events are run again." in newest.text, "another choice than the one that was shown is shown first"
    seen = re.findall(r'name="seen" value="([^"]*)"', newest.text)
    done = await one.post(url, asked="yes", where="after the newest event", seen=seen[0], **form)
    assert "The subscription was moved." in done.text


async def test_a_subscription_is_paused_resumed_retried_and_reset(
    site: Site, browser: MakeBrowser, tmp_path: Path
) -> None:
    await fail_once(site, tmp_path)
    one = browser(site)
    await one.sign_in(ADMIN)
    form: dict[str, Any] = {"group": "edge", "subscription": "claims", "back": URL}
    asked = await one.post("/console/do/subscriptions.pause", **form)
    assert asked.heading == "Pause claims?"
    paused = await one.post("/console/do/subscriptions.pause", by="<i>Ann</i>", asked="yes", **form)
    assert "Paused: &lt;i&gt;Ann&lt;/i&gt;" in paused.text
    await move(one, form)
    (state,) = (await site.ask("subscriptions.list"))["subscriptions"]
    assert (state["state"], state["position"]) == ("paused", state["head"])
    assert "<dt>Waiting</dt><dd>0</dd>" in (await one.get(URL)).text
    retried = await one.post("/console/do/subscriptions.retry", asked="yes", **form)
    assert "The dead letters that can be retried run again." in retried.text
    resumed = await one.post("/console/do/subscriptions.resume", **form)
    assert "The subscription resumes at once." in resumed.text
    actions = list(dict.fromkeys(action["operation"] for action in (await site.ask("actions.list"))["actions"]))
    assert actions[:4] == [f"subscriptions.{name}" for name in ("resume", "retry", "reset", "pause")]


async def test_links_of_a_group_that_does_not_exist_say_so(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(READ)
    shown = await one.get("/console/links?group=other")
    assert (shown.status, "there is no group" in shown.text, "No group has a peer" in shown.text) == (404, True, False)
