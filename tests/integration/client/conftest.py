"""A client of /v0 over a real server, and one behind a network with faults."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from eventd.client import Client, Retry
from tests.support.flaky_proxy import FlakyProxy, proxy_for
from tests.support.v0 import Server, serving


class Pauses(list[float]):
    """Replaces sleeping: returns at once and records the duration."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.fixture
async def server(sqlite_url: str) -> AsyncIterator[Server]:
    async with serving(sqlite_url) as found:
        yield found


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with Client(server.url) as opened:
        yield opened


@pytest.fixture
async def network(server: Server) -> AsyncIterator[FlakyProxy]:
    async with proxy_for(server.url) as proxy:
        yield proxy


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
async def far(network: FlakyProxy, pauses: Pauses) -> AsyncIterator[Client]:
    """A client on the other side of the network."""
    async with Client(network.url, pause=pauses, retry=Retry(tries=5)) as opened:
        yield opened
