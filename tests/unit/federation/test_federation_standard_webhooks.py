"""The library of Standard Webhooks accepts what is signed here, and what it signs is accepted here."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from eventd.runtime.clock import SECOND, SystemClock
from federation.errors import Unauthorized
from federation.keys import KeyState
from federation.webhooks import format_secret, format_seed, read_key, sign, verify

OLD, NEW, OTHER = (format_secret(bytes([filler]) * 32) for filler in (1, 2, 3))
SECRETS = st.binary(min_size=24, max_size=64)
IDS = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
BODIES = st.text().map(str.encode)  # the library signs text


def now() -> int:
    """The library compares with the machine's clock."""
    return SystemClock().now() // SECOND


def headers(id: str, timestamp: int, signature: str) -> dict[str, str]:
    return {"webhook-id": id, "webhook-timestamp": str(timestamp), "webhook-signature": signature}


def library_signature(secret: str, id: str, timestamp: int, body: bytes) -> str:
    return Webhook(secret).sign(id, datetime.fromtimestamp(timestamp, UTC), body.decode())


@given(SECRETS, IDS, BODIES)
def test_what_is_signed_here_the_library_accepts(raw: bytes, id: str, body: bytes) -> None:
    sent, secret = now(), format_secret(raw)
    signature = sign([read_key("k", secret)], id, sent, body)
    Webhook(secret).verify(body, headers(id, sent, signature), json_parse=False)
    assert signature == library_signature(secret, id, sent, body)


@given(SECRETS, IDS, BODIES)
def test_what_the_library_signs_is_accepted_here(raw: bytes, id: str, body: bytes) -> None:
    sent, secret = now(), format_secret(raw)
    given_headers = headers(id, sent, library_signature(secret, id, sent, body))
    assert verify([read_key("k", secret)], given_headers, body, now=sent * SECOND) == (id, sent)


@pytest.mark.parametrize("secret", [OLD, NEW])
def test_receiver_with_either_secret_of_a_rotation(secret: str) -> None:
    """Both keys sign, besides one of another kind, which the library does not know and skips."""
    keys = [
        read_key("old", OLD, state=KeyState.RETIRING),
        read_key("new", NEW),
        read_key("pair", format_seed(bytes(32))),
    ]
    sent = now()
    signature = sign(keys, "m-1", sent, b'{"n": 1}')
    assert [entry.partition(",")[0] for entry in signature.split()] == ["v1", "v1a", "v1"]
    assert Webhook(secret).verify(b'{"n": 1}', headers("m-1", sent, signature)) == {"n": 1}


def test_rotation_of_another_sender_is_accepted_here() -> None:
    sent = now()
    signature = " ".join(library_signature(secret, "m-1", sent, b"{}") for secret in (OLD, NEW))
    for secret in (OLD, NEW):
        assert verify([read_key("k", secret)], headers("m-1", sent, signature), b"{}", now=sent * SECOND).id == "m-1"


@pytest.mark.parametrize("change", ["secret", "id", "time", "body"])
def test_both_refuse_the_same_requests(change: str) -> None:
    sent = now()
    signature = sign([read_key("k", OTHER if change == "secret" else OLD)], "m-1", sent, b"{}")
    given_headers = headers("m-2" if change == "id" else "m-1", sent + (change == "time"), signature)
    body = b"{ }" if change == "body" else b"{}"
    with pytest.raises(WebhookVerificationError, match="No matching signature"):
        Webhook(OLD).verify(body, given_headers)
    with pytest.raises(Unauthorized, match="no signature"):
        verify([read_key("k", OLD)], given_headers, body, now=sent * SECOND)


def test_both_read_a_secret_as_what_its_base64_stands_for() -> None:
    raw = bytes(range(24))
    text = f"whsec_{b64encode(raw).decode()}"
    assert library_signature(text, "m-1", 1_800_000_000, b"{}") == sign(
        [read_key("k", text)], "m-1", 1_800_000_000, b"{}"
    )
    assert Webhook(raw).sign("m-1", datetime.fromtimestamp(1_800_000_000, UTC), "{}") == sign(
        [read_key("k", text)], "m-1", 1_800_000_000, b"{}"
    )
