"""Listeners of streams without QUIC, which are stopped with the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from tests.support.stream_channels import StreamsInMemory, streams_in_memory

StartStreams = Callable[..., Awaitable[StreamsInMemory]]


@pytest.fixture
async def start_streams(migrated_sqlite_url: str) -> AsyncIterator[StartStreams]:
    """Start a listener over the test's SQLite file; `clock`, `limits` and options as `streams_in_memory` takes them."""
    async with AsyncExitStack() as stack:

        async def start(**options: object) -> StreamsInMemory:
            return await stack.enter_async_context(streams_in_memory(migrated_sqlite_url, **options))  # type: ignore[arg-type]

        yield start


@pytest.fixture
async def streams(start_streams: StartStreams) -> StreamsInMemory:
    """A listener with the stream `t1/n/s`."""
    found = await start_streams()
    await found.server.put("stream:t1:n:s", durability="memory")
    return found
