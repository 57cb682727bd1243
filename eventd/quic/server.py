"""A QUIC server on one UDP socket: routes datagrams to connections by their ids, and accepts new ones."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from eventd.quic.certificate import QuicCertificate
from eventd.quic.library import require
from eventd.quic.limits import TransportLimits
from eventd.quic.link import Address, LinkEvents, QuicLink
from eventd.runtime.clock import Clock

if TYPE_CHECKING:
    from eventd.quic.udp import Datagrams

logger = logging.getLogger("eventd.quic")

INITIAL_BYTES: Final = 1200
"""Bytes of the smallest datagram that may open a connection."""
ID_BYTES: Final = 8


class QuicServer:
    """Accepts connections, and hands each to `accept` when its handshake is complete."""

    def __init__(
        self,
        opened: socket.socket,
        certificate: QuicCertificate,
        accept: Callable[[QuicLink], LinkEvents],
        clock: Clock,
        limits: TransportLimits,
        failed: Callable[[str], None],
    ) -> None:
        from eventd.quic.connection import server_configuration
        from eventd.quic.udp import UdpSocket

        self._accept = accept
        self._clock = clock
        self._limits = limits
        self._failed = failed
        self._configuration = server_configuration(certificate, limits)
        self._is_accepting = True
        self._routes: dict[bytes, QuicLink] = {}
        self._links: dict[QuicLink, list[bytes]] = {}
        self._unproven = 0
        self._socket = UdpSocket(opened, self._received, self._socket_failed)
        self.address = self._socket.address

    @classmethod
    async def listen(
        cls,
        host: str,
        port: int,
        certificate: QuicCertificate,
        accept: Callable[[QuicLink], LinkEvents],
        *,
        clock: Clock,
        spec: TransportLimits,
        failed: Callable[[str], None],
    ) -> QuicServer:
        """Listen on an address. `failed` gets the reason of each connection that ends by a fault of the library.

        Raises OSError, MissingExtra, and `CertificateUnusable`.
        """
        require("a QUIC server")
        from eventd.quic.udp import open_socket

        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        family, _, _, _, address = found[0]
        opened = open_socket(family, address, spec.socket_bytes, is_server=True)
        try:
            server = cls(opened, certificate, accept, clock, spec, failed)
        except BaseException:
            opened.close()
            raise
        logger.info(
            "QUIC listens",
            extra={"address": "{}:{}".format(*server.address), "socket_bytes": server._socket.granted},
        )
        return server

    @property
    def connections(self) -> int:
        """Return how many connections there are, with those whose handshake is not complete."""
        return len(self._links)

    def use(self, certificate: QuicCertificate) -> None:
        """Show another certificate to new connections. Raises `CertificateUnusable`, and keeps the present one."""
        from eventd.quic.connection import server_configuration

        self._configuration = server_configuration(certificate, self._limits)

    def stop_accepting(self) -> None:
        """Answer no new connection; those that there are go on."""
        self._is_accepting = False

    async def close(self, code: int = 0, reason: str = "") -> None:
        """End all connections, tell their peers, and close the socket."""
        self.stop_accepting()
        for link in list(self._links):
            link.close(code, reason)
            link.flush()
            link.abandon(reason)
        self._socket.close()
        await self._clock.sleep(0)  # a turn of the loop, in which the users of the connections are called

    # --- for the connections

    def send(self, datagrams: list[bytes], address: Address) -> None:
        self._socket.send(datagrams, address)

    def add_id(self, number: bytes, link: QuicLink) -> None:
        if link in self._links:
            self._routes[number] = link
            self._links[link].append(number)

    def remove_id(self, number: bytes) -> None:
        link = self._routes.pop(number, None)
        if link is not None and link in self._links:
            self._links[link].remove(number)

    def opened(self, link: QuicLink) -> None:
        self._unproven -= 1
        link.events = self._accept(link)

    def ended(self, link: QuicLink) -> None:
        if not link.is_open:
            self._unproven -= 1
        for number in self._links.pop(link, ()):
            self._routes.pop(number, None)

    # --- inside

    def _received(self, found: Datagrams) -> None:
        touched: dict[QuicLink, None] = {}
        for datagram, address in found:
            link = self._routes.get(destination(datagram)) or self._open(datagram, address)
            if link is not None:
                link.take(datagram, address)
                touched[link] = None
        for link in touched:
            link.flush()

    def _open(self, datagram: bytes, address: Address) -> QuicLink | None:
        """Return a new connection for a datagram that may open one."""
        from eventd.quic.connection import LibraryConnection, first_packet

        if not self._is_accepting or len(datagram) < INITIAL_BYTES or not datagram[0] & 0x80:
            return None
        if len(self._links) >= self._limits.most_connections or self._unproven >= self._limits.most_unproven:
            return None
        first = first_packet(datagram)
        if first is None:
            return None
        connection = LibraryConnection(
            configuration=self._configuration, original_destination_connection_id=first.destination
        )
        link = QuicLink(connection, self, address, self._clock, self._failed)
        self._links[link] = []
        self._unproven += 1
        self.add_id(first.destination, link)
        self.add_id(connection.host_cid, link)
        link.open_within(self._limits.handshake_seconds)
        return link

    def _socket_failed(self, error: OSError) -> None:
        self._failed(type(error).__name__)
        logger.warning("the QUIC socket failed", extra={"reason": str(error)})


def destination(datagram: bytes) -> bytes:
    """Return the connection id that a datagram is for."""
    if datagram[0] & 0x80:
        return datagram[6 : 6 + datagram[5]] if len(datagram) > 6 else b""
    return datagram[1 : 1 + ID_BYTES]
