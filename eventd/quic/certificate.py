"""The certificate that a server shows."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from eventd.tls.files import load_pair, read_pem
from eventd.tls.making import CERT_NAME, KEY_NAME, make_pair

KEPT_SINCE: Final = datetime(1970, 1, 1, 1, tzinfo=UTC)
KEPT_DAYS: Final = 200 * 365
"""A node makes its certificate at its first start, perhaps before its clock is set, so it is valid at any time."""
KEPT_FOLDER: Final = "quic"
NAMES: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class QuicCertificate:
    """A certificate with those of its issuers, and its private key, both in PEM."""

    chain: bytes
    key: bytes = field(repr=False)

    @classmethod
    def of_files(cls, cert: Path, key: Path, now: int) -> QuicCertificate:
        """Read the two files. `now` in microseconds. Raises `CertificateUnusable`, also for an expired certificate."""
        load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), cert, key, now)
        return cls(read_pem(cert), read_pem(key, secret=True))

    @classmethod
    def kept_in(cls, folder: Path, node: str, now: int) -> tuple[QuicCertificate, Path]:
        """Return the self-signed certificate that is kept in a data folder, and its path; make it the first time.

        It is valid for `localhost`, 127.0.0.1 and ::1, from 1970 on. Raises `CertificateUnusable`, and `Unavailable` if
        it cannot be written.
        """
        home = folder / KEPT_FOLDER
        if not (home / CERT_NAME).exists():
            (home / KEY_NAME).unlink(missing_ok=True)  # the key is written first; a kill may have left it alone
            make_pair(home, node, NAMES, KEPT_DAYS, KEPT_SINCE, for_peers=False)
        return cls.of_files(home / CERT_NAME, home / KEY_NAME, now), home / CERT_NAME
