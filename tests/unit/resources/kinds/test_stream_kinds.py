"""StreamTenant and StreamCache: what is accepted, what is refused and where, and the configuration that results."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.resources.apply import Action, plan
from eventd.resources.kinds.registry import STREAM_CACHE, STREAM_TENANT, find_kind
from eventd.resources.stream_configuration import (
    CacheSpec,
    KeySourceConfig,
    StreamTenantConfig,
    stream_caches,
    stream_tenants,
)
from eventd.streams.names import CacheName
from eventd.streams.permissions import Permission, StreamAction
from eventd.streams.tokens import StreamKey
from eventd.tls.files import SYSTEM_CAS, ClientTlsConfig
from tests.support.stream_tokens import KEY, jwk
from tests.unit.resources.samples import accepted, problems, row

X = jwk()["x"]
EXCHANGE = """\
  issuer: https://login.example/
  audience: routerd
  jwksURL: https://login.example/keys
  grants: [{claim: groups, value: ops, permissions: ["stream.publish:stream:t1/*"]}]
  signingKeyFile: credential:t1.key
"""


def tenant(spec: str, name: str = "t1") -> str:
    """A StreamTenant; the lines of its spec begin on line 5."""
    lines = "".join(f"  {line}\n" for line in spec.splitlines())
    return f"apiVersion: stream.routerd.net/v1alpha1\nkind: StreamTenant\nmetadata: {{name: {name}}}\nspec:\n{lines}"


def cache(spec: str = "tenant: t1", name: str = "c") -> str:
    """A StreamCache; the lines of its spec begin on line 5."""
    return tenant(spec, name).replace("StreamTenant", "StreamCache")


def key(**changes: str) -> str:
    given = {"kty": "OKP", "crv": "Ed25519", "x": X} | changes
    return f"jwks: {{keys: [{{{', '.join(f'{name}: {value}' for name, value in given.items())}}}]}}"


def told(text: str) -> StreamTenantConfig:
    return stream_tenants(map(row, accepted(text)))["t1"]


def effective(text: str) -> dict[str, Any]:
    [resource] = accepted(text)
    return resource.effective()


@pytest.mark.parametrize("word", ["tenant", "tenants", "st", "streamtenants", "StreamTenant"])
def test_a_tenant_has_short_names(word: str) -> None:
    assert find_kind(word) is STREAM_TENANT


@pytest.mark.parametrize("word", ["cache", "caches", "sc", "streamcaches", "StreamCache"])
def test_a_cache_has_short_names(word: str) -> None:
    assert find_kind(word) is STREAM_CACHE


def test_a_tenant_with_its_keys_written_out() -> None:
    found = told(tenant(key(kid="k1", alg="EdDSA", use="sig")))
    assert (found.name, found.source, found.exchange) == ("t1", None, None)
    assert [each.key for each in found.keys] == [StreamKey("k1", KEY.public_key())]
    assert effective(tenant(key())) == {
        "jwks": {"keys": [{"kty": "OKP", "crv": "Ed25519", "x": X, "kid": "", "alg": "EdDSA", "use": "sig"}]},
        "jwksFile": "",
        "jwksURL": "",
        "caFile": "",
        "allowPlain": False,
    }


def test_a_tenant_whose_keys_are_in_a_file_or_at_a_url() -> None:
    assert told(tenant("jwksFile: /etc/t1.json")).source == KeySourceConfig("/etc/t1.json")
    url = told(tenant("jwksURL: https://keys.example/t1?a=b\ncaFile: /etc/ca.pem")).source
    assert url == KeySourceConfig(url="https://keys.example/t1?a=b", tls=ClientTlsConfig("/etc/ca.pem"))
    assert (url.name, url.field) == ("https://keys.example/t1", "jwksURL")
    plain = told(tenant("jwksURL: http://keys.example/\nallowPlain: true")).source
    assert plain == KeySourceConfig(url="http://keys.example/", tls=SYSTEM_CAS)


def test_a_tenant_with_an_exchange() -> None:
    exchange = told(tenant(f"exchange:\n{EXCHANGE}  ttl: 1h\n  keyId: x1")).exchange
    assert exchange is not None
    assert (exchange.issuer, exchange.audience, exchange.subject_claim) == ("https://login.example/", "routerd", "sub")
    assert exchange.keys == KeySourceConfig(url="https://login.example/keys")
    assert (exchange.ttl, exchange.signing_key_file, exchange.key_id) == (3600, "credential:t1.key", "x1")
    (grant,) = exchange.grants
    assert (grant.claim, grant.value) == ("groups", "ops")
    assert grant.permissions == (Permission(StreamAction.PUBLISH, "stream:t1/*"),)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            "{}",
            "4: StreamTenant/t1 spec.jwks: is required, or jwksFile, jwksURL or exchange: without keys, no token is"
            " valid",
        ),
        (
            f"{key()}\njwksFile: /a",
            "5: StreamTenant/t1 spec.jwks: excludes jwksFile and jwksURL (leave one of them out)",
        ),
        (
            "jwksFile: /a\njwksURL: https://a.example/",
            "6: StreamTenant/t1 spec.jwksURL: jwksFile and jwksURL exclude each other (leave one of them out)",
        ),
        (
            "jwksFile: a.json",
            "5: StreamTenant/t1 spec.jwksFile: must be an absolute path to a file, or credential:NAME",
        ),
        (
            "jwksURL: http://a.example/",
            "5: StreamTenant/t1 spec.jwksURL: must begin with https://: anyone on the way could replace the keys (or"
            " write allowPlain: true)",
        ),
        ("jwksFile: /a\ncaFile: /b", "6: StreamTenant/t1 spec.caFile: has no effect without jwksURL (leave it out)"),
        ("jwks: {keys: []}", "5: StreamTenant/t1 spec.jwks.keys: must contain at least one key"),
        (key(kty="RSA"), "5: StreamTenant/t1 spec.jwks.keys[0].kty: must be OKP, not 'RSA'"),
        (key(crv="X25519"), "5: StreamTenant/t1 spec.jwks.keys[0].crv: must be Ed25519, not 'X25519'"),
        (key(alg="RS256"), "5: StreamTenant/t1 spec.jwks.keys[0].alg: must be EdDSA, not 'RS256'"),
        (key(use="enc"), "5: StreamTenant/t1 spec.jwks.keys[0].use: must be sig, not 'enc'"),
        (key(x="AAAA"), "5: StreamTenant/t1 spec.jwks.keys[0].x: must be 32 bytes as base64url without padding"),
        (
            key(d="c2VjcmV0"),
            "5: StreamTenant/t1 spec.jwks.keys[0].d: is the private part of the key (write only the public",
        ),
        (
            f"jwks: {{keys: [{{kty: OKP, crv: Ed25519, x: {X}, kid: a}}, {{kty: OKP, crv: Ed25519, x: {X}, kid: a}}]}}",
            "5: StreamTenant/t1 spec.jwks.keys[1].kid: 'a' is used twice, first in keys[0]",
        ),
        ("key: {}", "5: StreamTenant/t1 spec.key: unknown field"),
    ],
)
def test_what_a_tenant_must_not_say(spec: str, problem: str) -> None:
    found = problems(tenant(spec))
    assert any(each.startswith(problem) for each in found), found
    assert "c2VjcmV0" not in str(found)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("jwksURL: https://login.example/keys", "", "jwksURL: is required, or jwksFile instead of it"),
        ("jwksURL: https", "jwksURL: http", "jwksURL: must begin with https://"),
        ("signingKeyFile: credential:t1.key", 'signingKeyFile: ""', "signingKeyFile: is required"),
        ("[{claim: groups", "[] # [{claim: groups", "grants: must contain at least one grant"),
        ('["stream.publish:stream:t1/*"]', "[]", "grants[0].permissions: must contain at least one permission"),
        ("stream.publish:", "stream.read:", "grants[0].permissions[0]: must be ACTION:PATTERN, and ACTION a known one"),
        ("issuer: https://login.example/", "issuer: ' '", "issuer: is required"),
        ("audience: routerd", "ttl: 1s", "ttl: must be between 10s and 24h0m0s"),
        ("audience: routerd", "audience: routerd\n  keyId: a/b", "keyId: must be 1 to 127 letters"),
        ("audience: routerd", "", "audience: is required"),
    ],
)
def test_what_an_exchange_must_not_say(old: str, new: str, problem: str) -> None:
    assert old in EXCHANGE
    found = problems(tenant(f"exchange:\n{EXCHANGE.replace(old, new)}"))
    assert any(f"StreamTenant/t1 spec.exchange.{problem}" in each for each in found), found


def test_permissions_of_an_exchange_are_bounded() -> None:
    many = ", ".join(['"stream.publish:*"'] * 501)
    grants = ", ".join([f"{{claim: c, permissions: [{many}]}}"] * 2)
    text = EXCHANGE.replace('[{claim: groups, value: ops, permissions: ["stream.publish:stream:t1/*"]}]', f"[{grants}]")
    assert any(
        "must not contain more than 1000 permissions together" in each
        for each in problems(tenant(f"exchange:\n{text}"))
    )


def test_the_name_of_a_tenant_is_one_that_streams_can_have() -> None:
    assert problems(tenant("jwksFile: /a", "t" * 80)) == []
    [problem] = problems(tenant("jwksFile: /a", "t" * 81))
    assert problem.endswith(
        "metadata.name: must be 1 to 80 letters, digits or '.', '_', '-', beginning with a letter or a digit (it is the"
        " name of the tenant in tokens and requests)"
    )


def test_the_smallest_cache_has_every_default() -> None:
    assert effective(cache()) == {
        "tenant": "t1",
        "namespace": "default",
        "name": "default",
        "maxBytes": "64MiB",
        "maxEntries": 1_000_000,
        "maxTTL": "0s",
    }
    found = stream_caches(map(row, accepted(cache())))
    assert found == {CacheName("t1", "default", "default"): CacheSpec(64 << 20, 1_000_000, None)}


def test_what_a_cache_says_takes_effect() -> None:
    text = cache("tenant: t1\nnamespace: n\nname: x\nmaxBytes: 1KiB\nmaxEntries: 5\nmaxTTL: 1m")
    assert stream_caches(map(row, accepted(text))) == {CacheName("t1", "n", "x"): CacheSpec(1024, 5, 60_000)}
    assert next(iter(stream_caches(map(row, accepted(cache("tenant: t\nmaxTTL: 1us")))).values())).max_ttl_ms == 1


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("name: x", "tenant: is required"),
        ("tenant: a/b", "tenant: must be 1 to 80 letters, digits or '.', '_', '-'"),
        ("tenant: t\nnamespace: 'a:b'", "namespace: must be 1 to 80 letters"),
        ("tenant: t\nmaxBytes: 1", "maxBytes: must be between 1KiB and 1TiB"),
        ("tenant: t\nmaxEntries: 0", "maxEntries: must be"),
        ("tenant: t\nmaxTTL: 400d", "maxTTL: must be between 0s and 8784h0m0s"),
        ("tenant: t\nmaxTtl: 1m", "maxTtl: unknown field (did you mean maxTTL?)"),
    ],
)
def test_what_a_cache_must_not_say(spec: str, problem: str) -> None:
    found = problems(cache(spec))
    assert any(f"StreamCache/c spec.{problem}" in each for each in found), found


def test_a_cache_is_declared_once() -> None:
    stored = [row(each) for each in accepted(cache(name="first"))]
    message = "spec.name: t1/default/default already is StreamCache/first (change that one, or name another cache)"
    assert [each.partition(" ")[2] for each in problems(cache(name="second"), stored)] == [
        f"StreamCache/second {message}"
    ]
    assert problems(cache(name="second"), stored, prune=True) == []
    assert problems(cache(name="first"), stored) == []
    assert problems(cache("tenant: t1\nname: other", name="second"), stored) == []


def test_the_same_meaning_is_no_change() -> None:
    stored = [row(each) for each in accepted(cache())]
    same = accepted(cache("tenant: t1\nnamespace: default\nmaxBytes: 65536KiB\nmaxTTL: 0s"))
    other = accepted(cache("tenant: t1\nmaxBytes: 1MiB"))
    assert [change.action for change in plan(same, stored).changes] == [Action.UNCHANGED]
    assert [change.action for change in plan(other, stored).changes] == [Action.CONFIGURED]
