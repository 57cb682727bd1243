"""Certificates and their files, as other programs and attackers make them."""

from __future__ import annotations

import datetime
import os
import ssl
import time
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from eventd.tls.certificate import Certificate, UnreadableCertificate, pin_of
from eventd.tls.contexts import ServerTls
from eventd.tls.files import CertificateUnusable, ServerTlsConfig
from eventd.tls.reasons import HandshakeFailed, Reason
from eventd.tls.transport import TlsTransport
from tests.support.certificates import DAY, Authority, Files
from tests.unit.tls.test_transport import Application, Raw

NOW = datetime.datetime.now(datetime.UTC)


def now() -> int:
    return time.time_ns() // 1000


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def make(
    folder: Path, *extensions: x509.ExtensionType, begins: datetime.datetime = NOW - DAY, issues: bool | None = False
) -> Files:
    """Write a self-signed pair."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "odd")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(NOW + DAY * 30)
    )
    if issues is not None:
        builder = builder.add_extension(x509.BasicConstraints(issues, None), critical=True)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    folder.mkdir(exist_ok=True)
    files = Files(folder / "odd.crt", folder / "odd.key")
    files.cert.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    files.key.touch(0o600)
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files


def odd_names(content: bytes) -> x509.UnrecognizedExtension:
    """Return subject alternative names of any form."""
    return x509.UnrecognizedExtension(x509.ObjectIdentifier("2.5.29.17"), content)


def load(files: Files, client_ca: Path | None = None) -> ServerTls:
    tls = ServerTls(ServerTlsConfig(str(files.cert), str(files.key), str(client_ca or "")), None, now)
    assert tls.value
    return tls


@pytest.mark.parametrize(
    "names",
    [b"\x30\x05\x87\x03\x01\x02\x03", b"\x30\x03\x82\x01\xff", b"\x30\x02\xa3\x00", b"\x30\x7f"],
    ids=["ip of three bytes", "dns name that is not ASCII", "x400 address", "cut off"],
)
def test_names_that_cannot_be_read_are_one_error_and_the_pin_is_known(tmp_path: Path, names: bytes) -> None:
    files = make(tmp_path / "odd", odd_names(names))
    content = ssl.PEM_cert_to_DER_cert(files.cert.read_text())
    with pytest.raises(UnreadableCertificate):
        Certificate.of_der(content)
    assert pin_of(content).startswith("sha256//")
    with pytest.raises(CertificateUnusable, match="certificate 1 cannot be read"):
        load(files)


def test_no_certificate_at_all_is_one_error_too() -> None:
    with pytest.raises(UnreadableCertificate):
        pin_of(b"\x30\x00")


def test_a_clients_certificate_that_may_issue_others_is_refused(ca: Authority, tmp_path: Path) -> None:
    named = x509.SubjectAlternativeName([x509.DNSName("third")])
    server = ca.issue("server")
    with pytest.raises(CertificateUnusable, match="certificate 1, for third, may issue certificates for any name"):
        load(server, make(tmp_path / "odd", named, issues=True).cert)
    load(server, make(tmp_path / "odd", named, issues=False).cert)
    load(server, ca.file)


def test_a_certificate_of_tomorrow_does_not_replace_one_of_today(tmp_path: Path) -> None:
    with pytest.raises(CertificateUnusable, match="is not valid yet"):
        load(make(tmp_path / "odd", begins=NOW + DAY))


def test_comments_in_a_ca_file_are_skipped(ca: Authority, tmp_path: Path) -> None:
    commented = tmp_path / "bundle.pem"
    commented.write_bytes("# Zertifikat für uns\n".encode() + ca.file.read_bytes() + b"\xff\n")
    load(ca.issue("server"), commented)


@pytest.mark.parametrize("content", [b"", b"-----BEGIN CERTIFICATE-----\n", b"nonsense"])
def test_a_file_without_a_key_says_so_first(ca: Authority, content: bytes) -> None:
    files = ca.issue("server")
    files.key.write_bytes(content)
    files.key.chmod(0o644)
    with pytest.raises(CertificateUnusable, match="contains no private key"):
        load(files)


def test_a_look_and_a_signal_at_once_leave_the_newest_file(ca: Authority) -> None:
    import threading

    files = ca.issue("server")
    tls = load(files)
    renewed = ca.issue("server")
    threads = [threading.Thread(target=tls.refresh, kwargs={"force": bool(number % 2)}) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert tls.value.certificate is not None
    assert tls.value.certificate.pin == renewed.pin


def test_an_unchanged_file_is_no_news(ca: Authority) -> None:
    files = ca.issue("server")
    tls = load(files)
    assert not tls.refresh()
    assert not tls.refresh(force=True)
    os.utime(files.cert, ns=(1, 1))
    assert tls.refresh()


@pytest.mark.parametrize("wrong", [-365 * DAY, 365 * DAY], ids=["behind", "ahead"])
def test_files_that_were_renewed_while_the_clock_was_wrong_are_used_once_it_is_right(
    ca: Authority, wrong: datetime.timedelta
) -> None:
    clock, files = [now()], ca.issue("site")
    tls = ServerTls(ServerTlsConfig(str(files.cert), str(files.key)), None, lambda: clock[0])
    before = tls.value
    ca.issue("site")
    clock[0] += wrong // datetime.timedelta(microseconds=1)
    assert not tls.refresh()
    assert (tls.present, bool(tls.trouble)) == (before, True)
    clock[0] = now()
    assert tls.refresh()
    assert (tls.present != before, tls.trouble) == (True, "")
    assert not tls.refresh()


def resume(tls: ServerTls, client: ssl.SSLContext, session: ssl.SSLSession | None, time_: int) -> ssl.SSLSession | None:
    """Connect with TLS 1.2 at this time, and return the session; raise `HandshakeFailed` if the server refuses."""
    arrived, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    end = client.wrap_bio(arrived, sent, server_hostname="localhost", session=session)
    raw = Raw()
    server = TlsTransport(raw, tls.value.context, lambda: time_)
    for _ in range(6):
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
        data = sent.read()
        if server.established:
            server.receive(data, Application())
        else:
            server.shake_hands(data)
        arrived.write(raw.take())
    assert server.established
    server.close()
    return end.session


def test_a_resumed_session_does_not_outlive_the_certificate_it_began_with(ca: Authority) -> None:
    tls = load(ca.issue("server"), ca.file)
    shown = ca.issue("client", lasts=DAY)
    client = ssl.create_default_context(cafile=str(ca.file))
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    client.load_cert_chain(shown.cert, shown.key)
    session = resume(tls, client, None, now())
    assert resume(tls, client, session, now()) is not None
    with pytest.raises(HandshakeFailed) as refused:
        resume(tls, client, session, now() + 2 * 86_400_000_000)
    assert refused.value.reason is Reason.CLIENT_EXPIRED


def test_remembered_sessions_are_bounded(ca: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventd.tls.contexts.MOST_SESSIONS", 3)
    tls = load(ca.issue("server"))
    client = ssl.create_default_context(cafile=str(ca.file))
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    for _ in range(5):
        resume(tls, client, None, now())
    assert tls.value.context.session_stats()["number"] == 5
    tls.refresh()
    assert tls.value.context.session_stats()["number"] == 0
