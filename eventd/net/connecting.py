"""Opens a connection to a node or a receiver of callbacks, over TLS if that is asked for."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from eventd.net.name_cache import address_of
from eventd.tls.contexts import ClientTls

OpenAddress = Callable[[Sequence[str], int, float, Callable[[str], None]], Awaitable[tuple[socket.socket, str]]]
"""Connects to the first of some addresses that accepts, as `open_first` does."""
P = TypeVar("P", bound=asyncio.BaseProtocol)
MOST_ADDRESSES = 8
"""Maximum number of a host's addresses that are tried for one connection."""


async def connect(
    make: Callable[[], P],
    host: str,
    port: int,
    tls: ClientTls | None = None,
    node: str = "",
    open_socket: Callable[[], Awaitable[socket.socket]] | None = None,
) -> P:
    """Connect, and return the protocol from `make`; with `tls`, over TLS, and verified to be with `node`, if named.

    With `open_socket`, the connection is over the connected socket that it returns, and `host` is not looked up.
    Raises OSError, `ssl.SSLError` and `HandshakeFailed` for a failed handshake, `CertificateUnusable` for files of
    this end that cannot be used, and what `open_socket` raises.
    """
    loop = asyncio.get_running_loop()
    context, name = (None, None) if tls is None else ((await tls.load()).context, tls.server_name(host))
    if open_socket is None:
        transport, made = await loop.create_connection(make, host, port, ssl=context, server_hostname=name)
    else:
        connected = await open_socket()
        transport, made = await loop.create_connection(make, sock=connected, ssl=context, server_hostname=name)
    try:
        if tls is not None:
            tls.check(transport.get_extra_info("ssl_object"), node)
    except BaseException:
        transport.abort()
        raise
    return made


async def open_first(
    addresses: Sequence[str], port: int, end: float, trying: Callable[[str], None]
) -> tuple[socket.socket, str]:
    """Connect to the first of these addresses that accepts; return the socket, and the address at its other end.

    Nothing is looked up. Each address gets an equal share of the time until `end`, by the loop's clock, so that one
    without an answer leaves time for the next. `trying` is called with each address before its turn. Raises OSError.
    """
    loop = asyncio.get_running_loop()
    tried = addresses[:MOST_ADDRESSES]
    for left, address in zip(range(len(tried), 0, -1), tried, strict=True):
        trying(address)
        try:
            async with asyncio.timeout((end - loop.time()) / left):
                return await _open(address, port)
        except OSError:  # also a timeout
            if left == 1:
                raise
    raise AssertionError("there are no addresses")


async def _open(address: str, port: int) -> tuple[socket.socket, str]:
    made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(made, (address, port))
        return made, address_of(made.getpeername())
    except BaseException:
        made.close()
        raise
