"""The contents of a certificate: its names, the node that it speaks for, its public key as a pin, and when it
expires."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from federation.event import from_micros
from federation.peers import SECOND

if TYPE_CHECKING:
    from cryptography import x509

NODE_URI: Final = "urn:eventd:node:"
"""Prefix of the URI in a certificate's subject alternative names that names the node it speaks for."""
PIN: Final = re.compile(r"sha256//[A-Za-z0-9+/]{43}=")
PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


class UnreadableCertificate(ValueError):
    """A certificate, or one of its names, is malformed or of an unknown kind."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """One certificate. `begins` and `expires`: its validity, in microseconds since 1970.

    `pin`: `sha256//` and the base64 of the SHA-256 of its public key (SubjectPublicKeyInfo), as curl writes it. `hosts`
    are the DNS names and IP addresses, in lower case, and `nodes` the nodes that its URIs name.
    """

    pin: str
    hosts: frozenset[str]
    nodes: frozenset[str]
    begins: int
    expires: int
    is_ca: bool = False
    """Whether the certificate may be used to issue certificates."""

    @classmethod
    def of_der(cls, content: bytes) -> Certificate:
        """Read a certificate. Raises `UnreadableCertificate`."""
        from cryptography import x509

        with _reading():
            return cls._of(x509.load_der_x509_certificate(content))

    @classmethod
    def of_pem(cls, content: bytes) -> list[Certificate]:
        """Read the certificates of a PEM file; other text in the file is skipped.

        Raises `UnreadableCertificate`, which says which one it is.
        """
        from cryptography import x509

        found = []
        for number, block in enumerate(PEM.findall(content), start=1):
            with _reading(f"certificate {number}"):
                found.append(cls._of(x509.load_pem_x509_certificate(block)))
        return found

    @classmethod
    def _of(cls, read: x509.Certificate) -> Certificate:
        from cryptography import x509

        names, limits = x509.SubjectAlternativeName([]), x509.BasicConstraints(ca=False, path_length=None)
        for extension in read.extensions:
            if isinstance(extension.value, x509.SubjectAlternativeName):
                names = extension.value
            elif isinstance(extension.value, x509.BasicConstraints):
                limits = extension.value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
        return cls(
            pin=_pin(read),
            hosts=frozenset(map(str.lower, names.get_values_for_type(x509.DNSName)))
            | frozenset(map(str, names.get_values_for_type(x509.IPAddress))),
            nodes=frozenset(uri.removeprefix(NODE_URI) for uri in uris if uri.startswith(NODE_URI)),
            begins=round(read.not_valid_before_utc.timestamp()) * SECOND,
            expires=round(read.not_valid_after_utc.timestamp()) * SECOND,
            is_ca=limits.ca,
        )

    def speaks_for(self, node: str) -> bool:
        """Return whether the certificate names a node: by its URI, or if it has none, by a DNS name or IP address."""
        return node in self.nodes if self.nodes else node.lower() in self.hosts

    def show_names(self) -> str:
        """Return the names for a message, at most a few of them."""
        return show_few([*sorted(self.nodes), *sorted(self.hosts)])


def pin_of(content: bytes) -> str:
    """Return the pin of a certificate (DER), also if its names cannot be read. Raises `UnreadableCertificate`."""
    from cryptography import x509

    with _reading():
        return _pin(x509.load_der_x509_certificate(content))


def _pin(read: x509.Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = read.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return "sha256//" + base64.b64encode(hashlib.sha256(key).digest()).decode()


@contextmanager
def _reading(what: str = "the certificate") -> Iterator[None]:
    """Raise `UnreadableCertificate` for any exception: the library has a type for each way to be malformed."""
    try:
        yield
    except Exception as error:
        raise UnreadableCertificate(f"{what} cannot be read: {type(error).__name__}") from None


def show_moment(time: int) -> str:
    """Return a time in microseconds in RFC 3339, UTC, to the second."""
    return from_micros(time // SECOND * SECOND).isoformat().replace("+00:00", "Z")


def show_few(names: Iterable[str]) -> str:
    """Return a text with the first names, and the number of further ones."""
    all_names = list(names)
    more = f" and {len(all_names) - 4} more" if len(all_names) > 4 else ""
    return ", ".join(name[:100] for name in all_names[:4]) + more or "no name"
