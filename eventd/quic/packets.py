"""Packets of QUIC outside of any connection: the headers of those that arrive, and the answers that open none.

Only the server and the client load this file, when they start.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from qh3._hazmat import pull_quic_header
from qh3.quic.packet import (
    QuicPacketType,
    QuicProtocolVersion,
    encode_quic_retry,
    encode_quic_version_negotiation,
)

ID_BYTES: Final = 8
"""Length of the connection ids of this end."""


class FirstPacket(NamedTuple):
    """The header of the first packet of a connection, and after a Retry, the content of its token."""

    version: int
    destination: bytes
    source: bytes
    token: bytes
    original: bytes
    retry_source: bytes | None = None


def first_packet(datagram: bytes) -> FirstPacket | None:
    """Return the header of a datagram that opens a connection, of any version (see `other_version`).

    None for another datagram.
    """
    try:
        version, kind, _, target, source, token, *_ = pull_quic_header(datagram, 0, ID_BYTES)
    except ValueError:
        return None
    if not version or (version == QuicProtocolVersion.VERSION_1 and kind != QuicPacketType.INITIAL):
        return None
    return FirstPacket(version, target, source, token, target)


def other_version(first: FirstPacket) -> bytes | None:
    """Return the answer to a client that uses another version of QUIC: it names the supported version.

    None if the version is supported.
    """
    if first.version == QuicProtocolVersion.VERSION_1:
        return None
    return encode_quic_version_negotiation(
        source_cid=first.destination,
        destination_cid=first.source,
        supported_versions=[QuicProtocolVersion.VERSION_1],
    )


def retry(first: FirstPacket, token: bytes, source: bytes) -> bytes:
    """Return the packet that asks a client to come back with a token."""
    return encode_quic_retry(
        version=first.version,
        source_cid=source,
        destination_cid=first.source,
        original_destination_cid=first.destination,
        retry_token=token,
    )


def is_packet(datagram: bytes, begin: int) -> bool:
    """Return whether a packet, and not padding, begins at a place of a datagram."""
    try:
        pull_quic_header(datagram, begin, ID_BYTES)
    except ValueError:
        return False
    return True


def packet_end(datagram: bytes, begin: int) -> int:
    """Return where the packet ends that begins at a place of a datagram; the end of the datagram if none does."""
    try:
        end = pull_quic_header(datagram, begin, ID_BYTES)[9]
    except ValueError:
        return len(datagram)
    return end if end > begin else len(datagram)
