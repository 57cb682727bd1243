"""The protocol of one connection, by the library. Only `server.py` and `client.py` load this file, when they start."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, NamedTuple

from qh3._hazmat import pull_quic_header
from qh3.quic.configuration import QuicConfiguration
from qh3.quic.connection import QuicConnection
from qh3.quic.events import (
    ConnectionIdIssued,
    ConnectionIdRetired,
    ConnectionTerminated,
    HandshakeCompleted,
    StopSendingReceived,
    StreamDataReceived,
    StreamReset,
)
from qh3.quic.packet import QuicPacketType, QuicProtocolVersion

from eventd.quic.certificate import QuicCertificate
from eventd.quic.limits import TransportLimits

if TYPE_CHECKING:
    from eventd.quic.link import Address, QuicLink


class LibraryConnection(QuicConnection):
    """A connection of the library, which hands its events to a link."""

    def deliver(self, link: QuicLink) -> None:
        """Call the link back for each event since the last time."""
        while (event := self.next_event()) is not None:
            match event:
                case StreamDataReceived():
                    link.data_arrived(event.stream_id, event.data, event.end_stream)
                case StreamReset():
                    link.stream_reset(event.stream_id, event.error_code)
                case StopSendingReceived():
                    link.stream_stopped(event.stream_id, event.error_code)
                case HandshakeCompleted():
                    link.shook_hands()
                case ConnectionIdIssued():
                    link.id_issued(event.connection_id)
                case ConnectionIdRetired():
                    link.id_retired(event.connection_id)
                case ConnectionTerminated():
                    link.terminated(event.error_code, event.reason_phrase)

    def peer_chain(self) -> list[bytes]:
        """Return the certificates that the peer showed, in DER, its own first."""
        shown = self.get_peercert()
        return [] if shown is None else [one.public_bytes() for one in (shown, *self.get_issuercerts())]

    def open(self, unidirectional: bool) -> int:
        """Open a stream, and return its id."""
        return self._open_stream(unidirectional)

    def streams_left(self, unidirectional: bool) -> int:
        """Return how many streams the peer still allows this end to open."""
        if self._core is None:
            return 0
        *allowed, bidirectional_opened, unidirectional_opened = self._core.stream_limits
        opened = unidirectional_opened if unidirectional else bidirectional_opened
        return max(0, allowed[unidirectional] - opened)

    def outgoing(self, now: float) -> list[tuple[list[bytes], Address]]:
        """Return the datagrams that are to be sent now, grouped by their address.

        Until the client has proved its address, the library raises once it may send it nothing more, in the middle of
        the first flight, and `datagrams_to_send` would lose the datagrams that it has made before. They are kept here,
        and the rest follows when the client has answered.
        """
        core = self._core
        groups: list[tuple[list[bytes], Address]] = []
        if core is None:
            return groups
        try:
            while (found := core.poll_transmit(now)) is not None:
                if groups and groups[-1][1] == found[1]:
                    groups[-1][0].append(found[0])
                else:
                    groups.append(([found[0]], found[1]))
        except RuntimeError:
            if self._is_client or self._handshake_complete:
                raise
        return groups


def server_configuration(certificate: QuicCertificate, limits: TransportLimits) -> QuicConfiguration:
    """Return what connections of a server begin with. Raises ValueError for a certificate that cannot be used."""
    made = QuicConfiguration(is_client=False)
    made.idle_timeout = limits.idle_seconds
    made.max_data, made.max_stream_data = limits.window, limits.stream_window
    made.load_cert_chain(certificate.chain, certificate.key)
    return made


def client_connection(server_name: str, limits: TransportLimits) -> LibraryConnection:
    """Return a new connection of a client. The library does not verify the server: see `ServerTrust.check`."""
    made = QuicConfiguration(is_client=True, server_name=server_name, verify_mode=ssl.CERT_NONE)
    made.idle_timeout = limits.idle_seconds
    made.max_data, made.max_stream_data = limits.window, limits.stream_window
    return LibraryConnection(configuration=made)


class FirstPacket(NamedTuple):
    """What the first packet of a connection says."""

    version: int
    destination: bytes
    source: bytes
    token: bytes


def first_packet(datagram: bytes) -> FirstPacket | None:
    """Return what a datagram says that opens a connection; None for another one."""
    try:
        version, kind, _, target, source, token, *_ = pull_quic_header(datagram, 0, 8)
    except ValueError:
        return None
    if version != QuicProtocolVersion.VERSION_1 or kind != QuicPacketType.INITIAL:
        return None
    return FirstPacket(version, target, source, token)
