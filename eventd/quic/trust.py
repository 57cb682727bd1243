"""How a client verifies its server."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from eventd.errors import Invalid, Unavailable
from eventd.tls.certificate import PEM, PIN, Certificate, UnreadableCertificate, pin_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_FINGERPRINT: Final = re.compile(r"[0-9a-f]{64}")
CHECK_HINT: Final = "check the CA, the pin and the name of the server"
_NOT_OF_SYSTEM: Final = "give a file with the CA that issued it or with the certificate itself, or its pin"
_NOT_OF_FILE: Final = "the CA file must hold the CA that issued it, or the certificate itself"


class Unreachable(Unavailable):
    """The server does not answer, or refused the connection."""


class Untrusted(Unavailable):
    """The server's certificate is not the right one: another attempt fails as well."""


@dataclass(frozen=True, slots=True)
class ServerTrust:
    """The identity that a server must prove: by default a certificate of one of the system's CAs, for its name.

    `ca`: the content of a PEM file, in place of the system's CAs; a certificate in it also stands for itself. `pin`:
    the SHA-256 of the certificate in hexadecimal digits, or a pin of its public key as `routerd-eventd tls show`
    prints it; then only the pin and the validity period are checked. `name`: the name in the certificate, by default
    the host. `is_blind`: any certificate will do, which is allowed for a loopback address alone.
    """

    ca: bytes = b""
    pin: str = ""
    name: str = ""
    is_blind: bool = False

    def __post_init__(self) -> None:
        """Raise `Invalid` for a CA without a certificate, or a malformed pin."""
        if self.ca and not PEM.search(self.ca):
            raise Invalid("the CA file contains no certificate", hint="write one or more certificates in PEM")
        pin = self.pin if PIN.fullmatch(self.pin) else self.pin.replace(":", "").lower()
        if pin and not (PIN.fullmatch(pin) or _FINGERPRINT.fullmatch(pin)):
            raise Invalid(
                f"{self.pin[:80]!r} is not a valid pin",
                hint="give the SHA-256 of the certificate as 64 hexadecimal digits, or sha256//BASE64 of its key",
            )
        object.__setattr__(self, "pin", pin)

    def require_loopback(self, host: str) -> None:
        """Raise `Invalid` if the server is not to be verified and its address is not a loopback address."""
        if self.is_blind and not ipaddress.ip_address(host.partition("%")[0]).is_loopback:
            raise Invalid(
                f"the certificate of {host} must be verified: that can be left out for a loopback address alone",
                hint="name a CA file or a pin",
            )

    def check(self, chain: Sequence[bytes], host: str, now: int) -> None:
        """Check the certificates that a server showed, in DER, its own first. `now` in microseconds.

        Raises `Untrusted`.
        """
        if self.is_blind:
            return
        name = self.name or host
        if not chain:
            raise Untrusted(f"{host} shows no certificate", hint=CHECK_HINT)
        try:
            shown = Certificate.of_der(chain[0])
        except UnreadableCertificate as error:
            raise Untrusted(f"{host}: {error}") from None
        if not shown.begins <= now < shown.expires:
            raise Untrusted(f"the certificate of {host} has expired, or is not valid yet", hint="check both clocks")
        if self.pin:
            self._check_pin(chain[0], host)
        elif self._is_listed(chain[0]):
            if name.lower() not in shown.hosts:
                raise Untrusted(
                    f"the certificate of {host} is for {shown.show_names()}, not for {name}", hint=CHECK_HINT
                )
        else:
            _check_issuer(chain, name, self.ca)

    def _check_pin(self, shown: bytes, host: str) -> None:
        found = pin_of(shown) if PIN.fullmatch(self.pin) else hashlib.sha256(shown).hexdigest()
        if found != self.pin:
            raise Untrusted(f"the certificate of {host} has the pin {found}, not {self.pin}", hint=CHECK_HINT)

    def _is_listed(self, shown: bytes) -> bool:
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import Encoding

        blocks = PEM.findall(self.ca)
        return any(x509.load_pem_x509_certificate(block).public_bytes(Encoding.DER) == shown for block in blocks)


def _check_issuer(chain: Sequence[bytes], name: str, ca: bytes) -> None:
    from qh3 import tls
    from qh3._hazmat import Certificate as LibraryCertificate

    shown, *others = map(LibraryCertificate, chain)
    try:
        tls.verify_certificate(shown, others, cadata=ca or None, server_name=name)
    except tls.Alert as error:
        hint = _NOT_OF_FILE if ca else _NOT_OF_SYSTEM
        raise Untrusted(f"the certificate of {name} cannot be verified: {error}", hint=hint) from None
