"""Surfaces that are stopped with the test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tests.support.routemaster import StartSurface, SurfaceServer, serving_surface


@pytest.fixture
async def start_surface(migrated_sqlite_url: str) -> AsyncIterator[StartSurface]:
    """Start a surface over the test's SQLite file, with options as `serving_surface` takes them."""
    async with AsyncExitStack() as stack:

        async def start(**options: object) -> SurfaceServer:
            return await stack.enter_async_context(serving_surface(migrated_sqlite_url, **options))  # type: ignore[arg-type]

        yield start


@pytest.fixture
async def surface(start_surface: StartSurface) -> SurfaceServer:
    """A surface over plain HTTP, which it does not redirect."""
    return await start_surface()


@pytest.fixture
async def stored(migrated_url: str) -> AsyncIterator[SurfaceServer]:
    """A surface over each of the databases, for behaviour in which they might differ."""
    async with serving_surface(migrated_url) as opened:
        yield opened
