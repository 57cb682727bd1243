"""Callbacks in the console: listed, shown with their attempts, paused and resumed."""

from __future__ import annotations

from tests.integration.console.conftest import MakeBrowser
from tests.integration.console.test_signing_in import ADMIN
from tests.support.declared import callback
from tests.support.sites import Site


async def test_a_callback_is_shown_paused_and_resumed(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(ADMIN)
    assert "No callback yet." in (await one.get("/console/callbacks")).text
    await site.apply(callback("hook"))
    assert 'href="/console/callbacks/hook"' in (await one.get("/console/callbacks")).text
    assert (await one.get("/console/callbacks/hook")).heading == "hook"
    assert (await one.get("/console/callbacks/other")).status == 404
    form = {"callback": "hook", "asked": "yes", "back": "/console/callbacks/hook"}
    assert "The callback is paused." in (await one.post("/console/do/callbacks.pause", **form)).text
    assert "The callback resumes at once." in (await one.post("/console/do/callbacks.resume", **form)).text
