"""Standard Webhooks: known vectors, and each reason of a refusal."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from federation.errors import BadKey, ClockSkew, Malformed, NoSigningKey, Unauthorized
from federation.keys import Algorithm, Key, KeyState
from federation.webhooks import format_public, format_secret, format_seed, read_key, sign, verify

SHORT = ("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
BATCH = (
    "orders-1",
    1795173886,
    b'[{"topic":"orders","type":"create","url":"https://shop.example/orders/1","t":1795173885369}]',
)
FIRST = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
SECOND = "whsec_ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoM="
SEED = "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
PUBLIC = "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="
VECTORS = [
    (SHORT, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
    (BATCH, FIRST, "v1,LLg6FbD4duDjKH6squHNcCuDKUQj/k/743Ac2VasH3k="),
    (BATCH, SECOND, "v1,UC08CCp6xEM+GKQwFioyzndlKbWSrwBL0C07jDuclUE="),
    (BATCH, SEED, "v1a,uaSukB7XiRlLffcBvsS1/aToN3OR0RW4TVAFPZ3lkJU5JuN58LJOQZE0z8eEZwxKJA83LOxwT6dutljRGYm0AQ=="),
]
NOW = BATCH[1] * 1_000_000


def headers(signature: str, message: tuple[str, int, bytes] = BATCH) -> dict[str, str]:
    return {"Webhook-Id": message[0], "webhook-timestamp": str(message[1]), "WEBHOOK-SIGNATURE": signature}


@pytest.mark.parametrize(("message", "secret", "signature"), VECTORS)
def test_known_signatures(message: tuple[str, int, bytes], secret: str, signature: str) -> None:
    key = read_key("k", secret)
    assert sign([key], *message) == signature
    found = verify([key], headers(signature, message), message[2], now=message[1] * 1_000_000)
    assert found == message[:2]


def test_public_part_verifies_and_does_not_sign() -> None:
    public = read_key("k", PUBLIC)
    assert verify([public], headers(VECTORS[3][2]), BATCH[2], now=NOW).id == "orders-1"
    with pytest.raises(NoSigningKey):
        sign([public], *BATCH)


def test_active_keys_sign_first_retiring_ones_too_and_no_others() -> None:
    old = read_key("old", FIRST, state="retiring")
    new = read_key("new", SEED, state="active")
    others = [read_key(state, SECOND, state=state) for state in ("pending", "revoked")]
    assert sign([old, *others, new], *BATCH) == f"{VECTORS[3][2]} {VECTORS[1][2]}"
    assert sign(others, *BATCH) == ""


def test_one_valid_signature_among_others_is_enough() -> None:
    value = f"v2,abc v1 v1,!!! {VECTORS[1][2]} {VECTORS[2][2]}"
    assert verify([read_key("k", SECOND)], headers(value), BATCH[2], now=NOW).timestamp == BATCH[1]


def test_version_must_be_that_of_the_key() -> None:
    """A public key is known to everybody: as an HMAC secret, it would let everybody sign."""
    forged = sign([Key(id="k", algorithm=Algorithm.HMAC_SHA256, secret=PUBLIC.encode())], *BATCH)
    for version in ("v1", "v1a"):
        with pytest.raises(Unauthorized) as refused:
            verify([read_key("k", PUBLIC)], headers(forged.replace("v1", version)), BATCH[2], now=NOW)
        assert refused.value.reason == "bad_signature"


def test_revoked_key_verifies_nothing() -> None:
    with pytest.raises(Unauthorized):
        verify([read_key("k", FIRST, state="revoked")], headers(VECTORS[1][2]), BATCH[2], now=NOW)


@pytest.mark.parametrize(("skew", "direction"), [(301, "behind"), (-301, "ahead of")])
def test_time_outside_of_the_tolerance(skew: int, direction: str) -> None:
    key = read_key("k", FIRST)
    with pytest.raises(ClockSkew, match=f"301 s {direction} this clock; 300 s are allowed"):
        verify([key], headers(VECTORS[1][2]), BATCH[2], now=NOW + skew * 1_000_000)
    for allowed in (300, -300):
        verify([key], headers(VECTORS[1][2]), BATCH[2], now=NOW + allowed * 1_000_000)


@pytest.mark.parametrize("changed", ["id", "timestamp", "body"])
def test_every_signed_part_counts(changed: str) -> None:
    given, body = headers(VECTORS[1][2]), BATCH[2]
    if changed == "id":
        given["Webhook-Id"] = "orders-2"
    elif changed == "timestamp":
        given["webhook-timestamp"] = str(BATCH[1] + 1)
    else:
        body += b" "
    with pytest.raises(Unauthorized) as refused:
        verify([read_key("k", FIRST)], given, body, now=NOW)
    assert type(refused.value) is Unauthorized
    assert refused.value.reason == "bad_signature"


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("Webhook-Id", "", "missing_header"),
        ("webhook-timestamp", " ", "missing_header"),
        ("WEBHOOK-SIGNATURE", "", "missing_header"),
        ("Webhook-Id", "a.b", "bad_id"),
        ("Webhook-Id", "a b", "bad_id"),
        ("Webhook-Id", "ä", "bad_id"),
        ("Webhook-Id", "a" * 257, "bad_id"),
        ("webhook-timestamp", "-1", "bad_timestamp"),
        ("webhook-timestamp", "1e9", "bad_timestamp"),
        ("webhook-timestamp", "١", "bad_timestamp"),
        ("webhook-timestamp", "1" * 13, "bad_timestamp"),
        ("WEBHOOK-SIGNATURE", "v1,AAAA " * 33, "bad_signature"),
        ("WEBHOOK-SIGNATURE", "v" * 8193, "bad_signature"),
    ],
)
def test_unusable_header(name: str, value: str, reason: str) -> None:
    with pytest.raises(Malformed) as refused:
        verify([read_key("k", FIRST)], headers(VECTORS[1][2]) | {name: value}, BATCH[2], now=NOW)
    assert refused.value.reason == reason


@pytest.mark.parametrize("id", ["", "a.b", "a b", "ä", "a" * 65])
def test_unusable_id_is_not_sent(id: str) -> None:
    with pytest.raises(ValueError, match="is not a message id"):
        sign([read_key("k", FIRST)], id, 1, b"")


def test_forms_of_one_key_pair_are_equal() -> None:
    private = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    public = private.public_key()
    both = "whsk_" + b64encode(bytes(range(32)) + public.public_bytes_raw()).decode()
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public_pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    assert {sign([read_key("k", form)], *BATCH) for form in (SEED, both, pem, f" {SEED}\n")} == {VECTORS[3][2]}
    assert {format_public(read_key("k", form)) for form in (SEED, both, pem, PUBLIC, public_pem)} == {PUBLIC}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "neither"),
        ("geheim", "neither"),
        (b"\xff", "not text"),
        ("whsec_%%%", "not valid base64"),
        ("whsec_ä", "not valid base64"),
        (f"whsec_{b64encode(b'x' * 23).decode()}", "has 23 bytes, and must have 24 to 64"),
        (f"whsec_{b64encode(b'x' * 65).decode()}", "has 65 bytes"),
        (f"whsk_{b64encode(b'x' * 31).decode()}", "has 31 bytes"),
        (f"whsk_{b64encode(b'x' * 64).decode()}", "do not belong together"),
        ("whpk_AAAA", "not an Ed25519 key"),
        ("-----BEGIN PRIVATE KEY-----\n", "not an unencrypted Ed25519 key"),
    ],
)
def test_unusable_secret_is_not_shown(text: str | bytes, message: str) -> None:
    with pytest.raises(BadKey, match=message) as refused:
        read_key("k", text)
    shown = text.decode("latin-1") if isinstance(text, bytes) else text
    assert not shown or shown not in str(refused.value)


def test_formats_read_back() -> None:
    assert read_key("k", format_secret(b"s" * 32)).secret == b"s" * 32
    assert format_seed(bytes(range(32))) == SEED
    with pytest.raises(BadKey):
        format_secret(b"s" * 8)
    with pytest.raises(BadKey):
        format_seed(b"s" * 8)
    with pytest.raises(BadKey):
        format_public(read_key("k", FIRST))


@given(st.binary(min_size=24, max_size=64), st.binary(max_size=300), st.integers(0, 10**12 - 1))
def test_what_is_signed_verifies(secret: bytes, body: bytes, timestamp: int) -> None:
    """Also with a secret that begins or ends with white space, which must not be trimmed."""
    key = read_key("k", format_secret(secret))
    signature = sign([replace(key, state=KeyState.RETIRING)], "id", timestamp, body)
    found = verify([key], headers(signature, ("id", timestamp, body)), body, now=timestamp * 1_000_000)
    assert found == ("id", timestamp)


@given(st.dictionaries(st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature"]), st.text()))
def test_nonsense_is_refused(given: dict[str, str]) -> None:
    with pytest.raises((Malformed, Unauthorized)):
        verify([read_key("k", FIRST), read_key("p", PUBLIC)], given, b"", now=NOW)
