"""A connection to a node's API over TLS, which verifies the node before a request is sent."""

from __future__ import annotations

import socket
import ssl
from http.client import HTTPConnection

from eventd.errors import Unavailable
from eventd.runtime.clock import SystemClock
from eventd.tls.contexts import ClientTls
from eventd.tls.files import SYSTEM_CAS, ClientTlsConfig
from eventd.tls.reasons import HandshakeFailed, describe, failure_at_client


class SecureConnection(HTTPConnection):
    """Connects with the TLS options in `declared`; by default, the system's CAs verify the node."""

    def __init__(self, host: str, port: int, declared: ClientTlsConfig | None, *, timeout: float) -> None:
        super().__init__(host, port, timeout=timeout)
        self._tls = ClientTls(declared or SYSTEM_CAS, None, SystemClock().now)

    def connect(self) -> None:
        """Connect and verify the node. Raises `Unavailable` if it is not the right one, and OSError."""
        context, name = self._tls.value.context, self._tls.server_name(self.host)  # before there is a socket to close
        super().connect()
        raw: socket.socket = self.sock
        try:
            self.sock = context.wrap_socket(raw, server_hostname=name)
            self._tls.check(self.sock)
        except (ssl.SSLError, HandshakeFailed) as error:
            raw.close()
            self.close()
            raise Unavailable(
                describe(failure_at_client(error), f"https://{self.host}:{self.port}"),
                hint="check --ca-file, --server-name, --pin and --client-cert; see docs/how-to/tls.md",
            ) from None
