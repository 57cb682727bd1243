"""The limits of QUIC connections and of a server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LARGEST_DATAGRAM: Final = 65527
"""Payload bytes of the largest UDP datagram."""


@dataclass(frozen=True, slots=True)
class TransportLimits:
    """The limits that this end announces and applies. Seconds, bytes and counts.

    `streams`: how many of each direction the peer may have open. `stream_window` and `window`: how many bytes the peer
    may send on a stream, and on all of them, ahead of what has been received. Two limits apply to a server:
    `most_connections`, and `most_unproven` handshakes that are not complete; at that limit, a new handshake displaces
    the oldest. From `retry_from` such handshakes on, a client must first prove that it receives datagrams at its
    address.
    """

    idle_seconds: float = 30.0
    handshake_seconds: float = 10.0
    streams: int = 1024
    stream_window: int = 1 << 20
    window: int = 2 << 20
    most_connections: int = 1024
    most_unproven: int = 256
    retry_from: int = 64
    socket_bytes: int = 8 << 20
