"""The clock of a simulated machine: its wall time may be wrong, drift and be set; its other times never go back."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import msgspec

from eventd.runtime.clock import SECOND
from eventd.simulation.world.loop import BEGIN, VirtualLoop

EPOCH: Final = 1_790_000_000
"""The true wall time when a run begins, in seconds since 1970."""
Seconds = Annotated[float, msgspec.Meta(ge=0.0)]
"""Virtual seconds in a plan: since the begin of the load, or how long something lasts."""


class WallTime:
    """How the wall time of a machine differs from the true one: `offset` in seconds, `drift` in seconds per second."""

    def __init__(self, offset: float = 0.0, drift: float = 0.0) -> None:
        self.offset = offset
        self.drift = drift

    def correct(self) -> None:
        """Show the true time from now on."""
        self.offset = self.drift = 0.0


class VirtualClock:
    """The `Clock` of one process on a machine with this wall time."""

    def __init__(self, loop: VirtualLoop, wall: WallTime) -> None:
        self._loop = loop
        self._wall = wall
        self._origin = self.now() - self._monotonic_micros()

    def now(self) -> int:
        passed = self._loop.time() - BEGIN
        return round((EPOCH + passed * (1.0 + self._wall.drift) + self._wall.offset) * SECOND)

    def monotonic(self) -> float:
        return self._loop.time()

    def steady(self) -> int:
        return self._origin + self._monotonic_micros()

    def _monotonic_micros(self) -> int:
        return round(self._loop.time() * SECOND)

    async def sleep(self, seconds: float) -> None:
        await self._loop.pause(max(0.0, seconds))

    def timer(self, seconds: float) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        handle = self._loop.call_later(seconds, lambda: None if future.done() else future.set_result(None))
        future.add_done_callback(lambda _: handle.cancel())
        return future
