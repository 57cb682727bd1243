"""The certificate of a server: from files, or made once and kept."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from eventd.quic.certificate import QuicCertificate
from eventd.runtime.clock import SECOND, SystemClock
from eventd.tls.certificate import Certificate
from eventd.tls.files import CertificateUnusable
from tests.support.certificates import DAY, Authority

NOW = SystemClock().now()


def test_a_self_signed_certificate_is_made_once_and_kept(tmp_path: Path) -> None:
    first, path = QuicCertificate.kept_in(tmp_path, "n1", NOW)
    again, same = QuicCertificate.kept_in(tmp_path, "n1", NOW + 86400 * SECOND)
    assert (first.chain, first.key, path) == (again.chain, again.key, same)
    found = Certificate.of_pem(path.read_bytes())[0]
    assert found.hosts == {"localhost", "127.0.0.1", "::1"}
    assert not found.is_ca
    assert stat.S_IMODE((path.parent / "tls.key").stat().st_mode) == 0o600


@pytest.mark.parametrize("started", [NOW + 2 * 86400 * SECOND, 400 * 86400 * SECOND], ids=["ahead", "in 1971"])
def test_a_certificate_made_with_a_wrong_clock_is_valid_once_the_clock_is_right(tmp_path: Path, started: int) -> None:
    """A machine without a clock of its own starts in the past, and the time server sets its clock a moment later."""
    made, _ = QuicCertificate.kept_in(tmp_path, "n1", started)
    kept, _ = QuicCertificate.kept_in(tmp_path, "n1", NOW)
    assert kept.chain == made.chain


def test_the_key_is_in_no_text(tmp_path: Path) -> None:
    certificate, _ = QuicCertificate.kept_in(tmp_path, "n1", NOW)
    assert "PRIVATE" not in repr(certificate)


def test_files_that_cannot_work_are_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    one, other, old = authority.issue("one"), authority.issue("other"), authority.issue("old", lasts=-DAY)
    assert QuicCertificate.of_files(one.cert, one.key, NOW).chain == one.cert.read_bytes()
    with pytest.raises(CertificateUnusable, match="does not belong"):
        QuicCertificate.of_files(one.cert, other.key, NOW)
    with pytest.raises(CertificateUnusable, match="has expired"):
        QuicCertificate.of_files(old.cert, old.key, NOW)
    with pytest.raises(CertificateUnusable, match="cannot read"):
        QuicCertificate.of_files(tmp_path / "none", one.key, NOW)
