"""Datagrams that are lost or overtaken cost time, and no byte of a stream that stays open."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from eventd.quic.client import connect
from eventd.quic.trust import ServerTrust
from eventd.runtime.clock import SystemClock
from tests.support.aioquic_client import RawClient, connected
from tests.support.lossy_relay import lossy
from tests.support.quic_ends import LinkNotes, Served, serve

STREAMS, ROUNDS = 12, 20


def pieces(number: int) -> list[bytes]:
    """Return what one stream sends, piece by piece."""
    chance = random.Random(number)
    return [b"%d %d " % (number, at) * chance.randint(1, 500) for at in range(ROUNDS)]


async def with_the_second_library(port: int, served: Served) -> None:
    async with connected(port, seconds=20) as client:
        await asyncio.gather(*(echo_raw(client, number) for number in range(STREAMS)))


async def echo_raw(client: RawClient, number: int) -> None:
    stream = client.open()
    sent = b""
    for piece in pieces(number):
        sent += piece
        stream.write(piece)
        await client.wait(lambda: len(stream.data) >= len(sent) or client.is_closed, "the echo", 30)  # noqa: B023
    assert bytes(stream.data) == sent, client.closed_by


async def with_the_own_library(port: int, served: Served) -> None:
    link = LinkNotes()
    trust, clock = ServerTrust(ca=served.ca), SystemClock()
    link.link = await connect("127.0.0.1", port, link, trust=trust, clock=clock, seconds=20.0)
    await asyncio.gather(*(echo(link, number) for number in range(STREAMS)))
    link.link.close()


async def echo(link: LinkNotes, number: int) -> None:
    notes = link.open()
    sent = b""
    for piece in pieces(number):
        sent += piece
        notes.stream.write(piece)
        await notes.until(lambda it: len(it.data) >= len(sent) or it.is_lost)  # noqa: B023
    assert notes.data == sent, link.end


@pytest.mark.parametrize("talk", [with_the_second_library, with_the_own_library])
async def test_losses_and_another_order_cost_no_byte(
    tmp_path: Path, chance: random.Random, talk: Callable[[int, Served], Awaitable[None]]
) -> None:
    async with serve(tmp_path) as served, lossy(served.server.address[1], chance, 0.03) as relay:
        await talk(relay.port, served)
        assert relay.lost
        assert served.failures == []
