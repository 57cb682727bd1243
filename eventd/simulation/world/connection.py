"""One end of a simulated connection: what is written arrives at the other end in order, after a delay, in pieces."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from eventd.simulation.world.life import Life
from eventd.simulation.world.loop import VirtualLoop
from eventd.simulation.world.path import Path

PAUSE_BYTES: Final = 64 << 10
"""Unwritten bytes above which the writer is paused."""
AGAIN_SECONDS: Final = 0.2
"""Seconds after which a machine first sends again what was lost; each further time takes twice as long."""
MOST_AGAIN_SECONDS: Final = 20.0


def reset() -> ConnectionResetError:
    """Return the error of a connection that the other machine has reset."""
    return ConnectionResetError(104, "Connection reset by peer")


Place = tuple[str, int]
"""An address with a port."""


class ConnectionNetwork(Protocol):
    """The members of the network that its connections use. `context` is that of no process."""

    loop: VirtualLoop
    context: contextvars.Context

    def is_up(self, host: str) -> bool: ...


class ConnectionEnd(asyncio.Transport):
    """The end of a connection in the process `life`; `other` is the end in the other process.

    `path` is the way of what is written here. `names`: the addresses of this end and of the other one.
    """

    other: ConnectionEnd

    def __init__(
        self, network: ConnectionNetwork, life: Life, path: Path, names: tuple[tuple[str, int], tuple[str, int]]
    ):
        super().__init__({"sockname": names[0], "peername": names[1]})
        self.life = life
        self.path = path
        self.protocol: asyncio.BaseProtocol | None = None
        self.on_write: Callable[[bytes], None] | None = None
        """Called with all that is written here, which is what an adversary on the wire sees."""
        self.is_over = False
        """Whether nothing arrives here any more."""
        self._network = network
        self._loop = network.loop
        self._context = life.context()
        self._closing = False
        self._paused = False
        self._waiting: deque[bytes] = deque()  # has arrived, and is not read yet
        self._ended_by_other = False
        self._held: list[tuple[Callable[..., None], tuple[Any, ...]]] = []  # sent from here, and lost so far
        self._last = 0.0  # when the last thing sent from here arrives
        self._on_the_way = 0
        self._is_full = False

    # --- what a protocol calls ------------------------------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self.protocol is not None
        return self.protocol

    def is_closing(self) -> bool:
        return self._closing

    def get_write_buffer_size(self) -> int:
        return max(0, self._on_the_way - self.path.buffer)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Keep the limits of the simulation."""

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return 0, PAUSE_BYTES

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Do nothing: the other end learns of the end with `close`."""

    def is_reading(self) -> bool:
        return not (self._paused or self._closing)

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self._loop.call_soon(self._read, context=self._context)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or self.is_over or not data:
            return
        whole = bytes(data)
        if self.on_write is not None:
            self.on_write(whole)
        self._on_the_way += len(whole)
        for delay, piece in self.path.carry(whole):
            if piece is None:  # the connection breaks here
                self._send(delay, self.other.break_off)
                self._loop.call_later(delay, self.break_off, context=self._context)
                return
            self._send(delay, self.other.arrive, piece)
        if self.get_write_buffer_size() > PAUSE_BYTES and not self._is_full:
            self._is_full = True
            if self.protocol is not None:
                cast(asyncio.Protocol, self.protocol).pause_writing()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._send(self.path.delay(), self.other.arrive_end)
            self._loop.call_soon(self._lose, None, context=self._context)

    def abort(self) -> None:
        if not self._closing:
            self._closing = True
            self._send(self.path.delay(), self.other.break_off)
            self._loop.call_soon(self._lose, None, context=self._context)

    # --- on the way -----------------------------------------------------------------------------------------------

    def _send(self, delay: float, then: Callable[..., None], *args: Any) -> None:
        """Let something happen at the other end after a delay, but not before what was sent earlier."""
        at = self._last = max(self._loop.time() + delay, self._last + 1e-6)
        self._loop.call_at(at, self._deliver, then, args, context=self._network.context)

    def _deliver(self, then: Callable[..., None], args: tuple[Any, ...]) -> None:
        """Hand over what has arrived at the other machine; what a wall holds up is sent again later, in its order."""
        self._held.append((then, args))
        if len(self._held) == 1:
            self._pass_on(AGAIN_SECONDS)

    def _pass_on(self, again: float) -> None:
        other = self.other
        if self.path.is_lost() or not self._network.is_up(other.life.host):
            if not (self.is_over and self.life.is_dead):
                more = min(2 * again, MOST_AGAIN_SECONDS)
                self._loop.call_later(again, self._pass_on, more, context=self._network.context)
            return
        held, self._held = self._held, []
        if other.life.is_dead:  # the machine is up, and knows nothing of the connection
            if not self.life.is_dead:
                self._loop.call_later(self.path.delay(), self.break_off, context=self._context)
            return
        for then, args in held:
            self._loop.call_soon(then, *args, context=other._context)

    def _arrived(self, count: int) -> None:
        self._on_the_way -= count
        if self._is_full and self.get_write_buffer_size() <= 0 and not self.is_over:
            self._is_full = False
            if self.protocol is not None:
                self._loop.call_soon(cast(asyncio.Protocol, self.protocol).resume_writing, context=self._context)

    def arrive(self, piece: bytes) -> None:
        """Take bytes of the other end."""
        if self.is_over:
            return
        self._waiting.append(piece)
        self._read()

    def arrive_end(self) -> None:
        """Take the end of what the other end writes."""
        self._ended_by_other = True
        self._read()

    def break_off(self) -> None:
        """Take a reset: what was not read is lost."""
        self._waiting.clear()
        self._closing = True
        self._lose(reset())

    # --- at this end ----------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Pass what has arrived to the protocol, as far as it reads."""
        while self._waiting and not self._paused and not self._closing and not self.is_over:
            piece = self._waiting.popleft()
            self.other._arrived(len(piece))
            if isinstance(self.protocol, asyncio.BufferedProtocol):
                room = memoryview(self.protocol.get_buffer(len(piece)))
                taken = min(len(room), len(piece))
                room[:taken] = piece[:taken]
                if taken < len(piece):
                    self._waiting.appendleft(piece[taken:])
                    self.other._on_the_way += len(piece) - taken
                self.protocol.buffer_updated(taken)
            else:
                cast(asyncio.Protocol, self.protocol).data_received(piece)
        if self._ended_by_other and not self._waiting and not self._closing and not self.is_over:
            stays = cast(asyncio.Protocol, self.protocol).eof_received()
            if not stays:
                self.close()

    def _lose(self, error: Exception | None) -> None:
        if self.is_over:
            return
        self.is_over = True
        if self.protocol is not None:
            self.protocol.connection_lost(error)
