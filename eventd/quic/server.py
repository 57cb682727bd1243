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
from eventd.quic.link import Address, LinkEvents, QuicLink, show
from eventd.quic.proof import AddressProof
from eventd.runtime.clock import Clock
from eventd.runtime.log_pause import LogPause

if TYPE_CHECKING:
    from eventd.quic.connection import LibraryConnection
    from eventd.quic.packets import FirstPacket
    from eventd.quic.udp import Datagrams

logger = logging.getLogger("eventd.quic")

INITIAL_BYTES: Final = 1200
"""Bytes of the smallest datagram that may open a connection."""
ID_BYTES: Final = 8
CLOSING_SECONDS: Final = 0.1
"""How long the socket stays open after its connections were closed."""
TOO_MANY: Final = "too many connections"


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
        self._proof = AddressProof(certificate)
        self._pause = LogPause(clock.monotonic)
        self._is_accepting = True
        self._routes: dict[bytes, QuicLink] = {}
        self._links: dict[QuicLink, list[bytes]] = {}
        self._unproven: dict[QuicLink, None] = {}  # the oldest first
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
        """Return the number of connections, including those whose handshake is not complete."""
        return len(self._links)

    def use(self, certificate: QuicCertificate) -> None:
        """Show another certificate to new connections. Raises `CertificateUnusable`, and keeps the present one."""
        from eventd.quic.connection import server_configuration

        self._configuration = server_configuration(certificate, self._limits)
        self._proof = AddressProof(certificate)

    def stop_accepting(self) -> None:
        """Answer no new connection; open ones continue."""
        self._is_accepting = False

    async def close(self, code: int = 0, reason: str = "") -> None:
        """End all connections, tell their peers, and close the socket."""
        self.stop_accepting()
        open_links = [link for link in self._links if not link.is_closed]
        for link in open_links:
            link.close(code, reason)
        if open_links:  # until they have read it, a packet of theirs must not meet a closed port
            await self._clock.sleep(CLOSING_SECONDS)
        for link in list(self._links):
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
        self._unproven.pop(link, None)
        if self._proven > self._limits.most_connections:  # others were quicker
            link.close(0, TOO_MANY)
        else:
            link.events = self._accept(link)

    def closed(self, link: QuicLink) -> None:
        """Do nothing: a packet that the peer still sends is answered with the notice again."""

    def ended(self, link: QuicLink) -> None:
        self._unproven.pop(link, None)
        for number in self._links.pop(link, ()):
            self._routes.pop(number, None)

    # --- inside

    @property
    def _proven(self) -> int:
        """Return how many connections have completed their handshake."""
        return len(self._links) - len(self._unproven)

    def _received(self, found: Datagrams) -> None:
        """Hand the datagrams of one turn to their connections, those in a row together."""
        touched: dict[QuicLink, None] = {}
        row: list[bytes] = []
        last: tuple[QuicLink, Address] | None = None
        for datagram, address in found:
            if not address[1]:  # nothing can be sent to port 0
                continue
            link = self._routes.get(destination(datagram)) or self._open(datagram, address)
            if link is None:
                continue
            if last is None or last[0] is not link or last[1] != address:
                if last is not None:
                    last[0].take(row, last[1])
                row, last = [], (link, address)
                touched[link] = None
            row.append(datagram)
        if last is not None:
            last[0].take(row, last[1])
        for link in touched:
            link.flush()

    def _open(self, datagram: bytes, address: Address) -> QuicLink | None:
        """Return a new connection for a datagram that may open one.

        Answer any other datagram if it requires an answer.
        """
        from eventd.quic.connection import LibraryConnection
        from eventd.quic.packets import first_packet, other_version

        if not is_long(datagram):
            if (packet := self._proof.reset_packet(datagram, destination(datagram))) is not None:
                self._socket.send([packet], address)
            return None
        first = first_packet(datagram) if len(datagram) >= INITIAL_BYTES else None
        if first is None:
            return None
        if (answer := other_version(first)) is not None:
            self._socket.send([answer], address)
            return None
        if not self._is_accepting or self._proven >= self._limits.most_connections:
            self._refuse(first, datagram, address)
            return None
        proved = self._proved(first, address)
        if proved is None:
            return None
        if len(self._unproven) >= self._limits.most_unproven:  # a client that is alive needs milliseconds
            next(iter(self._unproven)).abandon("others wait")
        return self._add(LibraryConnection(self._configuration, self._limits, proved, self._proof), proved, address)

    def _proved(self, first: FirstPacket, address: Address) -> FirstPacket | None:
        """Return the packet if its client may continue; else ask the client to prove its address, and return None."""
        from eventd.quic.packets import retry

        now = self._clock.monotonic()
        token = self._proof.check(first.token, address[:2], first.destination, now) if first.token else None
        if token is not None:
            return first._replace(original=token.original, retry_source=token.retry_source)
        if len(self._unproven) < self._limits.retry_from:
            return first
        made, source = self._proof.token(address[:2], first.destination, now)
        self._socket.send([retry(first, made, source)], address)
        return None

    def _add(self, connection: LibraryConnection, first: FirstPacket, address: Address) -> QuicLink:
        link = QuicLink(connection, self, address, self._clock, self._link_failed)
        self._links[link] = []
        self._unproven[link] = None
        self.add_id(first.destination, link)
        self.add_id(connection.host_cid, link)
        link.open_within(self._limits.handshake_seconds)
        return link

    def _refuse(self, first: FirstPacket, datagram: bytes, address: Address) -> None:
        from eventd.quic.connection import LibraryConnection

        reason = TOO_MANY if self._is_accepting else "the server is shutting down"
        connection = LibraryConnection(self._configuration, self._limits, first)
        try:
            self._socket.send(connection.refuse(datagram, address, self._clock.monotonic(), reason), address)
        except Exception as error:
            self._link_failed(error, show(address))

    def _link_failed(self, error: Exception, remote: str) -> None:
        """Count a fault that ended one connection, and log it, at a limited rate because clients can cause faults."""
        reason = type(error).__name__
        self._failed(reason)
        if self._pause.is_over(reason):
            fields = {"remote": remote, "reason": f"{reason}: {error}"}
            logger.warning("a fault ended a QUIC connection", extra=fields, exc_info=error)

    def _socket_failed(self, error: OSError) -> None:
        self._failed(type(error).__name__)
        if self._pause.is_over("socket"):
            logger.warning("QUIC socket failed", extra={"reason": str(error)})


def is_long(datagram: bytes) -> bool:
    """Return whether a datagram begins with a long header, as those of a handshake do."""
    return bool(datagram) and bool(datagram[0] & 0x80)


def destination(datagram: bytes) -> bytes:
    """Return the connection id that a datagram is for."""
    if is_long(datagram):
        return datagram[6 : 6 + datagram[5]] if len(datagram) > 6 else b""
    return datagram[1 : 1 + ID_BYTES]
