"""Limits the processor time for parsing bytes of unproven clients, and divides it among their addresses.

Some bytes cost a parser far more than others: a body in chunks of one byte costs a hundred times as much as one in a
single piece. So the time itself is limited, instead of each way to make it long.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

from eventd.runtime.clock import cpu_seconds

SHARE = 0.25
"""The fraction of a process's time for parsing bytes of unproven connections."""
BURST_SECONDS = 0.1
"""Up to the share of this many seconds may be used in one burst, ahead of time."""
READ_BYTES = 8 << 10
"""Maximum bytes that are read at once from an unproven connection, wait for its turn, and are parsed in that turn."""


class UntrustedConnection(Protocol):
    """The members used here of a connection that has not proven its sender."""

    address: str

    def parse(self, data: bytes) -> None: ...

    def hold_reading(self) -> None:
        """Stop reading until `release_reading`."""

    def release_reading(self) -> None: ...

    def abort(self) -> None:
        """Close the connection at once, without an answer: `parse` raised an exception.

        Bytes that are not HTTP raise none: the parser answers them with an error.
        """


class ParsingTime:
    """Parses the bytes of unproven clients within their share of time. Beyond it, connections wait.

    Turns go to the address that has used the least time, so an address with cheap bytes does not wait for one with
    expensive bytes. An address that is new, or returns, starts with as much used time as every waiting address could
    have used so far: otherwise a stream of new addresses would always be served first.
    """

    def __init__(self, cpu: Callable[[], float] = cpu_seconds) -> None:
        """`cpu`: returns the seconds of processor time that the thread has used."""
        self._cpu = cpu
        self._used_until = 0.0  # by the loop's clock: when the share has made up for the used time
        self._spent = 0.0  # seconds, for all parsing
        self._waiting: dict[str, OrderedDict[UntrustedConnection, bytes]] = {}  # by address, the next connection first
        self._used: OrderedDict[str, float] = OrderedDict()  # seconds, of addresses that are ahead and do not wait
        self._floor = 0.0  # seconds that an address which always waited has used, with equal turns for all
        self._order: list[tuple[float, int, str]] = []  # a heap of waiting addresses with their used time
        self._ranked: set[str] = set()  # the addresses in it
        self._count = itertools.count()  # among equals, first come, first served
        self._next_turn: asyncio.TimerHandle | None = None

    def parse(self, stranger: UntrustedConnection, data: bytes) -> None:
        """Parse these bytes, now or in their turn. The connection is not read from while it waits."""
        if not self._waiting and not self._seconds_to_wait():
            self._parse(stranger, data)
            return
        if stranger.address not in self._waiting:
            used = max(self._used.pop(stranger.address, 0.0), self._floor)
            self._enqueue(stranger.address, OrderedDict(), used)
        held = self._waiting[stranger.address]
        held[stranger] = held.get(stranger, b"") + data
        stranger.hold_reading()
        self._await_turn()

    def leave(self, stranger: UntrustedConnection) -> None:
        """Drop the waiting bytes of a connection that has ended."""
        if (held := self._waiting.get(stranger.address)) is not None:
            held.pop(stranger, None)
            if not held:
                del self._waiting[stranger.address]

    def _enqueue(self, address: str, held: OrderedDict[UntrustedConnection, bytes], used: float) -> None:
        self._waiting[address] = held
        if address not in self._ranked:  # as if all its connections had ended and others arrived
            self._ranked.add(address)
            heappush(self._order, (used, next(self._count), address))

    def _parse(self, stranger: UntrustedConnection, data: bytes) -> None:
        begun = self._cpu()
        try:
            stranger.parse(data)
        finally:
            seconds = self._cpu() - begun
            self._spent += seconds
            self._used_until = max(self._used_until, asyncio.get_running_loop().time()) + seconds / SHARE

    def _seconds_to_wait(self) -> float:
        return max(0.0, self._used_until - asyncio.get_running_loop().time() - BURST_SECONDS)

    def _await_turn(self) -> None:
        if self._next_turn is None:
            loop = asyncio.get_running_loop()
            self._next_turn = loop.call_later(self._seconds_to_wait(), self._take_turns)

    def _take_turns(self) -> None:
        self._next_turn = None
        try:
            while self._waiting and not self._seconds_to_wait():
                self._take_turn()
        finally:
            if self._waiting:
                self._await_turn()
            else:
                self._floor = 0.0
                self._used.clear()
                self._order.clear()
                self._ranked.clear()

    def _take_turn(self) -> None:
        used, _, address = heappop(self._order)
        self._ranked.discard(address)
        self._floor = max(self._floor, used)
        if (held := self._waiting.pop(address, None)) is None:
            return  # its connections have ended
        stranger, data = held.popitem(last=False)
        before = self._spent
        try:
            self._parse(stranger, data)
            stranger.release_reading()
        except BaseException:
            stranger.abort()
            raise
        finally:
            self._charge(address, held, used, self._spent - before)

    def _charge(self, address: str, held: OrderedDict[UntrustedConnection, bytes], used: float, seconds: float) -> None:
        """Charge an address for a turn: it had used `used` seconds before, and has used `seconds` more now.

        The address is queued again if some of its connections still wait (`held`).
        """
        self._floor += seconds / (len(self._waiting) + 1)
        if held:
            self._enqueue(address, held, used + seconds)
        else:
            self._used[address] = used + seconds
        for _ in range(min(2, len(self._used))):  # a turn adds at most one
            address, used = self._used.popitem(last=False)
            if used > self._floor:
                self._used[address] = used
