"""A UDP socket that receives and sends many datagrams with one system call where the machine can."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Any, Final

from qh3._hazmat import UdpSocketState

from eventd.quic.link import Address

MOST_READS: Final = 8
"""Maximum number of reading system calls in one turn of the event loop, so that other work gets its turn."""
FULL_READ: Final = 32
"""Maximum number of datagrams that one system call returns, unless the system has joined some. If it returns fewer, no
more are waiting."""
Datagrams = list[tuple[bytes, Address]]

logger = logging.getLogger("eventd.quic")


def open_socket(family: int, address: Any, size: int, *, is_server: bool) -> socket.socket:
    """Bind a socket to an address as a server, or connect it to one as a client. Raises OSError."""
    made = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        made.setblocking(False)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            made.setsockopt(socket.SOL_SOCKET, option, size)
        if is_server:
            made.bind(address)
        else:
            made.connect(address)
    except BaseException:
        made.close()
        raise
    return made


class UdpSocket:
    """Calls `received` with the datagrams of one turn of the loop, and `failed` for an error of the socket."""

    def __init__(
        self, opened: socket.socket, received: Callable[[Datagrams], None], failed: Callable[[OSError], None]
    ) -> None:
        self.address: tuple[str, int] = opened.getsockname()[:2]
        self.granted = opened.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
        """Bytes of the buffer that the system granted: it may be less than asked for."""
        self.dropped = 0
        self._socket = opened
        self._state: Any = UdpSocketState(opened.fileno())
        self._received = received
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._loop.add_reader(opened.fileno(), self._read)

    def send(self, datagrams: list[bytes], address: Address) -> None:
        """Send datagrams to one address. Those for which the socket has no room are dropped: QUIC sends them again."""
        if self._is_closed:
            return
        try:
            sent = self._state.send(datagrams, address)
            self.dropped += len(datagrams) - sent
        except (BlockingIOError, InterruptedError) as error:
            self.dropped += len(datagrams) - getattr(error, "datagrams_sent", 0)
        except OSError as error:
            self._send_singly(datagrams[getattr(error, "datagrams_sent", 0) :], address, error)

    def close(self) -> None:
        """Close the socket."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_reader(self._socket.fileno())
            self._state = None
            self._socket.close()

    def _send_singly(self, datagrams: list[bytes], address: Address, error: OSError) -> None:
        """Send datagrams one by one that could not be sent as a batch: the route may not support segmentation, or a
        datagram may be too large for it."""
        if error.errno in (errno.EINVAL, errno.EIO, errno.EOPNOTSUPP, errno.ENOPROTOOPT):
            self._state.disable_gso()
        for datagram in datagrams:
            try:
                self._socket.sendto(datagram, address)
            except OSError as again:
                self.dropped += 1
                if again.errno not in (errno.EMSGSIZE, errno.EAGAIN, errno.EINTR):
                    self._failed(again)
                    return

    def _read(self) -> None:
        found: Datagrams = []
        for _ in range(MOST_READS):
            try:
                got = self._state.recv()
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                self._failed(error)
                break
            found += got
            if len(got) < FULL_READ:
                break
        if found:
            self._received(found)
