"""A relay of datagrams that loses some of them and changes the order of others, in both directions."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any


class LossyRelay:
    """Relays the datagrams of one client to a server; `lost` and `relayed` count them.

    One of each `1 / share` is lost, at a random place among them, so that also a short talk loses some. Each takes up
    to `jitter` seconds, so that it may arrive before those sent earlier.
    """

    def __init__(self, chance: random.Random, share: float, jitter: float) -> None:
        self.share = share
        self.jitter = jitter
        self.lost = self.relayed = 0
        self.port = 0
        self._left = self._next_loss = 0
        self._chance = chance
        self._client: Any = None
        self.front: asyncio.DatagramTransport
        self.back: asyncio.DatagramTransport

    def to_server(self, data: bytes, address: Any) -> None:
        self._client = address
        self._relay(lambda: self.back.sendto(data))

    def to_client(self, data: bytes, address: Any) -> None:
        if self._client is not None:
            self._relay(lambda: self.front.sendto(data, self._client))

    def _relay(self, send: Callable[[], None]) -> None:
        if self._is_lost():
            self.lost += 1
            return
        self.relayed += 1
        asyncio.get_running_loop().call_later(self._chance.random() * self.jitter, self._send, send)

    def _is_lost(self) -> bool:
        if not self.share:
            return False
        if not self._left:
            self._left = round(1 / self.share)
            self._next_loss = self._chance.randrange(self._left)
        self._left -= 1
        return self._left == self._next_loss

    def _send(self, send: Callable[[], None]) -> None:
        if not self.front.is_closing():
            send()


class _Side(asyncio.DatagramProtocol):
    def __init__(self, take: Any) -> None:
        self.datagram_received = take


@asynccontextmanager
async def lossy(port: int, chance: random.Random, share: float, jitter: float = 0.002) -> AsyncIterator[LossyRelay]:
    """Relay to a port of this machine, and lose a share of the datagrams."""
    loop = asyncio.get_running_loop()
    relay = LossyRelay(chance, share, jitter)
    relay.front, _ = await loop.create_datagram_endpoint(lambda: _Side(relay.to_server), local_addr=("127.0.0.1", 0))
    relay.back, _ = await loop.create_datagram_endpoint(lambda: _Side(relay.to_client), remote_addr=("127.0.0.1", port))
    relay.port = relay.front.get_extra_info("sockname")[1]
    try:
        yield relay
    finally:
        relay.front.close()
        relay.back.close()
