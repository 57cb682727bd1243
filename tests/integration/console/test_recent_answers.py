"""Answers that pages keep are forgotten when an action was done, and only then."""

from __future__ import annotations

import pytest

from eventd.console.view.recent import RecentAnswers
from tests.integration.console.conftest import KEYS, MakeBrowser
from tests.integration.console.test_signing_in import ADMIN, READ
from tests.support.declared import peer
from tests.support.sites import Site

RESUME = "/console/do/links.resume"


async def test_an_action_that_is_refused_or_fails_leaves_the_answers_as_they_are(
    site: Site, browser: MakeBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten: list[RecentAnswers] = []
    monkeypatch.setattr(RecentAnswers, "forget", lambda answers: forgotten.append(answers))
    await site.stop()
    await site.start(api_keys=KEYS)
    await site.apply(peer("b", 1))
    admin, reader = browser(site), browser(site)
    await admin.sign_in(ADMIN)
    await reader.sign_in(READ)
    assert (await reader.post(RESUME, group="edge", peer="b")).status == 403
    assert (await admin.post(RESUME, group="edge", peer="none")).status == 404
    asked = await admin.post("/console/do/links.pause", group="edge", peer="b")
    assert (asked.status, "asked" in asked.text) == (200, True)
    assert not forgotten
    await site.ask("links.pause", group="edge", peer="b")
    assert (await admin.post(RESUME, group="edge", peer="b", follow=False)).status == 303
    assert len(forgotten) == 1
