"""A client that sends requests at a steady pace, whether or not earlier ones are answered: slow answers hide
no others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from eventd.bench.wire import HttpConnection, now
from tests.bench.wire import open_line, read_answer


class SteadyClient:
    """Seconds from the moment at which each request was due to its answer, by the `phase` of that moment."""

    def __init__(self, port: int, make: Callable[[int], bytes], every: float) -> None:
        self.phase = ""
        self.latencies: dict[str, list[float]] = {}
        self._port = port
        self._make = make
        self._every = every
        self._free: list[HttpConnection] = []
        self._asking: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Send requests until cancelled."""
        due, number = now(), 0
        while True:
            asking = asyncio.create_task(self._ask(number, due))
            self._asking.add(asking)
            asking.add_done_callback(self._asking.discard)
            number, due = number + 1, due + self._every
            await asyncio.sleep(max(0.0, due - now()))

    async def _ask(self, number: int, due: float) -> None:
        phase = self.phase
        line = self._free.pop() if self._free else await open_line(self._port)
        answer = read_answer(await line.ask(self._make(number)))
        self.latencies.setdefault(phase, []).append(now() - due)
        self._free.append(line)
        assert answer.status in (200, 201), answer

    async def end(self) -> None:
        """Wait for all answers; raises what failed."""
        await asyncio.gather(*self._asking)
        for line in self._free:
            line.close()


@asynccontextmanager
async def steady_client(port: int, make: Callable[[int], bytes], *, every: float) -> AsyncIterator[SteadyClient]:
    """Yield a client that sends `make(number)` at this interval while the block runs."""
    client = SteadyClient(port, make, every)
    running = asyncio.create_task(client.run())
    try:
        yield client
    finally:
        running.cancel()
        await client.end()
