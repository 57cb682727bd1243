"""Callbacks in the console: listed, shown with their attempts and rates, tried out, sent to again, moved, paused."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from eventd.testing import until
from tests.integration.console.conftest import KEYS, MakeBrowser
from tests.integration.console.test_signing_in import ADMIN, READ
from tests.support.callback_receivers import Receiver, Reply
from tests.support.console_pages import Answer, Browser
from tests.support.declared import callback
from tests.support.sites import Site

URL = "/console/callbacks/hook"
FORM = {"callback": "hook", "back": URL}


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = await Receiver().start()
    yield receiver
    await receiver.stop()


@pytest.fixture
async def called(site: Site, receiver: Receiver) -> Site:
    """A node with a callback, to which two events were sent."""
    await site.stop()
    await site.start(api_keys=KEYS, callback_allow="127.0.0.1,::1")
    url = receiver.url.replace("127.0.0.1", "localhost")
    await site.apply(callback("hook", url=url, allowPlain=True))
    await site.emit("e1", "e2")
    await until(lambda: receiver.events == ["e1", "e2"], "both events")
    await settle(site)
    return site


async def settle(site: Site) -> None:
    """Wait until all events were sent to the callback."""

    async def settled() -> bool:
        (one,) = (await site.ask("callbacks.list"))["callbacks"]
        return bool(one["position"] == one["head"])

    await until(settled, "the callback to reach the end")


async def confirm(one: Browser, operation: str, **form: Any) -> tuple[Answer, Answer]:
    """Choose, and then confirm what the question shows; return both answers."""
    asked = await one.post(f"/console/do/{operation}", asked="yes", **FORM, **form)
    (seen,) = re.findall(r'name="seen" value="([^"]*)"', asked.text)
    return asked, await one.post(f"/console/do/{operation}", asked="yes", seen=seen, **FORM, **form)


async def test_a_callback_is_shown_paused_and_resumed(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(ADMIN)
    assert "No callback yet." in (await one.get("/console/callbacks")).text
    await site.apply(callback("hook"))
    assert f'href="{URL}"' in (await one.get("/console/callbacks")).text
    assert (await one.get(URL)).heading == "hook"
    assert (await one.get("/console/callbacks/other")).status == 404
    assert "The callback is paused." in (await one.post("/console/do/callbacks.pause", asked="yes", **FORM)).text
    assert "The callback resumes at once." in (await one.post("/console/do/callbacks.resume", **FORM)).text


async def test_the_answer_to_a_test_message_is_shown(called: Site, browser: MakeBrowser, receiver: Receiver) -> None:
    one = browser(called)
    await one.sign_in(ADMIN)
    receiver.answer = lambda _: Reply(503, b"<b>down</b>")
    tested = await one.post("/console/do/callbacks.test", **FORM)
    assert (tested.status, tested.heading) == (200, "Test of hook")
    assert "The endpoint did not accept the test message: http_503" in tested.text
    assert ("&lt;b&gt;down" in tested.text, "<b>down" in tested.text) == (True, False)
    receiver.answer = lambda _: Reply()
    assert "accepted the test message" in (await one.post("/console/do/callbacks.test", **FORM)).text


async def test_events_are_sent_again_by_id_after_a_dry_run(
    called: Site, browser: MakeBrowser, receiver: Receiver
) -> None:
    one = browser(called)
    await one.sign_in(ADMIN)
    form = await one.get("/console/do/callbacks.resend?callback=hook")
    assert 'name="ids"' in form.text
    asked, done = await confirm(one, "callbacks.resend", ids="e1")
    assert "Sends 1 event again: e1" in asked.text
    assert "The events are sent again." in done.text
    await until(lambda: receiver.events == ["e1", "e2", "e1"], "e1 once more")
    unknown = await one.post("/console/do/callbacks.resend", asked="yes", ids="e9", **FORM)
    assert "Nothing was changed: nothing is sent again" in unknown.text
    assert "/console/do/callbacks.resend?" in (await one.get(URL)).text


async def test_an_event_is_sent_again_from_its_page_also_with_a_blank_in_its_id(
    called: Site, browser: MakeBrowser, receiver: Receiver
) -> None:
    await called.emit("e 3")
    one = browser(called)
    await one.sign_in(ADMIN)
    found: list[str] = []

    async def offered() -> bool:
        page = await one.get("/console/events/edge/e%203")
        found[:] = re.findall(r'href="(/console/do/callbacks.resend[^"]*)"', page.text)
        return bool(found)

    await until(offered, "the event to be delivered")
    asked = await one.get(found[0].replace("&amp;", "&"))
    assert "Sends 1 event again: e 3" in asked.text
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', asked.text))
    assert "The events are sent again." in (await one.post("/console/do/callbacks.resend", **fields)).text


async def test_a_span_of_time_is_sent_again_after_a_dry_run(
    called: Site, browser: MakeBrowser, receiver: Receiver
) -> None:
    one = browser(called)
    await one.sign_in(ADMIN)
    asked, done = await confirm(one, "callbacks.replay", since="1h", what="all events of that time")
    assert "Sends 2 events again." in asked.text
    assert "The events are sent again." in done.text
    await until(lambda: receiver.events == ["e1", "e2"] * 2, "both once more")
    failed = await one.post(
        "/console/do/callbacks.replay", asked="yes", since="1h", what="only its dead letters of that time", **FORM
    )
    assert "there is nothing to send to hook again" in failed.text


async def test_the_number_of_many_events_is_typed_once_it_was_asked_for(called: Site, browser: MakeBrowser) -> None:
    await called.emit(*(f"m{number}" for number in range(120)))
    await settle(called)
    one = browser(called)
    await one.sign_in(ADMIN)
    url, form = "/console/do/callbacks.reset", {"where": "the oldest stored event", "asked": "yes", **FORM}
    asked = await one.post(url, **form)
    assert (asked.status, "122 events are sent again." in asked.text) == (200, True)
    assert ('name="sure"' in asked.text, 'role="alert"' in asked.text) == (True, False)
    (seen,) = re.findall(r'name="seen" value="([^"]*)"', asked.text)
    unsure = await one.post(url, seen=seen, **form)
    assert (unsure.status, "type 122 to confirm" in unsure.text) == (422, True)
    assert "The callback was moved." in (await one.post(url, seen=seen, sure="122", **form)).text


async def test_a_callback_is_moved_after_a_dry_run(called: Site, browser: MakeBrowser, receiver: Receiver) -> None:
    one = browser(called)
    await one.sign_in(ADMIN)
    asked, done = await confirm(one, "callbacks.reset", where="the oldest stored event")
    assert "2 events are sent again." in asked.text
    assert "The callback was moved." in done.text
    await until(lambda: receiver.events == ["e1", "e2"] * 2, "both once more")


async def test_the_share_of_accepted_requests_and_charts_are_shown(
    called: Site, browser: MakeBrowser, receiver: Receiver
) -> None:
    one = browser(called)
    await one.sign_in(READ)

    async def drawn() -> bool:
        return 'aria-label="Requests: now ' in (await one.get(URL)).text

    shown = [""]

    async def counted() -> bool:
        text = (await one.get(URL)).text
        shown[:] = re.findall(r"<dt>Accepted in 15 min</dt><dd>([^<]*)</dd>", text) or [text]
        return re.fullmatch(r"100 % of \d requests?", shown[0]) is not None

    await until(drawn, "the first samples of the callback", seconds=25)
    await called.emit("e3")  # what was sent before the first sample is in no rate
    try:
        await until(counted, "a sample with the request", seconds=25)
    except AssertionError as error:
        raise AssertionError(f"{error}; shown: {shown[0][-2000:]}; received: {receiver.events}") from None
    assert "100 % of" in (await one.get("/console/callbacks")).text
    assert "/console/do/" not in (await one.get(URL)).text
