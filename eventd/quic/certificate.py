"""The certificate that a server shows."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from eventd.tls.files import read_pem
from eventd.tls.making import CERT_NAME, KEY_NAME, make_pair

KEPT_DAYS: Final = 3650
KEPT_FOLDER: Final = "quic"


@dataclass(frozen=True, slots=True)
class QuicCertificate:
    """A certificate with those of its issuers, and its private key, both in PEM."""

    chain: bytes
    key: bytes = field(repr=False)

    @classmethod
    def of_files(cls, cert: Path, key: Path) -> QuicCertificate:
        """Read the two files. Raises `CertificateUnusable`."""
        return cls(read_pem(cert), read_pem(key, secret=True))

    @classmethod
    def kept_in(cls, folder: Path, node: str, now: datetime.datetime) -> tuple[QuicCertificate, Path]:
        """Return the self-signed certificate that is kept in a data folder, and its path; make it the first time.

        Raises `CertificateUnusable`, and `Unavailable` if it cannot be written.
        """
        home = folder / KEPT_FOLDER
        if not (home / CERT_NAME).exists():
            make_pair(home, node, ("localhost", "127.0.0.1", "::1"), KEPT_DAYS, now)
        return cls.of_files(home / CERT_NAME, home / KEY_NAME), home / CERT_NAME
