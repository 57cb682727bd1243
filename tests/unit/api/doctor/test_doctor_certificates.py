"""The checks of certificates and of refused handshakes."""

from __future__ import annotations

import pytest

from eventd.api.doctor.certificates import check_certificates, check_handshakes
from eventd.api.doctor.facts import GroupFacts
from eventd.text.duration import DAY
from eventd.tls.state import CertificateState

NOW = 1_000 * DAY


def found(state: CertificateState) -> list[tuple[str, str, str]]:
    return [(check.name, str(check.status), check.code) for check in check_certificates([state], NOW)]


@pytest.mark.parametrize(
    ("days", "status"), [(22, ""), (21, ""), (20, "warn"), (3, "warn"), (2, "fail"), (0, "fail"), (-1, "fail")]
)
def test_a_certificate_is_reported_21_days_before_its_end_and_fails_3_days_before(days: int, status: str) -> None:
    expected = [("API certificate", status, "certificate-expires")] if status else []
    assert found(CertificateState("", "", "/tls.crt", NOW + days * DAY)) == expected


def test_files_that_cannot_be_used_fail_and_name_their_use() -> None:
    assert found(CertificateState("edge", "", "/a", None, "no")) == [
        ("edge listener certificate", "fail", "certificate-unusable")
    ]
    assert found(CertificateState("edge", "b", "/a", NOW, "no")) == [
        ("edge/b link certificate", "fail", "certificate-unusable")
    ]


def test_refused_handshakes_are_counted_by_reason() -> None:
    assert list(check_handshakes(GroupFacts("edge"))) == []
    (check,) = check_handshakes(GroupFacts("edge", refused_handshakes={"tls_version": 1200, "tls_client_missing": 1}))
    assert check.detail.endswith("tls_client_missing: 1; tls_version: 1,200")


@pytest.mark.parametrize(("days", "says"), [(1, ", in 1 day"), (0, " has expired at "), (-1, " has expired at ")])
def test_it_says_when_it_has_expired(days: int, says: str) -> None:
    (check,) = check_certificates([CertificateState("", "", "/tls.crt", NOW + days * DAY)], NOW)
    assert says in check.detail
