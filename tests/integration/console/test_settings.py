"""The settings of the node in the console: their values and origins, and of secrets only that they are set."""

from __future__ import annotations

from tests.integration.console.conftest import KEYS, MakeBrowser
from tests.integration.console.test_signing_in import ADMIN, READ
from tests.support.sites import Site


async def test_settings_are_shown_without_secrets(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(ADMIN)
    shown = await one.get("/console/settings")
    assert shown.heading.startswith("Settings")
    row = shown.text.partition('<tr id="st-api_keys">')[2].partition("</tr>")[0]
    assert ("EVENTD_API_KEYS" in row, "s-set" in row) == (True, True)
    assert not [key for key in KEYS.split(",") if key.partition(":")[0] in shown.text]
    some = await one.get("/console/settings?q=action_retention")
    assert some.text.count('<tr id="st-') == 1
    assert "No setting matches." in (await one.get("/console/settings?q=nothing-like-it")).text
    assert (await one.get("/console/settings?origin=default")).text.count('<tr id="st-') > 1


async def test_a_key_that_reads_sees_no_settings(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(READ)
    assert (await one.get("/console/settings")).status == 403
