"""The files of a certificate and its key: how they are found, checked, read, and noticed to have changed.

No message contains the content of a file.
"""

from __future__ import annotations

import asyncio
import ssl
import stat
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

from eventd.errors import Invalid, Unavailable
from eventd.runtime.regular_files import NotRegular, read_regular
from eventd.text.credential import HINT, NoCredentials, path_of
from eventd.text.hosts import is_host_name, is_ip_address
from eventd.tls.certificate import PEM, PIN, Certificate, UnreadableCertificate
from eventd.tls.pair import PAIR_HINT, PairUnusable, load_pair_into

MAX_BYTES: Final = 1 << 20
"""Size of the largest file that is read: a bundle of a few hundred certificates."""
_OTHERS: Final = stat.S_IROTH | stat.S_IWOTH

T = TypeVar("T")
Stamp = tuple[int, int, int] | None
"""Identifies a version of a file: inode, size in bytes, and modification time in nanoseconds. None: no file."""


def is_server_name(name: str) -> bool:
    """Return whether a certificate can be for this host name or IP address; an empty name counts as one."""
    return not name or is_ip_address(name) or (is_host_name(name) and not name.endswith("."))


class CertificateUnusable(Unavailable):
    """A certificate, its key or a CA cannot be used; the message names the file and the cause."""


@dataclass(frozen=True, slots=True)
class ServerTlsConfig:
    """How a listener serves TLS. Files are absolute paths or `credential:NAME`.

    With a `client_ca_file`, clients must show a certificate of one of its CAs; a self-signed certificate in it stands
    for itself. `min_version`: `1.2` or `1.3`.
    """

    cert_file: str
    key_file: str
    client_ca_file: str = ""
    min_version: str = "1.2"


@dataclass(frozen=True, slots=True)
class ClientTlsConfig:
    """How a connection proves the other end, and shows who it is. Files as in `ServerTlsConfig`; empty: none.

    Without a `ca_file` the system's CAs count, unless there are `pins`: then the public key alone decides, and the
    certificate may be self-signed. `server_name`: the name that the certificate must have, by default the host.
    `unverified`: any certificate will do, as an operator may set for subscribers of the Routemaster surface alone.
    """

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    server_name: str = ""
    pins: Collection[str] = frozenset()
    unverified: bool = False

    def __post_init__(self) -> None:
        """Raise `Invalid` for values that could not work."""
        if isinstance(self.pins, str) or not all(PIN.fullmatch(pin) for pin in self.pins):
            raise Invalid("pins must be a list of texts such as sha256//BASE64", hint="see `routerd-eventd tls show`")
        if bool(self.cert_file) != bool(self.key_file):
            raise Invalid("cert_file and key_file belong together", hint="give both, or none")
        if not is_server_name(self.server_name):
            raise Invalid(f"server_name {self.server_name[:60]!r} is neither a host name nor an IP address")
        object.__setattr__(self, "pins", frozenset(self.pins))  # equal declarations share their connections


SYSTEM_CAS: Final = ClientTlsConfig()
"""Verify the other end by the system's CAs, and show no certificate."""


def place(name: str, credentials: Path | None) -> Path:
    """Return the path of a file, given by path or as `credential:NAME`. Raises `CertificateUnusable`."""
    try:
        return path_of(name, credentials)
    except NoCredentials as error:
        raise CertificateUnusable(str(error), hint=HINT) from None


def read_pem(path: Path, *, secret: bool = False) -> bytes:
    """Return the content of a PEM file. Raises `CertificateUnusable`, also for a `secret` that others may read."""
    try:
        content, mode = read_regular(path, MAX_BYTES + 1)
    except NotRegular:
        raise CertificateUnusable(f"{path} is not a file", hint="name a PEM file") from None
    except OSError as error:
        raise CertificateUnusable(
            f"cannot read {path}: {error.strerror}", hint="check the path, and that the node's user may read the file"
        ) from None
    if secret and b"PRIVATE KEY-----" not in content:
        raise CertificateUnusable(f"{path} contains no private key", hint="name a PEM file of a private key")
    if secret and mode & _OTHERS:
        raise CertificateUnusable(
            f"every user of this machine may read or change the private key {path}", hint=f"run chmod o= {path}"
        )
    if len(content) > MAX_BYTES:
        raise CertificateUnusable(f"{path} is larger than {MAX_BYTES >> 20} MiB", hint="name a PEM file")
    return content


def load_pair(context: ssl.SSLContext, cert: Path, key: Path, now: int) -> Certificate:
    """Let a context show a certificate, and return it. `now` in microseconds.

    Raises `CertificateUnusable` if a file cannot be read, the certificate has expired, or the key is not its own.
    """
    certificate = read_certificates(cert)[0]
    if certificate.expires <= now:
        raise CertificateUnusable(f"the certificate {cert} has expired", hint="renew it")
    if certificate.begins > now:
        raise CertificateUnusable(f"the certificate {cert} is not valid yet", hint="correct the clock that is wrong")
    read_pem(key, secret=True)
    try:
        load_pair_into(context, cert, key)
    except PairUnusable as error:
        raise CertificateUnusable(str(error), hint=PAIR_HINT) from None
    return certificate


def read_certificates(path: Path) -> list[Certificate]:
    """Return the certificates of a PEM file, at least one. Raises `CertificateUnusable`."""
    content = read_pem(path)
    try:
        found = Certificate.of_pem(content)
    except UnreadableCertificate as error:
        raise CertificateUnusable(f"{path}: {error}", hint="issue it again") from None
    if not found:
        raise CertificateUnusable(f"{path} contains no certificate", hint="write one or more certificates in PEM")
    return found


def load_ca(context: ssl.SSLContext, path: Path) -> None:
    """Let a context trust the certificates of a file, also one that is not a CA's. Raises `CertificateUnusable`."""
    blocks = b"\n".join(PEM.findall(read_pem(path)))  # without comments, which need not be ASCII
    if not blocks:
        raise CertificateUnusable(f"{path} contains no certificate", hint="write one or more certificates in PEM")
    try:
        context.load_verify_locations(cadata=blocks.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        reason = str(getattr(error, "reason", None) or "no PEM").lower().replace("_", " ")
        raise CertificateUnusable(f"{path} cannot be used: {reason}", hint="write certificates in PEM") from None
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def load_client_ca(context: ssl.SSLContext, path: Path) -> None:
    """Demand certificates of clients that one of these CAs has issued, or that are in the file themselves.

    Raises `CertificateUnusable`, also for a client's certificate that may issue others: its owner could take any name.
    """
    load_ca(context, path)
    for number, certificate in enumerate(read_certificates(path), start=1):
        if certificate.is_ca and (certificate.nodes or certificate.hosts):
            raise CertificateUnusable(
                f"{path}: certificate {number}, for {certificate.show_names()}, may issue certificates for any name",
                hint="let its owner make one with `routerd-eventd tls init`, or with basicConstraints CA:FALSE",
            )
    context.verify_mode = ssl.CERT_REQUIRED


class Reloaded(Generic[T]):
    """A value that is made from files, and made again when they change.

    `make` returns the value of the files as they are, or raises `CertificateUnusable`; then the previous value stays in
    effect, and `trouble` says why.
    """

    def __init__(self, names: Iterable[str], credentials: Path | None, make: Callable[[], T]) -> None:
        self.trouble = ""
        self._names = tuple(name for name in names if name)
        self._credentials = credentials
        self._make = make
        self._stamps: list[Stamp] = []
        self._value: T | None = None
        self._lock = threading.Lock()  # a look and a signal may load at once, and the older one must not be the last

    @property
    def value(self) -> T:
        """Return the value, made at the first use. Raises `CertificateUnusable` while there is none."""
        if self._value is None:
            self.refresh(force=True)
        if self._value is None:
            raise CertificateUnusable(self.trouble)
        return self._value

    async def load(self) -> T:
        """Return the value; its files are read in a thread at the first use. Raises `CertificateUnusable`."""
        if self._value is None:
            await asyncio.to_thread(lambda: self.value)
        return self.value

    @property
    def present(self) -> T | None:
        """Return the value in effect, without reading a file."""
        return self._value

    def refresh(self, *, force: bool = False) -> bool:
        """Make the value again if a file has changed, if `force`, or if the files could not be used when they were read
        last: perhaps the clock was wrong then. Returns whether such files were taken over.
        """
        with self._lock:
            stamps = self._read_stamps()
            has_changed = stamps != self._stamps or bool(self.trouble)
            if not has_changed and not force:
                return False
            self._stamps = stamps  # of before the files are read: a change during that is noticed next time
            try:
                self._value = self._make()
            except CertificateUnusable as error:
                self.trouble = str(error)
                return False
            self.trouble = ""
            return has_changed

    def _read_stamps(self) -> list[Stamp]:
        return [self._stamp(name) for name in self._names]

    def _stamp(self, name: str) -> Stamp:
        try:
            found = place(name, self._credentials).stat()
        except (OSError, CertificateUnusable):
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns
