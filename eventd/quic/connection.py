"""The protocol of one connection, by the library. Only the server and the client load this file, when they start.

`LibraryConnection` changes what the library fixes or gets wrong for a server, by methods of its own: see
docs/decisions/quic-library.md.
"""

from __future__ import annotations

import ipaddress
import logging
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from qh3._hazmat import Buffer, QuicConnectionCore
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
from qh3.quic.packet import (
    QuicErrorCode,
    QuicProtocolVersion,
    pull_quic_transport_parameters,
    push_quic_transport_parameters,
)
from qh3.quic.tls_bridge import QuicTlsBridge, QuicTlsBridgeError
from qh3.tls import Epoch, pull_client_hello

from eventd.quic.certificate import QuicCertificate
from eventd.quic.limits import LARGEST_DATAGRAM, TransportLimits
from eventd.quic.packets import FirstPacket, is_packet, packet_end
from eventd.quic.proof import AddressProof
from eventd.tls.files import CertificateUnusable
from eventd.tls.pair import PAIR_HINT

if TYPE_CHECKING:
    from eventd.quic.link import Address, QuicLink

PARAMETER_BYTES: Final = 4096
HELLO_BYTES: Final = 16 << 10
"""Bytes of the largest TLS message that a client may send: nothing is known about it at that point."""
LOOPBACK_DATAGRAM: Final = 16 << 10
"""Payload bytes of a datagram over the loopback interface, which would allow four times as much."""
NO_APPLICATION_PROTOCOL: Final = 120
logging.getLogger("quic").setLevel(logging.CRITICAL)  # the library's lines repeat what the peer says

ACK_DELAY_EXPONENT, ACK_DELAY_SECONDS, ACTIVE_IDS = 3, 0.025, 8


class LibraryConnection(QuicConnection):
    """A connection of the library, which hands its events to a link, with the limits that this end wants."""

    def __init__(
        self,
        configuration: QuicConfiguration,
        limits: TransportLimits,
        first: FirstPacket | None = None,
        proof: AddressProof | None = None,
    ) -> None:
        """`first`: the packet that opened the connection, and `proof`: the server's `AddressProof`.

        A client has neither.
        """
        super().__init__(
            configuration=configuration,
            original_destination_connection_id=None if first is None else first.original,
            retry_source_connection_id=None if first is None else first.retry_source,
        )
        self._limits = limits
        self._first = first
        self._proof = proof
        self._is_paused = False

    def receive(self, datagrams: list[bytes], address: Address, now: float) -> None:
        """Take datagrams in their order. Their events are kept for the next `deliver`."""
        if self._handshake_complete:
            self._require_core().receive_many_datagrams(datagrams, address, now)
            self._drain_core()
            return
        for datagram in datagrams:
            if self._is_client:
                self.receive_datagram(datagram, address, now)
            else:
                self._receive_unproven(datagram, address, now)

    # A stream may be over before the event that says so is delivered; then there is nothing left to do.

    def send_stream_data(self, stream_id: int, data: Any, end_stream: bool = False) -> None:
        """Send bytes of a stream, unless it is over."""
        with suppress(ValueError):
            super().send_stream_data(stream_id, data, end_stream)

    def reset_stream(self, stream_id: int, error_code: int) -> None:
        """Give up the sending side of a stream, unless it is over."""
        with suppress(ValueError):
            super().reset_stream(stream_id, error_code)

    def stop_stream(self, stream_id: int, error_code: int) -> None:
        """Ask the peer to send nothing more on a stream, unless it is over."""
        with suppress(ValueError):
            super().stop_stream(stream_id, error_code)

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
        if self._close_event is not None and self._core is not None:
            is_over = self._core.state != "closing"
            link.ending(self._close_event.error_code, self._close_event.reason_phrase, is_over=is_over)

    @property
    def is_ending(self) -> bool:
        """Return whether one of the ends has closed the connection."""
        return self._close_event is not None

    def pause(self, is_paused: bool) -> None:
        """Leave events in the library, or take them from it again.

        The library grants the peer credit for bytes that are taken.
        """
        self._is_paused = is_paused
        if not is_paused and self._core is not None:
            self._drain_core()

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

        The library raises in the middle of the first flight if it may not send all of it to an address that is not
        proved yet, and `datagrams_to_send` would lose what it has made. Those datagrams are kept here; the rest
        follows when the client has answered.
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

    def _receive_unproven(self, datagram: bytes, address: Address, now: float) -> None:
        """Receive a datagram of a handshake as a server.

        The padding after the last packet counts as received: the server may send three times as much to an address
        that is not proved yet. `receive_datagram` leaves it out, so that the first flight of a client that pads
        datagrams, and not packets, would not get its answer.
        """
        if self._core is None and self._first is not None:
            self._remote_addr, self._version = address, self._first.version
            self._create_core(address, self._first.destination, now)
            self._create_tls(remote_source_cid=None)
        core, begin = self._require_core(), 0
        while begin < len(datagram):
            end = packet_end(datagram, begin)
            is_last = not is_packet(datagram, end)
            packet = datagram[begin:] if is_last else datagram[begin:end]
            if core.receive_datagram(packet, address, now, len(datagram))[2]:
                self._learn_remote_source_cid(packet)
            self._drain_core()
            begin = len(datagram) if is_last else end

    def refuse(self, datagram: bytes, address: Address, now: float, reason: str) -> list[bytes]:
        """Return the answer of a server that does not accept the connection; nothing is kept."""
        assert self._first is not None
        self._version = self._first.version
        self._create_core(address, self._first.destination, now)
        core = self._require_core()
        core.receive_datagram(datagram, address, now, len(datagram))
        core.close(QuicErrorCode.CONNECTION_REFUSED, 0, reason.encode())
        found = core.poll_transmit(now)
        return [] if found is None else [found[0]]

    def _drain_core(self) -> None:
        if not self._is_paused:
            super()._drain_core()

    def _create_core(self, remote_addr: Address, initial_dcid: bytes, now: float) -> None:
        """Make the core as the library does, without data before the handshake, and with limits on streams."""
        configuration, limits = self._configuration, self._limits
        self._core = QuicConnectionCore(
            is_client=self._is_client,
            version=self._version or int(QuicProtocolVersion.VERSION_1),
            local_addr=("0.0.0.0", 0),
            remote_addr=remote_addr,
            source_cid=self.host_cid,
            destination_cid=initial_dcid,
            peer_address_validated=self._is_client or self._retry_source_connection_id is not None,
            active_connection_id_limit=2 if self._is_client else ACTIVE_IDS,
            max_datagram_size=datagram_size(remote_addr, configuration.max_datagram_size),
            probe_datagram_size=configuration.probe_datagram_size,
            idle_timeout=configuration.idle_timeout,
            ack_delay_exponent=ACK_DELAY_EXPONENT,
            max_datagram_frame_size=None,
            peer_max_datagram_frame_size=None,
            connection_receive_window=limits.window,
            connection_send_limit=0,
            stream_receive_window=limits.stream_window,
            stream_send_limit_bidi_local=0,
            stream_send_limit_bidi_remote=0,
            stream_send_limit_uni=0,
            max_stream_reassembly=limits.stream_window,
            local_max_streams_bidi=limits.streams,
            local_max_streams_uni=limits.streams,
            peer_max_streams_bidi=0,
            peer_max_streams_uni=0,
            initial_rtt=configuration.initial_rtt,
            max_ack_delay=ACK_DELAY_SECONDS,
            initial_time=now,
        )
        self._applied_transport_parameters = None
        self._pre_handshake_state_replayed = False

    def _create_tls(self, remote_source_cid: bytes | None) -> QuicTlsBridge:
        self._tls = _Bridge(
            self._configuration,
            self._limits,
            version=self._version,
            local_initial_source_connection_id=self.host_cid,
            remote_initial_source_connection_id=remote_source_cid,
            original_destination_connection_id=self._original_destination_connection_id,
            retry_source_connection_id=self._retry_source_connection_id,
            stateless_reset_token=None if self._proof is None else self._proof.reset_token(self.host_cid),
            version_change_handler=self._set_version,
        )
        return self._tls


class _Bridge(QuicTlsBridge):
    """The TLS of a connection, which announces the limits of this end in place of those that the library fixes.

    As a server it refuses a client that offers an application protocol, and one that sends too much.
    """

    def __init__(self, configuration: QuicConfiguration, limits: TransportLimits, **options: Any) -> None:
        self._limits = limits
        self._hello: bytes | None = None if configuration.is_client else b""
        self._taken = 0
        super().__init__(configuration, **options)

    def receive_crypto(
        self, epoch: Epoch, data: bytes, offset: int | None = None, *, version: int | None = None
    ) -> None:
        if not self.configuration.is_client:
            self._taken += len(data)
            if self._taken > HELLO_BYTES:
                raise QuicTlsBridgeError(QuicErrorCode.CRYPTO_BUFFER_EXCEEDED, "the handshake is too large")
            self._check_hello(data)
        super().receive_crypto(epoch, data, offset, version=version)

    def _check_hello(self, data: bytes) -> None:
        """Look at the first message of a client once it is complete."""
        if self._hello is None:
            return
        self._hello += data
        if len(self._hello) < 4 or len(self._hello) < 4 + int.from_bytes(self._hello[1:4], "big"):
            return
        hello, self._hello = self._hello, None
        if pull_client_hello(Buffer(data=hello[: 4 + int.from_bytes(hello[1:4], "big")])).alpn_protocols:
            code = QuicErrorCode.CRYPTO_ERROR + NO_APPLICATION_PROTOCOL
            raise QuicTlsBridgeError(code, "no application protocol is to be offered here")

    def serialize_transport_parameters(self) -> bytes:
        made = pull_quic_transport_parameters(Buffer(data=super().serialize_transport_parameters()))
        made.initial_max_streams_bidi = made.initial_max_streams_uni = self._limits.streams
        made.max_udp_payload_size = LARGEST_DATAGRAM
        made.max_datagram_frame_size = None
        buffer = Buffer(capacity=PARAMETER_BYTES)
        push_quic_transport_parameters(buffer, made)
        return buffer.data


def server_configuration(certificate: QuicCertificate, limits: TransportLimits) -> QuicConfiguration:
    """Return the configuration with which connections of a server begin. Raises `CertificateUnusable`."""
    made = QuicConfiguration(is_client=False)
    made.idle_timeout = limits.idle_seconds
    made.max_data, made.max_stream_data = limits.window, limits.stream_window
    try:
        made.load_cert_chain(certificate.chain, certificate.key)
    except Exception as error:  # the library has an exception for each way to be malformed
        raise CertificateUnusable(
            f"the certificate for QUIC cannot be used: {type(error).__name__}", hint=PAIR_HINT
        ) from None
    return made


def client_connection(server_name: str, limits: TransportLimits) -> LibraryConnection:
    """Return a new connection of a client. The library does not verify the server: see `ServerTrust.check`."""
    made = QuicConfiguration(is_client=True, server_name=server_name, verify_mode=ssl.CERT_NONE)
    made.idle_timeout = limits.idle_seconds
    made.max_data, made.max_stream_data = limits.window, limits.stream_window
    return LibraryConnection(made, limits)


def datagram_size(remote: Address, usual: int) -> int:
    """Return the payload bytes of the largest datagram that this end sends to an address."""
    return LOOPBACK_DATAGRAM if ipaddress.ip_address(remote[0].partition("%")[0]).is_loopback else usual
