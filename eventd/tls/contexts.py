"""The TLS contexts of listeners and of connections, and the check of the other end's certificate.

Without a pin, OpenSSL checks the certificate's issuer, name and validity. That cannot be switched off, except for the
callbacks of subscribers of the Routemaster surface.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eventd.tls.certificate import Certificate, UnreadableCertificate, pin_of
from eventd.tls.files import ClientTlsConfig, Reloaded, ServerTlsConfig, load_ca, load_client_ca, load_pair, place
from eventd.tls.reasons import HandshakeFailed, Reason

_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
MOST_SESSIONS: Final = 1000
Now = Callable[[], int]
"""Returns the time in microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class LoadedTls:
    """A context, and the certificate that it shows; None if it shows none."""

    context: ssl.SSLContext
    certificate: Certificate | None


class ServerTls(Reloaded[LoadedTls]):
    """The TLS of one listener. A new connection uses the certificate that was read last."""

    def __init__(self, declared: ServerTlsConfig, credentials: Path | None, now: Now) -> None:
        self.now = now
        files = (declared.cert_file, declared.key_file, declared.client_ca_file)
        super().__init__(files, credentials, lambda: _load_server(declared, credentials, now()))

    def refresh(self, *, force: bool = False) -> bool:
        """Load changed files; also a new context once the present one remembers `MOST_SESSIONS` sessions of TLS 1.2.

        OpenSSL keeps sessions for resumption, and Python cannot switch that off.
        """
        loaded = self.present
        is_full = loaded is not None and loaded.context.session_stats()["number"] >= MOST_SESSIONS
        return super().refresh(force=force or is_full)


def _load_server(declared: ServerTlsConfig, credentials: Path | None, now: int) -> LoadedTls:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[declared.min_version]
    context.set_alpn_protocols(["http/1.1"])
    # A resumed session skips the check of the client's certificate. Without tickets, only TLS 1.2 resumes any, and none
    # that began under another context: see `TlsTransport.shake_hands`.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    certificate = load_pair(context, place(declared.cert_file, credentials), place(declared.key_file, credentials), now)
    if declared.client_ca_file:
        load_client_ca(context, place(declared.client_ca_file, credentials))
    return LoadedTls(context, certificate)


class ClientTls(Reloaded[LoadedTls]):
    """The TLS of connections to one other end."""

    def __init__(self, declared: ClientTlsConfig, credentials: Path | None, now: Now) -> None:
        self._declared = declared
        self._now = now
        files = (declared.ca_file, declared.cert_file, declared.key_file)
        super().__init__(files, credentials, lambda: _load_client(declared, credentials, now()))

    def server_name(self, host: str) -> str:
        """Return the name that the other end's certificate must have: without the dot at the end of a host's name."""
        return self._declared.server_name or host.removesuffix(".")

    def check(self, tls: ssl.SSLObject | ssl.SSLSocket | None, node: str = "") -> None:
        """Check what OpenSSL does not: the pin, and that the certificate is not another node's.

        Call it after the handshake, before anything is sent. Raises `HandshakeFailed`.
        """
        pins = self._declared.pins
        shown = tls.getpeercert(binary_form=True) if tls is not None else None
        if shown is None:
            raise HandshakeFailed(Reason.FAILED, "the other end shows no certificate")
        try:
            if pins and (pin := pin_of(shown)) not in pins:
                raise HandshakeFailed(Reason.WRONG_PIN, f"the public key there has the pin {pin}")
            certificate = Certificate.of_der(shown)
        except UnreadableCertificate as error:
            raise HandshakeFailed(Reason.FAILED, str(error)) from None
        if pins and not certificate.begins <= self._now() < certificate.expires:
            raise HandshakeFailed(Reason.EXPIRED, "its certificate has expired, or is not valid yet")
        if node and certificate.nodes and node not in certificate.nodes:
            raise HandshakeFailed(Reason.WRONG_NODE, f"its certificate is that of {certificate.show_names()}")


def _load_client(declared: ClientTlsConfig, credentials: Path | None, now: int) -> LoadedTls:
    ca = place(declared.ca_file, credentials) if declared.ca_file else None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    if ca is not None:
        load_ca(context, ca)
    elif declared.pins or declared.unverified:  # the pin decides: see `ClientTls.check`
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.load_default_certs()
    certificate = None
    if declared.cert_file:
        cert, key = place(declared.cert_file, credentials), place(declared.key_file, credentials)
        certificate = load_pair(context, cert, key, now)
    return LoadedTls(context, certificate)
