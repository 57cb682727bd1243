"""A listener waits for an address that the processes of a killed node still hold."""

from __future__ import annotations

import asyncio
import socket

import pytest

from eventd.api.listener.addresses import TAKEN_SECONDS, AddressTaken, listen
from eventd.errors import Unavailable
from eventd.testing import ManualClock, until


async def _end() -> None:
    await asyncio.get_running_loop().shutdown_default_executor()


async def test_an_address_that_becomes_free_is_had() -> None:
    clock = ManualClock()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listening = asyncio.ensure_future(listen("127.0.0.1", port, clock))
        await until(lambda: clock.waits, "it to wait")
    clock.advance(TAKEN_SECONDS / 2)
    (had,) = await listening
    assert had.getsockname() == ("127.0.0.1", port)
    had.close()
    await _end()


async def test_one_that_stays_taken_is_told() -> None:
    clock = ManualClock()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listening = asyncio.ensure_future(listen("127.0.0.1", port, clock))
        for _ in range(2):
            await until(lambda: clock.waits, "it to wait")
            assert not listening.done()
            clock.advance(TAKEN_SECONDS / 2)
        with pytest.raises(AddressTaken, match=f"cannot listen on 127.0.0.1 port {port}: Address already in use"):
            await listening
    await _end()


async def test_what_no_wait_can_change_is_told_at_once() -> None:
    with pytest.raises(Unavailable, match="Cannot assign requested address"):
        await listen("192.0.2.1", 0, ManualClock())
    await _end()
