"""Why a TLS handshake failed: one reason for each mistake that an operator can correct."""

from __future__ import annotations

import ssl
from enum import StrEnum
from typing import Final


class Reason(StrEnum):
    """The reasons, as links, metrics and logs name them. `CLIENT_…`: of the certificate that the client shows."""

    WRONG_NAME = "tls_wrong_name"
    UNKNOWN_CA = "tls_unknown_ca"
    WRONG_PIN = "tls_wrong_pin"
    EXPIRED = "tls_expired"
    WRONG_NODE = "tls_wrong_node"
    CLIENT_MISSING = "tls_client_missing"
    CLIENT_UNKNOWN_CA = "tls_client_unknown_ca"
    CLIENT_EXPIRED = "tls_client_expired"
    CLIENT_REFUSED = "tls_client_refused"
    SERVER_REFUSED = "tls_server_refused"
    UNVERIFIED = "tls_unverified"
    UNFINISHED = "tls_unfinished"
    NOT_SPOKEN = "tls_not_spoken"
    REQUIRED = "tls_required"
    VERSION = "tls_version"
    FILES = "tls_files"
    FAILED = "tls"


class HandshakeFailed(Exception):
    """A handshake failed, or the certificate of the other end is not the right one."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


_EXPIRED: Final = (9, 10)
_WRONG_NAME: Final = (62, 64)
_UNKNOWN_CA: Final = (2, 7, 18, 19, 20, 21)
"""Results of OpenSSL's verification: X509_V_ERR_CERT_NOT_YET_VALID and _HAS_EXPIRED; _HOSTNAME_MISMATCH and
_IP_ADDRESS_MISMATCH; an issuer that is not found or did not sign, or a self-signed certificate that is not trusted."""

_OF_SERVER: Final = {
    "ALERT_CERTIFICATE_REQUIRED": (Reason.CLIENT_MISSING, "it demands a client certificate"),
    "ALERT_UNKNOWN_CA": (Reason.CLIENT_UNKNOWN_CA, "it does not trust the issuer of the client certificate"),
    "ALERT_CERTIFICATE_EXPIRED": (Reason.CLIENT_EXPIRED, "it finds the client certificate expired"),
    "ALERT_BAD_CERTIFICATE": (Reason.CLIENT_REFUSED, "it refuses the client certificate"),
    "ALERT_CERTIFICATE_UNKNOWN": (Reason.CLIENT_REFUSED, "it refuses the client certificate"),
    "ALERT_UNSUPPORTED_CERTIFICATE": (Reason.CLIENT_REFUSED, "it refuses the client certificate"),
    "ALERT_DECRYPT_ERROR": (Reason.CLIENT_REFUSED, "it cannot verify the client certificate"),
    "ALERT_PROTOCOL_VERSION": (Reason.VERSION, "it does not speak TLS 1.2 or 1.3"),
    "UNSUPPORTED_PROTOCOL": (Reason.VERSION, "it does not speak TLS 1.2 or 1.3"),
    "WRONG_VERSION_NUMBER": (Reason.NOT_SPOKEN, "it answers without TLS"),
    "HTTP_REQUEST": (Reason.NOT_SPOKEN, "it answers without TLS"),
}
"""The reasons as the client sees them, by the end of OpenSSL's name for the cause."""
_OF_CLIENT: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": (Reason.CLIENT_MISSING, "the client shows no certificate"),
    "ALERT_UNKNOWN_CA": (Reason.SERVER_REFUSED, "the client does not trust the issuer of this node's certificate"),
    "ALERT_BAD_CERTIFICATE": (Reason.SERVER_REFUSED, "the client refuses this node's certificate"),
    "ALERT_CERTIFICATE_UNKNOWN": (Reason.SERVER_REFUSED, "the client refuses this node's certificate"),
    "ALERT_DECRYPT_ERROR": (Reason.SERVER_REFUSED, "the client cannot verify this node's certificate"),
    "ALERT_CERTIFICATE_EXPIRED": (Reason.SERVER_REFUSED, "the client finds this node's certificate expired"),
    "UNSUPPORTED_PROTOCOL": (Reason.VERSION, "the client does not speak a version of TLS that is allowed"),
    "NO_SHARED_CIPHER": (Reason.VERSION, "the client has no cipher in common with this node"),
}


def describe(failure: HandshakeFailed, address: object) -> str:
    """Return the message for a client that cannot connect to an address."""
    return f"cannot reach {address}: TLS failed ({failure.reason}): {failure.detail}"


def failure_at_client(error: Exception) -> HandshakeFailed:
    """Return why a TLS connection failed, as the client sees it."""
    if isinstance(error, HandshakeFailed):
        return error
    code = getattr(error, "verify_code", None)
    if code in _WRONG_NAME:
        return HandshakeFailed(Reason.WRONG_NAME, _expected(error))
    if code in _EXPIRED:
        return HandshakeFailed(Reason.EXPIRED, "its certificate has expired, or is not valid yet")
    if code in _UNKNOWN_CA:
        return HandshakeFailed(Reason.UNKNOWN_CA, "the issuer of its certificate is not trusted here")
    if code:
        words = str(getattr(error, "verify_message", ""))
        return HandshakeFailed(Reason.UNVERIFIED, f"its certificate cannot be verified: {words}")
    return _by_words(error, _OF_SERVER)


def failure_at_server(error: ssl.SSLError) -> HandshakeFailed:
    """Return why a handshake failed, as the server sees it."""
    code = getattr(error, "verify_code", None)
    if code in _EXPIRED:
        return HandshakeFailed(Reason.CLIENT_EXPIRED, "the client's certificate has expired, or is not valid yet")
    if code in _UNKNOWN_CA:
        return HandshakeFailed(Reason.CLIENT_UNKNOWN_CA, "the issuer of the client's certificate is not trusted here")
    if code:
        return HandshakeFailed(Reason.CLIENT_REFUSED, "the client's certificate cannot be verified")
    return _by_words(error, _OF_CLIENT)


def _expected(error: Exception) -> str:
    """Return OpenSSL's words for a wrong name, which include the expected one."""
    return str(getattr(error, "verify_message", "")).rstrip(".") or "its certificate is for another name"


def _by_words(error: Exception, known: dict[str, tuple[Reason, str]]) -> HandshakeFailed:
    words = str(getattr(error, "reason", None) or "handshake failure")
    for end, (reason, detail) in known.items():
        if words.endswith(end):
            return HandshakeFailed(reason, detail)
    return HandshakeFailed(Reason.FAILED, words.lower().replace("_", " "))
