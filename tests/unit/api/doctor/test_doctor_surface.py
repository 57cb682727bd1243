"""What doctor says of the Routemaster surface: TLS, the administrator's key, and the room for events."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from eventd.api.doctor.report import Check
from eventd.api.doctor.surface import check_surface
from eventd.log.core.topic_row import TopicRow
from eventd.log.routemaster.surface_topic import surface_topic_config
from eventd.settings.loading import load

TLS = {"routemaster_tls_cert": "/c.pem", "routemaster_tls_key": "/c.key"}
KEY = {"routemaster_root_key_file": "/root.key"}
MIB = 1 << 20


def found(topic: TopicRow | None = None, listen: str = "0.0.0.0:8443", **given: Any) -> list[Check]:
    settings = load({"routemaster_listen": listen} | given, {})
    assert settings.routemaster_listen is not None
    return [*check_surface(settings, settings.routemaster_listen, topic)]


def codes(checks: list[Check]) -> list[tuple[str, str]]:
    return [(str(check.status), check.code) for check in checks]


def topic(size: int, **config: Any) -> TopicRow:
    text = msgspec.json.encode(surface_topic_config(**config)).decode()
    return TopicRow(1, "routemaster", "record", bytes=size, config_text=text)


def test_a_surface_with_tls_and_a_key_has_no_finding() -> None:
    assert found(**TLS, **KEY) == []


@pytest.mark.parametrize(
    ("listen", "given", "warns"),
    [
        ("0.0.0.0:8080", {}, True),
        ("10.0.0.1:8080", {"routemaster_require_tls": "false"}, True),
        ("127.0.0.1:8080", {"routemaster_require_tls": "false"}, False),
        ("[::1]:8080", {}, False),
        ("0.0.0.0:8080", {"routemaster_trusted_proxies": "10.1.0.0/16"}, False),
        ("0.0.0.0:8080", {"routemaster_trusted_proxies": "10.1.0.0/16", "routemaster_require_tls": "false"}, True),
    ],
)
def test_a_surface_that_other_machines_reach_without_tls_is_reported(
    listen: str, given: dict[str, str], warns: bool
) -> None:
    checks = found(None, listen, **KEY, **given)
    assert codes(checks) == ([("warn", "surface-without-tls")] if warns else [])
    for check in checks:
        assert listen in check.detail
        assert "routemaster_tls_cert" in check.remedy


def test_a_surface_without_an_administrator_s_key_is_reported() -> None:
    (check,) = found(**TLS)
    assert check.code == "surface-no-root-key"
    assert "routerctl routemaster token create" in check.remedy


@pytest.mark.parametrize(
    ("used", "discard", "expected"),
    [
        (MIB * 8 // 10, "reject", []),
        (MIB * 95 // 100, "reject", [("warn", "surface-full")]),
        (MIB - 1024, "reject", [("fail", "surface-full")]),
        (MIB, "old", []),
    ],
)
def test_a_topic_near_its_limit_is_reported_before_it_refuses_publishers(
    used: int, discard: Any, expected: list[tuple[str, str]]
) -> None:
    checks = found(topic(used, cap_bytes=MIB, discard=discard), **TLS, **KEY)
    assert codes(checks) == expected
    for check in checks:
        assert "503" in check.detail
        assert "routemaster_max_bytes" in check.remedy


def test_a_topic_without_a_limit_is_never_full() -> None:
    assert found(topic(1 << 40), **TLS, **KEY) == []
