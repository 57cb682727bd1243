"""Certificates for tests: an authority of one's own, and what it issues, as PEM files."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from eventd.tls.certificate import NODE_URI, Certificate

DAY = datetime.timedelta(days=1)


class Files(NamedTuple):
    """A certificate and its private key."""

    cert: Path
    key: Path

    @property
    def pin(self) -> str:
        return Certificate.of_pem(self.cert.read_bytes())[0].pin

    @property
    def listen(self) -> dict[str, str]:
        """Return the two files as `spec.tls` and `spec.listen.tls` name them."""
        return {"certFile": str(self.cert), "keyFile": str(self.key)}


class Authority:
    """A certificate authority with its own key."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.file = folder / f"{name}.crt"
        self.file.write_bytes(self._sign(name, self._key, [], DAY * 30, ca=True).public_bytes(Encoding.PEM))

    def issue(
        self,
        name: str,
        *,
        node: str = "",
        hosts: tuple[str, ...] = ("localhost", "127.0.0.1"),
        lasts: datetime.timedelta = DAY * 30,
        usage: x509.ObjectIdentifier | None = None,
    ) -> Files:
        """Write `NAME.crt` and `NAME.key`, which replace files of these names; `lasts` may be negative."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [_host(host) for host in hosts]
        names += [x509.UniformResourceIdentifier(NODE_URI + node)] if node else []
        signed = self._sign(name, key, names, lasts, usage=usage)
        files = Files(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        for path, content, mode in ((files.key, pem, 0o600), (files.cert, signed.public_bytes(Encoding.PEM), 0o644)):
            written = path.with_suffix(".new")
            written.write_bytes(content)
            written.chmod(mode)
            written.replace(path)
        return files

    def _sign(
        self,
        name: str,
        key: ec.EllipticCurvePrivateKey,
        names: list[x509.GeneralName],
        lasts: datetime.timedelta,
        *,
        ca: bool = False,
        usage: x509.ObjectIdentifier | None = None,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_subject(name))
            .issuer_name(_subject(self.name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY * 60)
            .not_valid_after(now + lasts)
            .add_extension(x509.BasicConstraints(ca, None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        if usage is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def server_context(folder: Path) -> ssl.SSLContext:
    """Return the TLS of a server with a new certificate in `folder`, of an authority of its own."""
    files = Authority(folder).issue("receiver")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    return context
