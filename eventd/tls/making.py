"""Makes a self-signed certificate and its key, for nodes that are verified by their pins."""

from __future__ import annotations

import datetime
import errno
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eventd.errors import Conflict, Invalid, Unavailable
from eventd.tls.certificate import NODE_URI, Certificate
from eventd.tls.files import is_server_name

if TYPE_CHECKING:
    from cryptography import x509

CERT_NAME, KEY_NAME = "tls.crt", "tls.key"


class Pair(NamedTuple):
    """A new certificate, and the paths of its two files."""

    certificate: Certificate
    cert_file: Path
    key_file: Path


def make_pair(
    folder: Path, node: str, hosts: Sequence[str], days: int, now: datetime.datetime, *, for_peers: bool = True
) -> Pair:
    """Write `tls.crt` and `tls.key` into a folder, which is created if it is missing.

    The certificate is valid for the host names and IP addresses `hosts`, and `for_peers` as that of `node`: other
    programs may refuse a certificate that holds more than host names. Raises `Conflict` if a file exists, `Invalid` for
    a name that no certificate can hold, and `Unavailable` if the files cannot be written.
    """
    certificate, key = _sign(node, hosts, days, now, for_peers=for_peers)
    cert_file, key_file = folder / CERT_NAME, folder / KEY_NAME
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if cert_file.exists():
            raise FileExistsError(errno.EEXIST, "exists", str(cert_file))
        _write(key_file, key, 0o600)
        _write(cert_file, certificate, 0o644)
    except FileExistsError as error:
        raise Conflict(
            f"{error.filename} exists: nothing was changed", hint="name another folder with --dir, or move it away"
        ) from None
    except OSError as error:
        raise Unavailable(f"cannot write {error.filename}: {error.strerror}", hint="name another folder") from None
    return Pair(Certificate.of_pem(certificate)[0], cert_file, key_file)


def _sign(
    node: str, hosts: Sequence[str], days: int, now: datetime.datetime, *, for_peers: bool
) -> tuple[bytes, bytes]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node[:64])])
    if wrong := [host for host in hosts if not host or not is_server_name(host)]:
        raise Invalid(
            f"{wrong[0][:200]!r} is neither a host name nor an IP address",
            hint="write a name with other characters than ASCII in its form xn--…",
        )
    names = [*map(_host, hosts)]
    if for_peers:
        names.insert(0, x509.UniformResourceIdentifier(NODE_URI + node))
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return signed.public_bytes(Encoding.PEM), secret


def _host(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write(path: Path, content: bytes, mode: int) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    with os.fdopen(file, "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(file)
