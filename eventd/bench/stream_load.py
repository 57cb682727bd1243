"""Payloads with a number and a time, and what subscribers have received of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from struct import Struct
from typing import TYPE_CHECKING, Final

from eventd.bench.ledger import Ledger
from eventd.bench.quic_site import PATIENCE
from eventd.bench.wire import now
from eventd.errors import EventdError

if TYPE_CHECKING:
    from eventd.client import Event, Subscription

HEAD: Final = Struct("!Qd")
"""The head of a payload: its number, and the time of its publish, in seconds of the monotonic clock."""


class StreamLoad:
    """The payloads of one stream, each of `size` bytes: head and zeros.

    The ledger holds the numbers of the published ones.
    """

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.ledger = Ledger()
        self._zeros = bytes(size - HEAD.size)

    def make(self, numbers: Iterable[int]) -> list[bytes]:
        """Return the payloads with these numbers, published now."""
        moment, zeros = now(), self._zeros
        return [HEAD.pack(number, moment) + zeros for number in numbers]

    def read(self, payload: bytes) -> tuple[int, float] | None:
        """Return the number and the time of a payload; None if its bytes are not those that were published."""
        if payload[HEAD.size :] != self._zeros:
            return None
        number, moment = HEAD.unpack_from(payload)
        return int(number), float(moment)


class Deliveries:
    """Counts deliveries to all subscribers. Latencies are kept while `is_timed`."""

    def __init__(self) -> None:
        self.count = 0
        self.last = 0.0
        """The time at which the last delivery arrived."""
        self.latencies: list[float] = []
        self.is_timed = False
        self._wanted = 0
        self._reached: list[tuple[int, asyncio.Future[None]]] = []

    def add(self, latencies: list[float]) -> None:
        """Note deliveries that have just arrived."""
        self.count += len(latencies)
        self.last = now()
        if self.is_timed:
            self.latencies += latencies
        for wanted, reached in [*self._reached]:
            if self.count >= wanted:
                self._reached.remove((wanted, reached))
                if not reached.done():
                    reached.set_result(None)

    async def reach(self, wanted: int) -> bool:
        """Wait until this number of deliveries is reached. Returns False if none arrives for `PATIENCE` seconds."""
        while self.count < wanted:
            before = self.count
            reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._reached.append((wanted, reached))
            try:
                async with asyncio.timeout(PATIENCE):
                    await reached
            except TimeoutError:
                self._reached.remove((wanted, reached))
                if self.count == before:
                    return False
        return True


class StreamReader:
    """One subscriber of one stream: the numbers that it has received, in their order, and the problems that it
    found."""

    def __init__(self, load: StreamLoad, deliveries: Deliveries) -> None:
        self.numbers: list[int | str] = []
        self.problems: list[str] = []
        self._load = load
        self._deliveries = deliveries

    async def run(self, subscription: Subscription) -> None:
        """Read all events that arrive, until cancelled. An error of the subscription is noted as a problem."""
        try:
            await self._take_all(subscription)
        except EventdError as error:
            self.problems.append(f"a subscription ended: {error.message}")

    async def _take_all(self, subscription: Subscription) -> None:
        from eventd.client import StreamGap

        while found := await subscription.take():
            arrived, latencies = now(), list[float]()
            for sight in found:
                if isinstance(sight, StreamGap):
                    self.problems.append(f"records {sight.first} to {sight.last} are lost ({sight.reason})")
                else:
                    latencies.append(arrived - self._take(sight, arrived))
            self._deliveries.add(latencies)

    def _take(self, event: Event, arrived: float) -> float:
        if event.offset != len(self.numbers) and not self.problems:
            self.problems.append(f"the offset {event.offset} arrived instead of {len(self.numbers)}")
        found = self._load.read(event.payload)
        self.numbers.append("another payload" if found is None else found[0])
        return arrived if found is None else found[1]
