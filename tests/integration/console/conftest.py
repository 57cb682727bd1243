from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.console_pages import Browser
from tests.support.sites import Site

KEYS = "readkey-readkey:r,adminkey-adminkey,edgekey-edgekey:r:edge"
MakeBrowser = Callable[[Site], Browser]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """A node with keys and a group."""
    site = Site("a", tmp_path)
    await site.start(api_keys=KEYS)
    await site.join()
    yield site
    await site.stop()


@pytest.fixture
async def open_site(tmp_path: Path) -> AsyncIterator[Site]:
    """A node whose callers need no key."""
    site = Site("open", tmp_path)
    await site.start()
    await site.join()
    yield site
    await site.stop()


@pytest.fixture
async def browser() -> AsyncIterator[MakeBrowser]:
    """Makes browsers without scripts, each with cookies of its own."""
    async with AsyncExitStack() as stack:

        def make(site: Site) -> Browser:
            session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
            stack.push_async_callback(session.close)
            assert site.running.api_address is not None
            return Browser(session, site.running.api_address[1])

        yield make


async def actions_of(site: Site) -> list[dict[str, Any]]:
    """Return the recorded actions of a node, the newest first, without sign-ins."""
    found: list[dict[str, Any]] = (await site.ask("actions.list"))["actions"]
    return [one for one in found if one["operation"] != "sessions.begin"]
