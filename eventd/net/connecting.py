"""Opens a connection to a node, over TLS if that is asked for."""

from __future__ import annotations

import asyncio

from eventd.net.exchange import Exchange
from eventd.tls.contexts import ClientTls


async def connect(host: str, port: int, tls: ClientTls | None = None, node: str = "") -> Exchange:
    """Return a connection; with `tls`, over TLS, and verified to be with `node`, if that is named.

    Raises OSError, `ssl.SSLError` and `HandshakeFailed` for a failed handshake, and `CertificateUnusable` for files of
    this end that cannot be used.
    """
    loop = asyncio.get_running_loop()
    if tls is None:
        _, exchange = await loop.create_connection(Exchange, host, port)
        return exchange
    if tls.present is None:
        await asyncio.to_thread(lambda: tls.value)
    transport, exchange = await loop.create_connection(
        Exchange, host, port, ssl=tls.value.context, server_hostname=tls.server_name(host)
    )
    try:
        tls.check(transport.get_extra_info("ssl_object"), node)
    except BaseException:
        exchange.close()
        raise
    return exchange
