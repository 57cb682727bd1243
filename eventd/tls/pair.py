"""Loads a certificate and its private key into a TLS context. `probe` uses it, so it imports nothing slow but `ssl`."""

from __future__ import annotations

import os
import ssl
from typing import Final

PAIR_HINT: Final = "write a PEM certificate and its unencrypted private key"


class PairUnusable(Exception):
    """A certificate and its key cannot be used; the text names the file and the cause."""


def load_pair_into(context: ssl.SSLContext, cert: str | os.PathLike[str], key: str | os.PathLike[str]) -> None:
    """Let a context show a certificate. Raises `PairUnusable`; two files that can be read give the best messages."""
    try:
        context.load_cert_chain(cert, key, password=_refuse_password)
    except (OSError, ValueError) as error:
        raise PairUnusable(_problem(error, cert, key)) from None


def _refuse_password() -> str:
    """Raise ValueError for an encrypted key: OpenSSL would otherwise ask for its password on the terminal, and wait."""
    raise ValueError("encrypted")


def _problem(error: Exception, cert: str | os.PathLike[str], key: str | os.PathLike[str]) -> str:
    reason = str(getattr(error, "reason", None) or "")
    if "KEY_VALUES_MISMATCH" in reason:
        return f"the private key {key} does not belong to the certificate {cert}"
    if "KEY_TOO_SMALL" in reason or "MD_TOO_WEAK" in reason:
        return f"the key or the signature of {cert} is too weak"
    if isinstance(error, ValueError) and not isinstance(error, ssl.SSLError):
        return f"the private key {key} is encrypted"
    return f"{cert} and {key} cannot be used: {reason.lower().replace('_', ' ') or 'the key is not PEM'}"
