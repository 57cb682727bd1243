from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from federation.errors import BadKey, NoSigningKey
from federation.keys import Algorithm, Key, KeyRing, KeyState, dummy_of
from tests.unit.federation.samples import WEAK_KEYS

PRIVATE = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
PUBLIC = PRIVATE.public_key()
PRIVATE_PEM = PRIVATE.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
PUBLIC_PEM = PUBLIC.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
FOREIGN = generate_private_key(SECP256R1())
FOREIGN_PEM = FOREIGN.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
FOREIGN_PUBLIC_PEM = FOREIGN.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
_OF_X448 = bytes.fromhex("302e020100300506032b656f04220420")  # and the 32 bytes of an Ed25519 key, not its own 56
SHORT_X448_PEM = (
    b"-----BEGIN PRIVATE KEY-----\n" + b64encode(_OF_X448 + bytes(range(32))) + b"\n-----END PRIVATE KEY-----\n"
)


def test_secret_is_the_text_without_its_edges() -> None:
    assert Key.hmac("k", " s e\n").secret == Key.hmac("k", b"\ts e ").secret == b"s e"


@pytest.mark.parametrize("secret", ["", " \n", b"\t"])
def test_blank_secret_is_an_error(secret: str | bytes) -> None:
    with pytest.raises(BadKey, match="the secret of key 'k' is empty"):
        Key.hmac("k", secret)


def test_no_repr_shows_a_secret() -> None:
    keys = [Key.hmac("k", "geheim"), Key.ed25519("e", private=PRIVATE_PEM, owner="a")]
    shown = repr(KeyRing(keys)) + str(keys)
    assert "geheim" not in shown
    assert "secret" not in shown
    assert "private" not in shown
    assert "id='k'" in shown


@pytest.mark.parametrize("private", [PRIVATE_PEM, PRIVATE_PEM.decode(), b64encode(b"k" * 32) + b"\n"])
@pytest.mark.parametrize("public", [PUBLIC_PEM, PUBLIC_PEM.decode(), b64encode(PUBLIC.public_bytes_raw()), None])
def test_key_pair_in_every_form(private: str | bytes, public: str | bytes | None) -> None:
    pair = Key.ed25519("e", private=private, public=public, owner="a")
    half = Key.ed25519("e", public=public or PUBLIC_PEM, owner="a")
    signature = pair.sign(b"data")
    assert half.verifies(signature, b"data")
    assert not half.verifies(signature, b"other")
    assert not half.verifies(b"short", b"data")
    assert pair.signs
    assert not half.signs
    with pytest.raises(NoSigningKey, match="no private part"):
        half.sign(b"data")


@pytest.mark.parametrize(
    ("material", "message"),
    [
        ({}, "neither a private nor a public part"),
        ({"private": "no base64!"}, "not an unencrypted Ed25519 key"),
        ({"private": "AAAA"}, "not an unencrypted Ed25519 key"),
        ({"private": PUBLIC_PEM}, "not an unencrypted Ed25519 key"),
        ({"private": SHORT_X448_PEM}, "not an unencrypted Ed25519 key"),
        ({"private": FOREIGN_PEM}, "of another kind than Ed25519"),
        ({"public": FOREIGN_PUBLIC_PEM}, "of another kind than Ed25519"),
        ({"public": PRIVATE_PEM}, "public part of key 'e' is not an Ed25519 key"),
        ({"public": "AAAA"}, "public part of key 'e' is not an Ed25519 key"),
        ({"private": b64encode(b"x" * 32), "public": PUBLIC_PEM}, "do not belong together"),
    ],
)
def test_material_that_is_no_key_pair(material: dict[str, Any], message: str) -> None:
    with pytest.raises(BadKey, match=message):
        Key.ed25519("e", owner="a", **material)


def test_encrypted_private_key_is_refused() -> None:
    locked = PRIVATE.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word"))
    with pytest.raises(BadKey, match="not an unencrypted"):
        Key.ed25519("e", owner="a", private=locked)


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"id": ""}, "is not a key id"),
        ({"id": 'a"b'}, "is not a key id"),
        ({"id": "é"}, "is not a key id"),
        ({"id": "k" * 129}, "is not a key id"),
        ({"owner": "a b"}, "neither a node name nor"),
        ({"owner": ""}, "neither a node name nor"),
        ({"state": "lost"}, "state is one of pending, active, retiring, revoked"),
    ],
)
def test_key_with_a_wrong_fact_about_it(about: dict[str, str], message: str) -> None:
    with pytest.raises(BadKey, match=message):
        Key.hmac(**({"id": "k", "secret": "s"} | about))  # type: ignore[arg-type]


@pytest.mark.parametrize("state", list(KeyState))
def test_what_a_state_allows(state: KeyState) -> None:
    key = Key.hmac("k", "s", state=state)
    assert key.usable is (state != "revoked")
    assert key.signs is (state == "active")


def test_whom_a_key_belongs_to_and_speaks_for() -> None:
    own, relay = Key.hmac("a", "s", owner="a"), Key.hmac("r", "s", owner="a", speaks_for=["a", "*"])
    some, shared = Key.hmac("s", "s", owner="a", speaks_for=["c", "d"]), Key.hmac("shared", "s")
    sources = ["a", "c", ""]
    assert [own.may_speak_for(source) for source in sources] == [True, False, False]
    assert [some.may_speak_for(source) for source in sources] == [False, True, False]
    assert [relay.may_speak_for(source) for source in sources] == [True, True, True]
    assert [shared.may_speak_for(source) for source in sources] == [True, True, True]
    assert (own.belongs_to("a"), own.belongs_to("b"), shared.belongs_to("b")) == (True, False, True)


def test_ring_signs_with_its_own_key_before_everybodys() -> None:
    shared, other = Key.hmac("shared", "s"), Key.hmac("b", "s", owner="b")
    pending, active = Key.hmac("a0", "s", owner="a", state="pending"), Key.hmac("a1", "s", owner="a")
    pair = Key.ed25519("a2", private=PRIVATE_PEM, owner="a")
    assert KeyRing([shared, other, pending, active, pair]).signer("a") is active
    assert KeyRing([shared, other, pending]).signer("a") is shared
    assert KeyRing([pair, shared]).signer("a") is pair
    assert KeyRing([pair, shared]).signer("a", Algorithm.HMAC_SHA256) is shared
    with pytest.raises(NoSigningKey, match="the key ring has no active hmac-sha256 key that a may sign with"):
        KeyRing([pair, other]).signer("a", Algorithm.HMAC_SHA256)
    with pytest.raises(NoSigningKey, match="the key ring has no active key that c may sign with"):
        KeyRing([pair, other]).signer("c")


def test_ring_finds_keys_and_counts_those_of_v1() -> None:
    keys = [Key.hmac(state, "s", state=state) for state in KeyState]
    ring = KeyRing([*keys, Key.ed25519("e", public=PUBLIC_PEM, owner="a")])
    assert ring.find("revoked") is keys[3]
    assert ring.find("none") is None
    assert ring.secrets() == tuple(keys[:3])
    with pytest.raises(BadKey, match="the key ids of the key ring are not unique: pending, pending"):
        KeyRing([keys[0], keys[0]])


def test_single_secret_has_the_id_everybody_gives_it() -> None:
    key = KeyRing.shared("s").signer("a")
    assert (key.id, key.owner, key.speaks_for) == ("shared", "*", "*")


def test_dummy_verifies_nothing_of_others() -> None:
    for algorithm in Algorithm:
        assert not dummy_of(algorithm).verifies(Key.hmac("k", "s").sign(b"data"), b"data")
    assert not Key(id="none", algorithm=Algorithm.ED25519).verifies(b"", b"")


@pytest.mark.parametrize("raw", WEAK_KEYS, ids=bytes.hex)
def test_a_key_whose_signatures_anybody_can_make_is_refused(raw: bytes) -> None:
    pem = Ed25519PublicKey.from_public_bytes(raw).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for public in (b64encode(raw), pem):
        with pytest.raises(BadKey, match="is weak"):
            Key.ed25519("e", public=public, owner="a")
