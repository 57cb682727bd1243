"""Verifying a peer in the console: the comparison with its progress, and the results on the page of the link."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eventd.api.verify import operations
from eventd.console.pages import links
from eventd.testing import until
from tests.integration.console.conftest import MakeBrowser
from tests.integration.console.test_signing_in import READ
from tests.support.console_pages import Browser
from tests.support.declared import peer
from tests.support.sites import Site

LINK = "/console/links/edge/far"
FORM = {"group": "edge", "peer": "far", "back": LINK}


@pytest.fixture
async def far(site: Site, tmp_path: Path) -> AsyncIterator[Site]:
    """A peer that has two events of the node."""
    far = await Site("far", tmp_path).start()
    await far.join(site)
    await site.apply(peer("far", far.port))
    await site.emit("e1", "e2")
    await site.caught_up("far")
    yield far
    await far.stop()


async def signed_in(site: Site, browser: MakeBrowser) -> Browser:
    one = browser(site)
    await one.sign_in(READ)
    return one


async def test_a_peer_is_compared_and_the_results_stay_with_the_link(
    site: Site, far: Site, browser: MakeBrowser
) -> None:
    one = await signed_in(site, browser)
    assert "Newest verifications" not in (await one.get(LINK)).text
    done = await one.post("/console/do/links.verify", **FORM)
    assert done.heading == "Comparison with far"
    assert 's-clean">clean' in done.text
    assert (await one.get(done.url)).text.count('<tr id="v-') == 1
    shown = await one.get(LINK)
    assert "Newest verifications" in shown.text
    assert re.search(r's-clean">clean</span></td>\s*<td class="n">2</td>', shown.text)


async def test_a_comparison_continues_by_itself_and_its_page_shows_the_result(
    site: Site, far: Site, browser: MakeBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "_SECONDS", 0)
    monkeypatch.setattr(operations, "_SLICE_SECONDS", 0.0)
    one = await signed_in(site, browser)
    begun = await one.post("/console/do/links.verify", **FORM)
    (run,) = re.findall(r"run=(\w+)", begun.url)

    async def ended() -> bool:
        return "s-clean" in (await one.get(f"{LINK}/comparison?run={run}")).text

    await until(ended, "the comparison to end without another request that continues it")
    assert "s-clean" in (await one.get(LINK)).text


async def test_a_comparison_ends_with_the_session_that_began_it(
    site: Site, far: Site, browser: MakeBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "_SECONDS", 0)
    held, go_on = asyncio.Event(), asyncio.Event()

    async def advance(*_: object) -> tuple[bool, str]:
        held.set()
        await go_on.wait()
        return False, ""

    monkeypatch.setattr(operations, "_advance", advance)
    one, other = await signed_in(site, browser), await signed_in(site, browser)
    await one.post("/console/do/links.verify", **FORM)
    await held.wait()
    await one.post("/console/sign-out")
    go_on.set()

    async def ended() -> bool:
        return "the session of the console that began it has ended" in (await other.get(LINK)).text

    await until(ended, "the comparison to end with its session")


async def test_a_comparison_that_is_not_known_is_not_found(site: Site, far: Site, browser: MakeBrowser) -> None:
    one = await signed_in(site, browser)
    for query in ("", "?run=0123456789abcdef", "?run=<b>"):
        assert (await one.get(f"{LINK}/comparison{query}")).status == 404
    assert (await one.post("/console/do/links.verify", **FORM | {"peer": "none"})).status == 404


async def test_a_peer_that_does_not_answer_is_reported(site: Site, far: Site, browser: MakeBrowser) -> None:
    await far.stop()
    one = await signed_in(site, browser)
    assert (await one.post("/console/do/links.verify", **FORM)).status == 503
    await far.start()
