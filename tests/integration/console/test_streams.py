"""Streams of open pages: they end when the browser leaves, and not only when something would have to be sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable
from contextlib import AsyncExitStack, asynccontextmanager
from html import escape
from urllib.parse import urlencode

import pytest
from aiohttp import ClientResponse

from eventd.console.live.hub import Hub, LiveView, Render
from eventd.testing import until
from tests.integration.console.conftest import MakeBrowser
from tests.support.console_pages import Browser
from tests.support.sites import Site

STREAM = "/console/stream?view=/console/settings"
"""Nothing changes on this page."""


@asynccontextmanager
async def following(one: Browser, stream: str = STREAM, **cookies: str) -> AsyncIterator[ClientResponse]:
    """Follow a page, with further cookies."""
    sent = "; ".join(f"{name}={value}" for name, value in {**one.cookies, **cookies}.items())
    async with one._session.get(f"http://{one.host}{stream}", headers={"Cookie": sent}) as answer:
        yield answer


async def open_stream(one: Browser) -> int:
    """Open a stream, read its first event, and leave; return the status."""
    async with following(one) as answer:
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


async def test_a_page_that_leads_to_another_is_not_followed(site: Site, browser: MakeBrowser) -> None:
    await site.emit("e1")
    one = browser(site)
    await one.sign_in("adminkey-adminkey")
    async with following(one, "/console/stream?view=/console/events?id=e1") as answer:
        assert await answer.content.readline() == b"event: trouble\n"
        assert b"is not followed" in await answer.content.readline()


@pytest.mark.parametrize("name", ["a/b", "a%2Fb", "a+b c", "ü=#"])
async def test_a_filter_is_read_as_the_page_itself_reads_it(site: Site, browser: MakeBrowser, name: str) -> None:
    one = browser(site)
    await one.sign_in("adminkey-adminkey")
    view = f"/console/topics?{urlencode({'prefix': name})}"
    field = f'value="{escape(name)}"'
    assert field in (await one.get(view)).text
    async with following(one, f"/console/stream?{urlencode({'view': view})}") as answer:
        assert await answer.content.readline() == b"event: view\n"
        shown = await answer.content.readuntil(b"\n\n")
    assert field in shown.decode()


async def test_visitors_share_a_view_whatever_changes_only_its_frame(
    site: Site, browser: MakeBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[Hashable] = []
    enter = Hub.enter

    def noted(hub: Hub, key: Hashable, render: Render, *, packed: bool) -> LiveView:
        keys.append(key)
        return enter(hub, key, render, packed=packed)

    monkeypatch.setattr(Hub, "enter", noted)
    one = browser(site)
    await one.sign_in("adminkey-adminkey")
    settings: list[tuple[str, dict[str, str]]] = [
        (STREAM, {}),
        (f"{STREAM}?done=links.pause", {}),
        (STREAM, {"eventd-theme": "dark", "eventd-keys": "off"}),
        (STREAM, {"eventd-times": "utc"}),
    ]
    for stream, cookies in settings:
        async with following(one, stream, **cookies) as answer:
            assert await answer.content.readline() == b"event: view\n"
    assert keys[0] == keys[1] == keys[2] != keys[3]


@pytest.mark.parametrize("path", ["events/edge/e1/payload", "topics/t/records/1/data", "audits/a/report"])
async def test_a_file_is_not_followed(site: Site, browser: MakeBrowser, path: str) -> None:
    one = browser(site)
    await one.sign_in("adminkey-adminkey")
    async with following(one, f"/console/stream?view=/console/{path}") as answer:
        assert answer.status == 404


async def test_a_session_and_a_key_take_a_part_of_the_streams_and_their_pages_are_shown_without_one(
    site: Site, browser: MakeBrowser
) -> None:
    await site.stop()
    await site.start(api_keys="adminkey-adminkey,otherkey-otherkey", max_console_streams=10)
    one, again, other = browser(site), browser(site), browser(site)
    for each, key in ((one, "adminkey-adminkey"), (again, "adminkey-adminkey"), (other, "otherkey-otherkey")):
        await each.sign_in(key)
    async with AsyncExitStack() as stack:

        async def follow(each: Browser) -> int:
            answer = await stack.enter_async_context(following(each))
            if answer.status != 200:
                assert "are kept up to date already" in await answer.text()
            return answer.status

        assert [await follow(one) for _ in range(4)] == [200, 200, 200, 429], "of the session"
        assert [await follow(again) for _ in range(3)] == [200, 200, 429], "of the key"
        assert await follow(other) == 200
        assert (await one.get("/console/settings")).status == 200
