"""Opens a connection to a node, over TLS if that is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from eventd.tls.contexts import ClientTls

P = TypeVar("P", bound=asyncio.BaseProtocol)


async def connect(make: Callable[[], P], host: str, port: int, tls: ClientTls | None = None, node: str = "") -> P:
    """Connect, and return the protocol from `make`; with `tls`, over TLS, and verified to be with `node`, if named.

    Raises OSError, `ssl.SSLError` and `HandshakeFailed` for a failed handshake, and `CertificateUnusable` for files of
    this end that cannot be used.
    """
    loop = asyncio.get_running_loop()
    if tls is None:
        return (await loop.create_connection(make, host, port))[1]
    context, name = (await tls.load()).context, tls.server_name(host)
    transport, made = await loop.create_connection(make, host, port, ssl=context, server_hostname=name)
    try:
        tls.check(transport.get_extra_info("ssl_object"), node)
    except BaseException:
        transport.abort()
        raise
    return made
