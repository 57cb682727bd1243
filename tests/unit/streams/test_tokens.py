"""Tokens: signed by a key of the tenant, for it, now; everything else is refused with a reason for the log alone."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from eventd.streams.base64_text import encode_url
from eventd.streams.permissions import Permission, StreamAction
from eventd.streams.tokens import (
    LONGEST,
    MOST_KEYS,
    BadKeySet,
    BadToken,
    StreamKey,
    StreamToken,
    read_key_set,
    read_public_key,
    sign,
    verify,
)

NOW = 1_800_000_000
KEY, OTHER = (Ed25519PrivateKey.from_private_bytes(bytes([filler]) * 32) for filler in (1, 2))
KEYS = (StreamKey("k1", KEY.public_key()),)
CLAIMS: dict[str, Any] = {
    **{"iss": "felix-auth", "aud": "felix-broker", "sub": "shop", "tid": "t1", "exp": NOW + 60, "iat": NOW},
    "perms": ["stream.publish:stream:t1/*"],
}


def encode(value: bytes) -> str:
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def make(claims: Any = CLAIMS, head: Any = None, key: Ed25519PrivateKey = KEY) -> str:
    head = {"alg": "EdDSA", "kid": "k1"} if head is None else head
    signed = f"{encode(json.dumps(head).encode())}.{encode(json.dumps(claims).encode())}"
    return f"{signed}.{encode(key.sign(signed.encode()))}"


def jwk(key: Ed25519PrivateKey, **others: Any) -> dict[str, Any]:
    public = encode(key.public_key().public_bytes_raw())
    return {"kty": "OKP", "kid": "k1", "alg": "EdDSA", "use": "sig", "crv": "Ed25519", "x": public, **others}


def test_valid() -> None:
    token = verify(make(), "t1", KEYS, NOW)
    assert token == StreamToken("shop", "t1", NOW + 60, (Permission(StreamAction.PUBLISH, "stream:t1/*"),), "k1")
    assert verify(sign(KEY, "k1", token, NOW), "t1", KEYS, NOW) == token


def test_the_key_of_another_id_may_have_signed() -> None:
    keys = (StreamKey("k2", OTHER.public_key()), StreamKey("", KEY.public_key()))
    assert verify(make(), "t1", keys, NOW).key_id == ""
    assert verify(make(head={"alg": "EdDSA"}), "t1", keys, NOW).key_id == ""


@pytest.mark.parametrize("late", [60, 120])
def test_leeway_after_the_end(late: int) -> None:
    assert verify(make(), "t1", KEYS, NOW + late)
    with pytest.raises(BadToken, match="it has expired"):
        verify(make(), "t1", KEYS, NOW + 121)


def test_not_before() -> None:
    assert verify(make({**CLAIMS, "nbf": NOW + 60}), "t1", KEYS, NOW)
    with pytest.raises(BadToken, match="not valid yet"):
        verify(make({**CLAIMS, "nbf": NOW + 61}), "t1", KEYS, NOW)


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (make(key=OTHER), "none of the tenant's keys"),
        (make(head={"alg": "none"}), "alg is not EdDSA"),
        (make(head={"alg": "HS256"}), "alg is not EdDSA"),
        (make(head=["EdDSA"]), "not readable"),
        (make({**CLAIMS, "iss": "me"}), "another issuer"),
        (make({**CLAIMS, "aud": "me"}), "another audience"),
        (make({**CLAIMS, "aud": ["felix-broker"]}), "not readable"),
        (make({**CLAIMS, "tid": "t2"}), "another tenant"),
        (make({**CLAIMS, "exp": NOW + 0.5}), "not readable"),
        (make({**CLAIMS, "exp": 10**400}), "not readable"),
        (make({**CLAIMS, "exp": None}), "not readable"),
        (make({**CLAIMS, "perms": "all"}), "not readable"),
        (make({**CLAIMS, "perms": ["root:*"]}), "unknown permission"),
        (make({name: value for name, value in CLAIMS.items() if name != "sub"}), "not readable"),
        (make([]), "not readable"),
        (make()[:-2], "none of the tenant.s keys"),
        (make() + "=", "not base64url"),
        (make().replace(".", ".."), "not a token"),
        ("", "not a token"),
        ("a.b", "not a token"),
        ("ä.b.c", "not a token"),
        ("x" * (LONGEST + 1), "too long"),
    ],
)
def test_refused(token: str, why: str) -> None:
    with pytest.raises(BadToken, match=why):
        verify(token, "t1", KEYS, NOW)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_no_text_breaks_it(text: str) -> None:
    for token in (text, f"{text}.{text}.{text}", make()[:-5] + text, f"x{text}{make()}"):
        with pytest.raises(BadToken):
            verify(token, "t1", KEYS, NOW)


def test_a_bad_key_costs_no_other_and_is_named() -> None:
    wrong = [
        1,
        jwk(OTHER, kty="RSA"),
        jwk(OTHER, crv="X25519"),
        jwk(OTHER, alg="ES256"),
        jwk(OTHER, use="enc"),
        jwk(OTHER, x="AAAA"),
        jwk(OTHER, x="!" * 43),
        jwk(OTHER, kid=7),
    ]
    found = read_key_set(json.dumps({"keys": [*wrong, jwk(KEY)]}).encode())
    assert [key.id for key in found.keys] == ["k1"]
    assert verify(make(), "t1", found.keys, NOW)
    assert len(found.problems) == len(wrong)
    assert found.problems[0] == "key 1: it is not an object"
    assert found.problems[5] == "key 6: x has 3 bytes, not 32"


def test_alg_use_and_kid_may_be_left_out() -> None:
    plain = {name: value for name, value in jwk(KEY).items() if name not in ("alg", "use", "kid")}
    assert [key.id for key in read_key_set(json.dumps({"keys": [plain]}).encode()).keys] == [""]


def test_number_of_keys() -> None:
    found = read_key_set(json.dumps({"keys": [jwk(KEY)] * (MOST_KEYS + 1)}).encode())
    assert (len(found.keys), found.problems) == (MOST_KEYS, ("only the first 100 of 101 keys are used",))


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"keys":{}}', b'{"keys":null}', b"\xff", b"[" * 100_000])
def test_no_key_set(text: bytes) -> None:
    with pytest.raises(BadKeySet):
        read_key_set(text)


def test_a_key_whose_signatures_anybody_can_make_is_refused() -> None:
    with pytest.raises(ValueError, match="is a weak key"):
        read_public_key(encode_url(bytes([1]) + bytes(31)))
