"""Lets aiohttp check the certificate of a node as the client's own connections do, before a request is sent."""

from __future__ import annotations

import asyncio

from aiohttp import Fingerprint

from eventd.tls.contexts import ClientTls


class TlsCheck(Fingerprint):
    """Checks a connection by `ClientTls.check`, where aiohttp checks fingerprints."""

    def __init__(self, tls: ClientTls) -> None:
        self._tls = tls

    def check(self, transport: asyncio.Transport) -> None:
        """Raises `HandshakeFailed`, and closes the connection."""
        try:
            self._tls.check(transport.get_extra_info("ssl_object"))
        except BaseException:
            transport.abort()
            raise
