"""What a client may demand of a server's certificate."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path

import pytest

from eventd.errors import Invalid
from eventd.quic.trust import ServerTrust, Untrusted
from eventd.runtime.clock import SystemClock
from tests.support.certificates import DAY, Authority, Files

NOW = SystemClock().now()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def der(files: Files) -> bytes:
    return ssl.PEM_cert_to_DER_cert(files.cert.read_text())


def test_a_certificate_of_the_ca_for_the_name_is_trusted(authority: Authority) -> None:
    trust = ServerTrust(ca=authority.file.read_bytes())
    trust.check([der(authority.issue("a"))], "localhost", NOW)
    trust.check([der(authority.issue("a"))], "127.0.0.1", NOW)


def test_another_name_is_refused(authority: Authority) -> None:
    shown = [der(authority.issue("a"))]
    for trust in (ServerTrust(ca=authority.file.read_bytes()), ServerTrust(ca=authority.issue("a").cert.read_bytes())):
        with pytest.raises(Untrusted):
            trust.check(shown, "elsewhere.example", NOW)
    with pytest.raises(Untrusted):
        ServerTrust(ca=authority.file.read_bytes(), name="elsewhere.example").check(shown, "localhost", NOW)


def test_another_ca_is_refused(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    with pytest.raises(Untrusted, match="cannot be verified"):
        ServerTrust(ca=other.file.read_bytes()).check([der(authority.issue("a"))], "localhost", NOW)
    with pytest.raises(Untrusted, match="cannot be verified"):
        ServerTrust().check([der(authority.issue("a"))], "localhost", NOW)


def test_a_certificate_in_the_ca_file_stands_for_itself(authority: Authority) -> None:
    files = authority.issue("a")
    ServerTrust(ca=files.cert.read_bytes()).check([der(files)], "localhost", NOW)
    with pytest.raises(Untrusted, match=r"is for 127\.0\.0\.1, localhost, not for elsewhere\.example"):
        ServerTrust(ca=files.cert.read_bytes()).check([der(files)], "elsewhere.example", NOW)


def test_a_pin_stands_for_any_name_and_issuer(authority: Authority) -> None:
    files = authority.issue("a")
    digest = hashlib.sha256(der(files)).hexdigest()
    colons = ":".join(digest.upper()[place : place + 2] for place in range(0, 64, 2))
    for pin in (digest, colons, files.pin):
        ServerTrust(pin=pin).check([der(files)], "elsewhere.example", NOW)
        with pytest.raises(Untrusted, match="has the pin"):
            ServerTrust(pin=pin).check([der(authority.issue("b"))], "localhost", NOW)


def test_an_expired_certificate_is_refused_whatever_the_pin(authority: Authority) -> None:
    files = authority.issue("a", lasts=-DAY)
    for trust in (ServerTrust(pin=files.pin), ServerTrust(ca=authority.file.read_bytes())):
        with pytest.raises(Untrusted, match="has expired"):
            trust.check([der(files)], "localhost", NOW)


def test_no_certificate_is_refused(authority: Authority) -> None:
    with pytest.raises(Untrusted):
        ServerTrust(ca=authority.file.read_bytes()).check([], "localhost", NOW)


def test_only_this_machine_may_go_without_a_check(authority: Authority) -> None:
    blind = ServerTrust(is_blind=True)
    blind.check([der(authority.issue("a", lasts=-DAY))], "127.0.0.1", NOW)
    for host in ("127.0.0.1", "127.0.0.53", "::1"):
        blind.require_loopback(host)
    for host in ("192.0.2.1", "2001:db8::1", "fe80::1%eth0"):
        with pytest.raises(Invalid, match="must be verified"):
            blind.require_loopback(host)
        ServerTrust().require_loopback(host)


@pytest.mark.parametrize("pin", ["abc", "sha256//short", "z" * 64, "0" * 63])
def test_what_is_not_a_pin_is_refused(pin: str) -> None:
    with pytest.raises(Invalid, match="is not a valid pin"):
        ServerTrust(pin=pin)


def test_a_file_without_certificates_is_refused() -> None:
    with pytest.raises(Invalid, match="contains no certificate"):
        ServerTrust(ca=b"nothing")
