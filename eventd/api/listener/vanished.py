"""Detects connections whose remote end has vanished: its host or the route to it failed silently.

The system retransmits for a quarter of an hour, and a watcher would hold its slot as long. A client that is merely slow
keeps its slot: its host acknowledges, and reports a full window.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from typing import NamedTuple

LOOK_SECONDS = 15.0
"""How often a connection is checked."""
UNANSWERED_SECONDS = 60.0
"""After this time without an acknowledgement, while data waits for one, the remote end has vanished."""
_TRIES = 3
"""How many retransmissions of data, or probes of a full window, must have failed in that time."""
_TCP_INFO = struct.Struct("=2x2B4x13I")
"""The beginning of Linux' `struct tcp_info`."""
_UNACKED, _LAST_ACK = 4, 12
"""Indices, among the 32-bit members, of unacknowledged segments and of milliseconds since the last acknowledgement."""


class _State(NamedTuple):
    """The state of a TCP connection. `waits`: data or a window probe is not acknowledged.

    `tries`: the number of failed retransmissions, or of window probes if they are more. `silent`: seconds since the
    last acknowledgement.
    """

    waits: bool
    tries: int
    silent: float


class Acknowledgements:
    """Checks whether the remote end of one connection acknowledges data. This is only known for TCP on Linux."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._since: float | None = None  # the first check since which nothing was acknowledged

    def have_ended(self, now: float) -> bool:
        """Return whether the remote end has vanished; False if that is unknown. `now` in seconds, monotonic.

        Call it regularly: the first call since the last acknowledgement begins the time until the remote end counts as
        vanished.
        """
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
    except (OSError, struct.error):  # a Unix socket, or one that is closed
        return None
    return _State(members[_UNACKED] > 0 or probes > 0, max(retransmits, probes), members[_LAST_ACK] / 1000)
