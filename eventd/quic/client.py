"""Opens QUIC connections, each over a socket of its own."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from eventd.quic.library import require
from eventd.quic.limits import TransportLimits
from eventd.quic.link import Address, LinkEvents, QuicLink, show
from eventd.quic.stream import QuicStream, StreamEvents
from eventd.quic.trust import ServerTrust, Unreachable, Untrusted
from eventd.runtime.clock import Clock

if TYPE_CHECKING:
    from eventd.quic.udp import Datagrams

logger = logging.getLogger("eventd.quic")

CRYPTO_FRAME, BAD_CERTIFICATE = 0x06, 0x0100 + 42
REACH_HINT = "check that the node is running, that EVENTD_QUIC_LISTEN is set there, and the address"


async def connect(
    host: str,
    port: int,
    events: LinkEvents,
    *,
    trust: ServerTrust,
    clock: Clock,
    seconds: float = 10.0,
    limits: TransportLimits | None = None,
) -> QuicLink:
    """Open a connection, and return it when the server is verified.

    `events.opened` is called before this function returns. Raises `Unreachable`, `Untrusted`, `Invalid` and
    MissingExtra.
    """
    require("a QUIC connection")
    loop = asyncio.get_running_loop()
    place = show((host, port))
    try:
        async with asyncio.timeout(seconds):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
            family, address = found[0][0], cast(Address, found[0][4])
            trust.require_loopback(address[0])
            return await _open(
                family, address, _Opening(host, place, events, trust, clock), limits or TransportLimits()
            )
    except TimeoutError:
        raise Unreachable(f"cannot reach {place}: no answer within {seconds:g} s", hint=REACH_HINT) from None
    except OSError as error:
        words = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
        raise Unreachable(f"cannot reach {place}: {words}", hint=REACH_HINT) from None


async def _open(family: int, address: Address, opening: _Opening, limits: TransportLimits) -> QuicLink:
    from eventd.quic.connection import client_connection

    carrier = _ClientCarrier(family, address, limits.socket_bytes, opening.failed)
    connection = client_connection(opening.name, limits)
    link = QuicLink(connection, carrier, address, opening.clock, _log_failure)
    opening.link = carrier.link = link.events_to(opening)
    link.start(address)
    try:
        await opening.verified
    except BaseException:
        link.close()
        raise
    return link


def _log_failure(error: Exception, remote: str) -> None:
    fields = {"remote": remote, "reason": f"{type(error).__name__}: {error}"}
    logger.warning("a fault ended a QUIC connection", extra=fields, exc_info=error)


class _ClientCarrier:
    """The socket of one connection. `failed` is called if the server's machine says that nothing listens there."""

    def __init__(self, family: int, address: Address, size: int, failed: Callable[[OSError], None]) -> None:
        from eventd.quic.udp import UdpSocket, open_socket

        self.link: QuicLink
        self._address = address
        self._failed = failed
        self._socket = UdpSocket(
            open_socket(family, address, size, is_server=False), self._received, self._socket_failed
        )

    def send(self, datagrams: list[bytes], _address: Address) -> None:
        self._socket.send(datagrams, self._address)

    def add_id(self, number: bytes, link: QuicLink) -> None:
        """Do nothing: the socket has one connection."""

    def remove_id(self, number: bytes) -> None:
        """Do nothing: the socket has one connection."""

    def opened(self, link: QuicLink) -> None:
        """Do nothing: the connection has its user from the beginning."""

    def closed(self, link: QuicLink) -> None:
        link.abandon("")  # should the notice be lost, the server's next packet finds a closed port

    def ended(self, link: QuicLink) -> None:
        self._socket.close()

    def _received(self, found: Datagrams) -> None:
        self.link.take([datagram for datagram, _ in found], self._address)
        self.link.flush()

    def _socket_failed(self, error: OSError) -> None:
        if error.errno == errno.ECONNREFUSED:
            self._failed(error)
            self.link.abandon("connection refused")


class _Opening:
    """Receives the events of a connection until the server is verified; from then on, `events` receives them."""

    def __init__(self, host: str, place: str, events: LinkEvents, trust: ServerTrust, clock: Clock) -> None:
        self.link: QuicLink
        self.clock = clock
        self.name = trust.name or host
        self.verified: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._host = host
        self._place = place
        self._events = events
        self._trust = trust

    def opened(self) -> None:
        try:
            self._trust.check(self.link.peer_chain(), self._host, self.clock.now())
        except Untrusted as error:
            self.failed(error)
            self.link.flush()  # the end of the handshake: without it the server could not read why
            self.link.close(BAD_CERTIFICATE, "the certificate is not trusted", frame_type=CRYPTO_FRAME)
            return
        self.link.events_to(self._events)
        self._events.opened()
        if not self.verified.done():
            self.verified.set_result(None)

    def stream_opened(self, stream: QuicStream) -> StreamEvents:
        raise Untrusted("the server opened a stream before it was verified")

    def closed(self, code: int, reason: str) -> None:
        words = reason or f"it closed the connection with code {code}"
        self.failed(Unreachable(f"cannot reach {self._place}: {words}", hint=REACH_HINT))

    def failed(self, error: Exception) -> None:
        """Let the caller of `connect` know, if it still waits."""
        if not self.verified.done():
            self.verified.set_exception(error)
