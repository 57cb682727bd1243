"""What strangers can make a process compute: parsing their bytes has a share of its time, which addresses divide.

A parser does far more for some bytes than for others: a body in chunks of one byte costs it a hundred times as much as
one in a single piece. So the time that parsing takes is bounded, instead of each way to make it long.
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
"""Part of a process's time for parsing what connections send that have proven nothing."""
BURST_SECONDS = 0.1
"""What they did not use of the share during this time, they may use at once."""
READ_BYTES = 8 << 10
"""Read at once from a connection that has proven nothing: the most that a turn parses, and that waits for its turn."""


class UntrustedConnection(Protocol):
    """A connection that has proven nothing."""

    address: str

    def parse(self, data: bytes) -> None: ...

    def hold_reading(self) -> None:
        """Read nothing more for now."""

    def release_reading(self) -> None: ...

    def abort(self) -> None:
        """End the connection at once: its bytes could not be parsed."""


class ParsingTime:
    """Has strangers' bytes parsed while their share lasts. Otherwise connections wait.

    Turns go to the address that has used the least time. So an address whose bytes cost little does not wait for those
    whose bytes cost much. An address that is new, or comes back, begins with what every waiting address could have used
    by now: otherwise addresses that are always new would leave no turn to the others.
    """

    def __init__(self, cpu: Callable[[], float] = cpu_seconds) -> None:
        """`cpu`: seconds of processor time that the thread has used."""
        self._cpu = cpu
        self._used_until = 0.0  # by the loop's clock: when the share has made up for what was used
        self._spent = 0.0  # seconds, for all that was parsed
        self._waiting: dict[str, OrderedDict[UntrustedConnection, bytes]] = {}  # by address, the next connection first
        self._used: OrderedDict[str, float] = OrderedDict()  # seconds, of addresses that are ahead and do not wait
        self._floor = 0.0  # seconds that an address has used that waited all the time, with equal turns for all
        self._order: list[tuple[float, int, str]] = []  # a heap of waiting addresses, with what they have used
        self._ranked: set[str] = set()  # the addresses in it
        self._count = itertools.count()  # among equals, first come, first served
        self._next_turn: asyncio.TimerHandle | None = None

    def parse(self, stranger: UntrustedConnection, data: bytes) -> None:
        """Have these bytes parsed, now or in their turn. The connection is not read from while it waits."""
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
        """The connection has ended."""
        if (held := self._waiting.get(stranger.address)) is not None:
            held.pop(stranger, None)
            if not held:
                del self._waiting[stranger.address]

    def _enqueue(self, address: str, held: OrderedDict[UntrustedConnection, bytes], used: float) -> None:
        self._waiting[address] = held
        if address not in self._ranked:  # as it is when all its connections ended, and others came
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
        """Count a turn of an address that had `used` some, and queue it again for the connections still `held`."""
        self._floor += seconds / (len(self._waiting) + 1)
        if held:
            self._enqueue(address, held, used + seconds)
        else:
            self._used[address] = used + seconds
        for _ in range(min(2, len(self._used))):  # a turn adds one at most
            address, used = self._used.popitem(last=False)
            if used > self._floor:
                self._used[address] = used
