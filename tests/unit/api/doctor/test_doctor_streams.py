"""What doctor says of tenants of streams and caches."""

from __future__ import annotations

from collections.abc import Iterable

from eventd.api.doctor.report import Check
from eventd.api.doctor.streams import STALE_SECONDS, check_streams
from eventd.resources.stream_configuration import CacheSpec, StreamKeyConfig, StreamTenantConfig
from eventd.resources.stream_key_state import TenantKeyState
from eventd.settings.loading import load
from eventd.streams.names import CacheName
from tests.support.stream_tokens import jwk

T1 = StreamTenantConfig("t1")
READ = TenantKeyState("t1", "jwksFile", "/etc/t1.json", 2, 0.0, "", ())
LISTENING = load({"quic_listen": "127.0.0.1:0"}, {})
CACHE = {CacheName("t1", "default", "c"): CacheSpec(1, 1)}


def found(states: Iterable[TenantKeyState] = (), *tenants: StreamTenantConfig) -> list[Check]:
    return [*check_streams({each.name: each for each in tenants or (T1,)}, {}, states, LISTENING)]


def codes(checks: Iterable[Check]) -> list[tuple[str, str]]:
    return [(str(check.status), check.code) for check in checks]


def test_a_tenant_with_keys_passes() -> None:
    assert [(check.name, check.detail) for check in found([READ])] == [("tenant t1", "2 keys")]
    inline = StreamTenantConfig("t1", (StreamKeyConfig("k1", jwk()["x"]),))
    assert codes(found([], inline)) == [("pass", "")]


def test_a_tenant_without_usable_keys_fails() -> None:
    assert codes(found([READ._replace(keys=0)])) == [("fail", "tenant-no-keys")]
    skipped = found([READ._replace(keys=0, skipped=("key 1: kty is not OKP",))])
    assert codes(skipped) == [("warn", "tenant-key-unusable"), ("fail", "tenant-no-keys")]
    assert "key 1: kty is not OKP" in skipped[0].detail
    issuer = READ._replace(field="exchange.jwksURL")
    assert codes(found([issuer])) == [("fail", "tenant-no-keys")]
    assert codes(found([issuer, READ._replace(field="exchange.signingKeyFile", keys=1)])) == [("pass", "")]


def test_keys_that_are_not_read_yet_are_no_finding() -> None:
    assert codes(found([READ._replace(keys=0, age=None)])) == [("skip", "")]


def test_a_key_set_that_cannot_be_read_is_reported_by_what_is_left_of_it() -> None:
    problem = "/etc/t1.json: cannot be read: No such file or directory"
    never = found([READ._replace(keys=0, age=None, problem=problem)])
    assert codes(never) == [("fail", "tenant-keys-unreadable"), ("fail", "tenant-no-keys")]
    (kept,) = found([READ._replace(age=60.0, problem=problem)])
    assert codes([kept]) == [("warn", "tenant-keys-unreadable")]
    assert kept.detail == f"jwksFile {problem}; in use: 2 keys, read 1m ago"
    (stale,) = found([READ._replace(field="jwksURL", age=STALE_SECONDS, problem="no answer")])
    assert codes([stale]) == [("warn", "tenant-keys-stale")]
    assert "callback_allow" in stale.remedy


def test_a_cache_needs_its_tenant_where_tenants_are_declared() -> None:
    assert codes(check_streams({}, CACHE, [], LISTENING)) == []
    assert codes(check_streams({"t1": T1}, CACHE, [READ], LISTENING)) == [("pass", "")]
    (_, missing) = check_streams({"t2": StreamTenantConfig("t2")}, CACHE, [READ._replace(tenant="t2")], LISTENING)
    assert (missing.name, str(missing.status), missing.code) == ("cache t1/default/c", "warn", "cache-no-tenant")


def test_caches_need_a_listener() -> None:
    assert codes(check_streams({}, CACHE, [], load({}, {}))) == [("warn", "cache-no-listener")]


def test_a_command_without_a_node_says_nothing_of_keys() -> None:
    assert codes(check_streams({"t1": T1}, CACHE, [], None)) == []
