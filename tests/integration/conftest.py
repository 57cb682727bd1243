"""Nodes in this process that are stopped with the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from eventd.runtime.clock import Clock
from tests.support.sites import Site

MakeSites = Callable[..., list[Site]]


@pytest.fixture
async def sites(tmp_path: Path) -> AsyncIterator[MakeSites]:
    """`sites("a", "b")` creates nodes over SQLite, `urls` names other databases; all are stopped at the end."""
    made: list[Site] = []

    def make(*names: str, urls: list[str] | None = None, clock: Clock | None = None) -> list[Site]:
        found = [
            Site(name, tmp_path, url=url, clock=clock)
            for name, url in zip(names, urls or [""] * len(names), strict=True)
        ]
        made.extend(found)
        for site in found:
            site.others = made
        return found

    yield make
    for site in made:
        await site.stop()
    await asyncio.get_running_loop().shutdown_default_executor()  # its threads would outlive the test


@pytest.fixture
async def site(sites: MakeSites) -> Site:
    """One running node."""
    (made,) = sites("onprem")
    return await made.start()
