"""Servers of /v0 that are stopped with the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from tests.support.v0 import Server, serving

StartServer = Callable[..., Awaitable[Server]]


@pytest.fixture
async def start_server(migrated_sqlite_url: str) -> AsyncIterator[StartServer]:
    """Start a server over the test's SQLite file; `keys`, `clock` and limits as `serving` takes them."""
    async with AsyncExitStack() as stack:
        stack.push_async_callback(_end_threads)

        async def start(**flags: object) -> Server:
            return await stack.enter_async_context(serving(migrated_sqlite_url, **flags))  # type: ignore[arg-type]

        yield start


@pytest.fixture
async def server(start_server: StartServer) -> Server:
    """A server without keys."""
    return await start_server()


@pytest.fixture
async def stored(migrated_url: str) -> AsyncIterator[Server]:
    """A server over each of the databases, for behaviour in which they might differ."""
    async with serving(migrated_url) as opened:
        yield opened
    await _end_threads()


async def _end_threads() -> None:
    """End the loop's own threads, which read large bodies and would outlive the test."""
    await asyncio.get_running_loop().shutdown_default_executor()
