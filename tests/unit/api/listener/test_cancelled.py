"""A listener whose start or stop is cancelled half-way leaves no socket open."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from aiohttp import web

from eventd.api.listener.connection_limiter import ConnectionLimiter
from eventd.api.listener.connections import open_site_at
from eventd.api.listener.runner import Runner
from eventd.runtime.chance import SYSTEM
from eventd.testing import give_turns
from tests.unit.api.listener.test_parsing import Figures

TURNS = range(1, 6)


def _listeners() -> list[socket.socket]:
    return [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]


async def _cancel_after(turns: int, work: Any) -> None:
    task = asyncio.ensure_future(work)
    await give_turns(turns)
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.parametrize("turns", TURNS)
async def test_a_cancelled_start_leaves_no_socket(turns: int) -> None:
    runner, listeners = Runner(web.Application(), SYSTEM), _listeners()
    await runner.setup()
    await _cancel_after(turns, open_site_at(runner, ConnectionLimiter("", 1, Figures()), listeners))
    await runner.cleanup()
    assert [each.fileno() for each in listeners] == [-1, -1]


@pytest.mark.parametrize("turns", TURNS)
async def test_a_cancelled_stop_can_be_repeated(turns: int, caplog: pytest.LogCaptureFixture) -> None:
    runner, listeners = Runner(web.Application(), SYSTEM), _listeners()
    await runner.setup()
    await open_site_at(runner, ConnectionLimiter("", 1, Figures()), listeners)
    await _cancel_after(turns, runner.cleanup())
    await runner.cleanup()
    await give_turns()
    assert [each.fileno() for each in listeners] == [-1, -1]
    assert not caplog.records, "the loop reports a future that is done twice"
