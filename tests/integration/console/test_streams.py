"""Streams of open pages: they end when the browser leaves, and not only when something would have to be sent."""

from __future__ import annotations

from eventd.testing import until
from tests.integration.console.conftest import MakeBrowser
from tests.support.console_pages import Browser
from tests.support.sites import Site

STREAM = "/console/stream?view=/console/settings"
"""Nothing changes on this page."""


async def open_stream(one: Browser) -> int:
    """Open a stream, read its first event, and leave; return the status."""
    cookies = "; ".join(f"{name}={value}" for name, value in one.cookies.items())
    async with one._session.get(f"http://{one.host}{STREAM}", headers={"Cookie": cookies}) as answer:
        if answer.status == 200:
            assert (await answer.content.readline()).startswith(b"event: view")
        return answer.status


async def test_a_page_that_is_closed_leaves_room_for_another_although_nothing_changes(
    site: Site, browser: MakeBrowser
) -> None:
    await site.stop()
    await site.start(api_keys="adminkey-adminkey", max_console_streams=1)
    one = browser(site)
    await one.sign_in("adminkey-adminkey")
    assert await open_stream(one) == 200

    async def has_room() -> bool:
        return await open_stream(one) == 200

    await until(has_room, "the place of the page before to be free", seconds=5)
