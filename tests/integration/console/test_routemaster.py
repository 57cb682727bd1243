"""The Routemaster surface in the console: topics, subscribers, and tokens, each of which is shown once."""

from __future__ import annotations

import re

from eventd.log.routemaster.publish import PublishedEvent, PublishEvent
from eventd.log.routemaster.subscriptions import PutSubscriber, SubscriptionSettings
from eventd.log.routemaster.surface_topic import surface_topic_config
from tests.integration.console.conftest import MakeBrowser
from tests.integration.console.test_signing_in import ADMIN, EDGE, READ
from tests.support.sites import Site

URL = "/console/routemaster"


async def use_surface(site: Site) -> None:
    """Publish an event of a topic that one client has subscribed to."""
    log = site.running.log
    wanted = SubscriptionSettings(("orders",), "https://app.example/", "a-secret-uuid")
    await log.submit(PutSubscriber("app--1", wanted, config=surface_topic_config(), random=bytes(16)))
    event = PublishedEvent("orders", "create", "https://a")
    await log.submit(
        PublishEvent(event, "shop--1", flushes=log.flushes, config=surface_topic_config(), random=bytes(16))
    )


async def test_topics_and_subscribers_are_shown_without_a_secret(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(READ)
    assert "No topic yet." in (await one.get(URL)).text
    assert "No topic yet." not in (await one.get(f"{URL}?q=zzz")).text, "a filter was given"
    await use_surface(site)
    shown = (await one.get(URL)).text
    assert '<th scope="row">orders</th><td>shop--1</td>' in shown
    assert 'href="/console/callbacks/rm%2Fapp--1"' in shown
    assert "a-secret-uuid" not in shown
    assert "Your key may not see the tokens." in shown
    assert "/console/do/" not in shown
    assert "No topic matches." in (await one.get(f"{URL}?q=other")).text
    assert (await one.get("/console/callbacks/rm%2Fapp--1")).heading == "rm/app--1"


async def test_a_token_is_created_rotated_and_revoked_and_shown_once(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(ADMIN)
    created = await one.post("/console/do/routemaster.create_token", name="shop", asked="yes", back=URL)
    (token,) = re.findall(r"<pre[^>]*>([^<]+)</pre>", created.text)
    assert (created.heading, token.startswith("shop")) == ("Token shop", True)
    listed = (await one.get(URL)).text
    assert token not in listed
    handle = (await site.ask("routemaster.tokens"))["tokens"][0]["handle"]
    asked = await one.get(f"/console/do/routemaster.rotate_token?handle={handle}")
    assert asked.heading == "Rotate the token shop?"
    rotated = await one.post("/console/do/routemaster.rotate_token", handle=handle, grace="1h", asked="yes", back=URL)
    (second,) = re.findall(r"<pre[^>]*>([^<]+)</pre>", rotated.text)
    assert second not in ("", token)
    for known in (await site.ask("routemaster.tokens"))["tokens"]:
        form = {"handle": known["handle"], "asked": "yes", "back": URL}
        assert "The token is deleted." in (await one.post("/console/do/routemaster.revoke_token", **form)).text
    assert (await site.ask("routemaster.tokens"))["tokens"] == []
    assert (await one.get(f"/console/do/routemaster.revoke_token?handle={handle}")).status == 404


async def test_a_claim_is_released_and_handed_over(site: Site, browser: MakeBrowser) -> None:
    await use_surface(site)
    client = (await site.ask("routemaster.create_token", name="other"))["identity"]
    one = browser(site)
    await one.sign_in(ADMIN)
    form = {"name": "orders", "asked": "yes", "back": URL}
    assert (await one.post("/console/do/routemaster.claim", **form)).status == 400
    await one.post("/console/do/routemaster.claim", what="release it: the next publisher claims the topic", **form)
    assert (await site.ask("routemaster.topics"))["topics"][0]["publisher"] is None
    await one.post("/console/do/routemaster.claim", what="hand it over to the client below", to=client, **form)
    assert (await site.ask("routemaster.topics"))["topics"][0]["publisher"] == client


async def test_a_key_of_some_groups_learns_why_it_sees_nothing(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(EDGE)
    shown = await one.get(URL)
    assert (shown.status, "limited to some names" in shown.text) == (200, True)
