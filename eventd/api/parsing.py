"""What strangers can make a process compute: parsing their bytes has a share of its time, which they take in turn.

A parser does far more for some bytes than for others: a body in chunks of one byte costs it a hundred times as much as
one in a single piece. So the time that parsing takes is bounded, instead of each way to make it long.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from eventd.clock import cpu_seconds

SHARE = 0.25
"""Part of a process's time for parsing what connections send that have proven nothing."""
BURST_SECONDS = 0.1
"""What they did not use of the share during this time, they may use at once."""
READ_BYTES = 8 << 10
"""Read at once from a connection that has proven nothing: the most that a turn parses, and that waits for its turn."""


class Stranger(Protocol):
    """A connection that has proven nothing."""

    address: str

    def parse(self, data: bytes) -> None: ...

    def hold_reading(self) -> None:
        """Read nothing more for now."""

    def release_reading(self) -> None: ...


class ParsingTime:
    """Has strangers' bytes parsed while their share lasts. Otherwise connections wait, and addresses take turns."""

    def __init__(self, cpu: Callable[[], float] = cpu_seconds) -> None:
        """`cpu`: seconds of processor time that the thread has used."""
        self._cpu = cpu
        self._used_until = 0.0  # by the loop's clock: when the share has made up for what was used
        self._waiting: OrderedDict[str, OrderedDict[Stranger, bytes]] = OrderedDict()  # the next address first
        self._next_turn: asyncio.TimerHandle | None = None

    def parse(self, stranger: Stranger, data: bytes) -> None:
        """Have these bytes parsed, now or in their turn. The connection is not read from while it waits."""
        if not self._waiting and not self._seconds_to_wait():
            self._parse(stranger, data)
            return
        held = self._waiting.setdefault(stranger.address, OrderedDict())
        held[stranger] = held.get(stranger, b"") + data
        stranger.hold_reading()
        self._await_turn()

    def leave(self, stranger: Stranger) -> None:
        """The connection has ended."""
        if (held := self._waiting.get(stranger.address)) is not None:
            held.pop(stranger, None)
            if not held:
                del self._waiting[stranger.address]

    def _parse(self, stranger: Stranger, data: bytes) -> None:
        begun = self._cpu()
        try:
            stranger.parse(data)
        finally:
            now = asyncio.get_running_loop().time()
            self._used_until = max(self._used_until, now) + (self._cpu() - begun) / SHARE

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
                address, held = self._waiting.popitem(last=False)
                stranger, data = held.popitem(last=False)
                if held:
                    self._waiting[address] = held
                self._parse(stranger, data)
                stranger.release_reading()
        finally:
            if self._waiting:
                self._await_turn()
