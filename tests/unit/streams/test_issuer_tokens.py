"""Tokens of OpenID Connect issuers: signed by a key of the issuer with its own algorithm, for this audience, now."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eventd.streams.claims import claim_of, has_value
from eventd.streams.issuer_tokens import IssuerKey, read_issuer_keys, verify_issuer_token
from eventd.streams.tokens import LEEWAY, LONGEST, BadKeySet, BadToken
from tests.support.stream_tokens import KEY, OTHER, PrivateKey, b64, ec_key, issuer_token, jwk, jwks, rsa_key

NOW = 1_800_000_000
ISSUER, AUDIENCE = "https://login.example/", "routerd"
CLAIMS: dict[str, Any] = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": NOW + 60}
RSA, EC = rsa_key(), ec_key()
ANY_KEY = pytest.mark.parametrize("key", [KEY, RSA, EC], ids=["EdDSA", "RS256", "ES256"])


def keys_of(*given: dict[str, Any]) -> tuple[IssuerKey, ...]:
    return read_issuer_keys(jwks(*given)).keys


def verify(token: str, *given: dict[str, Any], now: float = NOW) -> dict[str, Any]:
    return verify_issuer_token(token, ISSUER, AUDIENCE, keys_of(*given), now)


@ANY_KEY
def test_a_token_of_the_issuer_gives_its_claims(key: PrivateKey) -> None:
    assert verify(issuer_token(key, CLAIMS), jwk(OTHER, "k0"), jwk(key)) == CLAIMS
    assert verify(issuer_token(key, CLAIMS, id=""), jwk(OTHER, "k0"), jwk(key)) == CLAIMS


@ANY_KEY
def test_a_token_that_was_changed_is_refused(key: PrivateKey) -> None:
    token = issuer_token(key, CLAIMS)
    head, _, signature = token.split(".")
    changed = f"{head}.{b64(json.dumps(CLAIMS | {'sub': 'eve'}).encode())}.{signature}"
    for wrong in (changed, token[:-8] + "AAAAAAAA", f"{token}AA", f"{head}.e30."):
        with pytest.raises(BadToken):
            verify(wrong, jwk(key))


@pytest.mark.parametrize("algorithm", ["none", "HS256", "RS512", "ES384", "EdDSA "])
def test_no_other_algorithm_is_accepted(algorithm: str) -> None:
    with pytest.raises(BadToken, match="none of the issuer's keys"):
        verify(issuer_token(RSA, CLAIMS, alg=algorithm), jwk(RSA))


def test_a_key_is_not_used_with_the_algorithm_of_another_type() -> None:
    public = jwk(RSA)
    with pytest.raises(BadToken, match="none of the issuer's keys"):
        verify(issuer_token(EC, CLAIMS, alg="RS256"), public)


def test_a_key_of_another_id_is_not_tried() -> None:
    with pytest.raises(BadToken, match="none of the issuer's keys"):
        verify(issuer_token(EC, CLAIMS, id="k2"), jwk(EC, "k1"))
    assert verify(issuer_token(EC, CLAIMS, id="k2"), jwk(EC, "")) == CLAIMS


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"iss": "https://other.example/"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"aud": "other"}, "another audience"),
        ({"aud": ["other"]}, "another audience"),
        ({"aud": {"routerd": 1}}, "another audience"),
        ({"exp": NOW - LEEWAY - 1}, "expired"),
        ({"exp": None}, "expired"),
        ({"exp": "soon"}, "expired"),
        ({"exp": True}, "expired"),
        ({"nbf": NOW + LEEWAY + 1}, "not valid yet"),
        ({"nbf": "now"}, "not valid yet"),
    ],
)
def test_wrong_claims_are_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadToken, match=reason):
        verify(issuer_token(EC, CLAIMS | change), jwk(EC))


@pytest.mark.parametrize(
    "change", [{"aud": ["x", AUDIENCE]}, {"exp": NOW - LEEWAY}, {"exp": NOW + 0.5}, {"nbf": NOW + LEEWAY}]
)
def test_lists_of_audiences_and_clocks_that_differ_are_accepted(change: dict[str, Any]) -> None:
    assert verify(issuer_token(EC, CLAIMS | change), jwk(EC)) == CLAIMS | change


@pytest.mark.parametrize("token", ["", "a", "a.b", "a.b.c.d", "..", "é.é.é", "e30.e30.e30", "x" * (LONGEST + 1)])
def test_what_is_not_a_token_is_refused(token: str) -> None:
    with pytest.raises(BadToken):
        verify(token, jwk(EC))


def test_claims_that_are_not_an_object_are_refused() -> None:
    head = b64(b'{"alg":"EdDSA"}')
    for body in (b"[]", b"7", b'"x"', b"[" * 5000, b"\xff"):
        signed = f"{head}.{b64(body)}"
        with pytest.raises(BadToken, match="not readable"):
            verify(f"{signed}.{b64(KEY.sign(signed.encode()))}", jwk(KEY, ""))


def test_a_key_that_is_not_usable_costs_no_other_and_is_named() -> None:
    curve = jwk(EC)
    given = [
        7,
        {"kty": "oct", "k": "secret"},
        {"kty": ["RSA"]},
        jwk(RSA) | {"alg": "RS512"},
        jwk(RSA) | {"use": "enc"},
        jwk(RSA) | {"kid": 7},
        jwk(RSA) | {"n": b64(b"\x80" + bytes(127))},
        jwk(RSA) | {"n": "A" * 3000},
        jwk(RSA) | {"e": b64(b"\xff" * 8)},
        jwk(RSA) | {"e": "="},
        {name: value for name, value in jwk(RSA).items() if name != "e"},
        curve | {"crv": "P-384"},
        curve | {"y": curve["x"]},
        {"kty": "OKP", "crv": "X25519", "x": jwk()["x"]},
        jwk() | {"x": "AA"},
        jwk(),
    ]
    found = read_issuer_keys(json.dumps({"keys": given}).encode())
    assert [key.id for key in found.keys] == ["k1"]
    assert [problem.split(":")[0] for problem in found.problems] == [f"key {number}" for number in range(1, 16)]
    assert "secret" not in str(found.problems)


def test_a_text_that_is_not_a_key_set_is_refused() -> None:
    for text in (b"", b"{}", b"[]", b'{"keys":7}', b"[" * 5000):
        with pytest.raises(BadKeySet):
            read_issuer_keys(text)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sub", "ada"),
        ("realm_access.roles", ["a"]),
        ("https://x.y/z", 1),
        ("realm_access.none", None),
        ("no.claim", None),
    ],
)
def test_a_claim_is_found_by_its_whole_name_or_through_dots(name: str, value: Any) -> None:
    claims = {"sub": "ada", "realm_access": {"roles": ["a"]}, "https://x.y/z": 1}
    assert claim_of(claims, name) == value


@pytest.mark.parametrize(
    ("claim", "value", "expected"),
    [
        ("ops", "ops", True),
        ("dev ops", "ops", True),
        ("devops", "ops", False),
        (["dev", "ops"], "ops", True),
        (["dev ops"], "ops", True),
        (True, "true", True),
        (7, "7", True),
        (False, "false", True),
        (None, "null", False),
        ({"ops": 1}, "ops", False),
        ([["ops"]], "ops", False),
        ("two words", "two words", True),
        *[(claim, "*", True) for claim in ("x", True, 0, 7, ["x"], {"x": 1})],
        *[(claim, "*", False) for claim in (None, False, "", [], {})],
    ],
)
def test_a_claim_has_a_value_as_a_whole_an_element_or_a_word(claim: Any, value: str, expected: bool) -> None:
    assert has_value(claim, value) is expected
