"""Noticing that the other end of a connection has vanished: its host, or the way to it, is gone without a word.

The system sends again what is not acknowledged, for a quarter of an hour, and a watcher would hold its place as long. A
client that is merely slow keeps its place: its host acknowledges, and says that it has no room.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from typing import NamedTuple

LOOK_SECONDS = 15.0
"""How often a connection is looked at."""
UNANSWERED_SECONDS = 60.0
"""After so long without a single acknowledgement, while something waits for one, the other end has vanished."""
_TRIES = 3
"""How often the system must have tried in that time."""
_TCP_INFO = struct.Struct("=2x2B4x13I")
"""The beginning of Linux' `struct tcp_info`."""
_UNACKED, _LAST_ACK = 4, 12
"""Segments that are not acknowledged, and milliseconds since the last acknowledgement: among its 32-bit members."""


class _State(NamedTuple):
    """`tries`: how often the system sent again, or asked for room, without an answer. `silent` in seconds."""

    waits: bool
    tries: int
    silent: float


class Acknowledgements:
    """Looks at whether the other end of one connection acknowledges what it is sent. Not known beside Linux' TCP."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._since: float | None = None  # the first look of those between which nothing was acknowledged

    def have_ended(self, now: float) -> bool:
        """Whether the other end has vanished. `now` in seconds, on a clock that never goes back."""
        state = None if self._transport.is_closing() else _read(self._transport.get_extra_info("socket"))
        if state is None or not state.waits:
            self._since = None
            return False
        if self._since is None or now - state.silent > self._since:
            self._since = now
        return now - self._since >= UNANSWERED_SECONDS and state.tries >= _TRIES


def _read(connection: socket.socket | None) -> _State | None:
    if sys.platform != "linux" or connection is None:
        return None
    try:
        retransmits, probes, *members = _TCP_INFO.unpack(
            connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        )
    except (OSError, struct.error):  # a socket in a folder, or one that is gone
        return None
    return _State(members[_UNACKED] > 0 or probes > 0, max(retransmits, probes), members[_LAST_ACK] / 1000)
