"""The limit of connections to one scheme, host and port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from eventd.net.exchange import Exchange

MOST_CONNECTIONS: Final = 16
"""Maximum number of connections to one scheme, host and port, over all requests that share the limit."""


class OriginLimit:
    """Gives requests their turn, in the order in which they arrive, so that there are at most `MOST_CONNECTIONS`.

    Idle connections count, too: they are closed when another request needs a new one.
    """

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(MOST_CONNECTIONS)
        self._present = 0
        self._at_work = 0
        self._idle: dict[Exchange, None] = {}  # the one used last is the last; one in use again is not free

    @property
    def is_unused(self) -> bool:
        """Return whether no request needs the limit, and it counts no open connection."""
        return not self._present and not any(exchange.is_free for exchange in self._idle)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for the turn, and have it. Cancelling a request that waits leaves its turn to the next."""
        self._present += 1
        try:
            async with self._turns:
                self._at_work += 1
                try:
                    yield
                finally:
                    self._at_work -= 1
        finally:
            self._present -= 1

    def make_room(self) -> None:
        """Close idle connections, the one that was used longest ago first, so that one more may be opened."""
        self._idle = {exchange: None for exchange in self._idle if exchange.is_free}
        while self._idle and self._at_work + len(self._idle) > MOST_CONNECTIONS:
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            oldest.close()

    def note_end(self, exchange: Exchange) -> None:
        """Note that a request over a connection has ended, and the connection is perhaps idle."""
        self._idle.pop(exchange, None)
        if exchange.is_free:
            self._idle[exchange] = None
