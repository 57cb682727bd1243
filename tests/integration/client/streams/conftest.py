"""A scripted server of streams, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eventd.client import StreamClient
from tests.support.scripted_streams import ScriptedServer, scripted_server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ScriptedServer]:
    async with scripted_server(tmp_path) as made:
        yield made


@pytest.fixture
async def streams(server: ScriptedServer) -> AsyncIterator[StreamClient]:
    async with StreamClient(server.address, "t1", "secret", ca=server.ca) as opened:
        yield opened
