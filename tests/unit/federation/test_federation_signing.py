from __future__ import annotations

from base64 import b64decode
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation import signing
from federation.batch import encode_batch
from federation.components import cover, signature_base, write_list
from federation.errors import BadAnswer, ClockSkew, Forbidden, Malformed, MessageError, Unauthorized
from federation.event import encode
from federation.keys import Key, KeyRing, KeyState
from federation.message_signature import content_digest_header
from federation.peers import SECOND
from federation.ranges import Range
from federation.signing import (
    Receiver,
    Request,
    VerifiedRequest,
    sign_answer,
    sign_request,
    verify_answer,
    verify_request,
)
from federation.structured import InnerList, parse_dictionary, write_value
from federation.wire import BatchHeader, LinkQuery
from tests.unit.federation.samples import KEY, NONCE, NOW, RECEIVER, as_request, make_event, make_header, sign

BODY = encode_batch([(1, "", encode(make_event()).decode())])
# The key pair of RFC 9421, appendix B.1.4.
PAIR = Key.ed25519("pair", private="n4Ni+HpISpVObnQMW0wOhCKROaIKqKtW/2ZYb2p9KcU=", owner="a")

RFC_VALUES = {
    "@method": "POST",
    "@path": "/foo",
    "@authority": "example.com",
    "date": "Tue, 20 Apr 2021 02:07:55 GMT",
    "content-type": "application/json",
    "content-length": "18",
}


@pytest.mark.parametrize(
    ("key", "covered", "signature"),
    [
        (
            Key.hmac("k", "any"),
            '("date" "@authority" "content-type");created=1618884473;keyid="test-shared-secret"',
            "pxcQw6G3AjtMBQjwo8XzkZf/bws5LelbaMk5rGIGtE8=",
        ),
        (
            PAIR,
            '("date" "@method" "@path" "@authority" "content-type" "content-length")'
            ';created=1618884473;keyid="test-key-ed25519"',
            "wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==",
        ),
    ],
    ids=["hmac-sha256", "ed25519"],
)
def test_examples_of_the_standard_are_reproduced(key: Key, covered: str, signature: str) -> None:
    """RFC 9421, appendix B.2.5 and B.2.6. The shared secret there is bytes, not text."""
    secret = b64decode("uzvJfB4u3N0Jy4T7NZ75MDVcr8zSTInedJtkgcu46YW4XByzNJjxBdtjUkdJPBtbmHhIDi6pcl8jsasjlTMtDQ==")
    parts = parse_dictionary(f"sig={covered}")["sig"]
    assert isinstance(parts, InnerList)
    key = replace(key, secret=secret if key.secret else b"")
    components = cover(parts.items)
    base = signature_base(components, write_list(components, parts.params), RFC_VALUES)
    assert write_value(key.sign(base)) == f":{signature}:"


def test_digest_is_the_one_of_the_standard() -> None:
    """RFC 9530, appendix D."""
    assert content_digest_header(b'{"hello": "world"}\n') == "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:"


@pytest.mark.parametrize("key", [KEY, PAIR])
def test_what_is_signed_is_verified(key: Key) -> None:
    signed = sign(BODY, key=key)
    verified = verify_request(as_request(signed, BODY), replace(RECEIVER, keys=KeyRing([key])), now=NOW)
    assert verified.header == signed.header == make_header()
    assert (verified.key, verified.nonce, verified.digest) == (key, NONCE, signed.digest)
    assert verified.signature == signed.signature


@pytest.mark.parametrize("named", [KEY, PAIR], ids=["hmac-sha256", "ed25519"])
def test_a_refusal_costs_one_signature_of_the_named_algorithm_whatever_is_known(
    named: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its time tells which key ids the group has."""
    verify, asked = Key.verifies, list[str]()

    def watch(self: Key, signature: bytes, data: bytes) -> bool:
        asked.append(self.algorithm)
        return verify(self, signature, data)

    monkeypatch.setattr(Key, "verifies", watch)
    others = {
        "unknown_key": Key.hmac("other", "s"),
        "bad_signature": replace(PAIR, id=named.id, public=None) if named is PAIR else Key.hmac(named.id, "s"),
        "revoked_key": replace(named, state=KeyState.REVOKED),
        "wrong_algorithm": replace(KEY if named is PAIR else PAIR, id=named.id),
    }
    signed = sign(BODY, key=named)
    for reason, known in others.items():
        with pytest.raises(Unauthorized) as refused:
            verify_request(as_request(signed, BODY), replace(RECEIVER, keys=KeyRing([known])), now=NOW)
        assert refused.value.reason == reason
    assert asked == [named.algorithm] * len(others)


def test_nonce_is_kept_for_a_window_after_its_request_went_stale() -> None:
    signed = sign_request(make_header(), BODY, KEY, now=NOW, nonce=NONCE, window=10 * SECOND)
    for now in (NOW - 300 * SECOND, NOW + 10 * SECOND):
        verified = verify_request(as_request(signed, BODY), RECEIVER, now=now)
        assert verified.nonce_until == NOW + (10 + 300 + 1) * SECOND
        with pytest.raises(ClockSkew):
            verify_request(as_request(signed, BODY), RECEIVER, now=verified.nonce_until)


@pytest.mark.parametrize("nonce", ["", "n" * 15, "n" * 65, "n" * 15 + '"'])
def test_nonce_must_be_one(nonce: str) -> None:
    with pytest.raises(Malformed, match="a nonce must be"):
        sign_request(make_header(), BODY, KEY, now=NOW, nonce=nonce)


def test_skew_names_its_size_and_the_clock_it_was_measured_by() -> None:
    with pytest.raises(ClockSkew, match="signed 400 s ago by the receiver's clock, more than the 300 s") as caught:
        verify_request(as_request(sign(BODY), BODY), RECEIVER, now=NOW + 400 * SECOND)
    assert caught.value.server_time == NOW + 400 * SECOND


def test_header_that_is_not_ascii_is_not_signed() -> None:
    signed = sign(BODY)
    headers = signed.headers | {"Eventd-From": "ä"}
    with pytest.raises(Unauthorized) as caught:
        verify_request(Request("POST", "/v2/events", headers, BODY), RECEIVER, now=NOW)
    assert caught.value.reason == "components"


def test_digest_header_that_cannot_be_read_fits_nothing() -> None:
    headers = sign(BODY).headers | {"Content-Digest": "="}
    with pytest.raises(Unauthorized) as caught:
        verify_request(Request("POST", "/v2/events", headers, BODY), RECEIVER, now=NOW)
    assert caught.value.reason == "wrong_digest"


def test_link_query_needs_no_batch() -> None:
    query = LinkQuery(from_node="a", to_node="b", group="edge")
    signed = sign_request(query, b"{}", KEY, now=NOW, nonce=NONCE)
    verified = verify_request(as_request(signed, b"{}"), RECEIVER, now=NOW)
    assert verified.header == query
    assert not isinstance(verified.header, BatchHeader)


def answered(body: bytes = b"{}", status: int = 200) -> tuple[dict[str, str], signing.SignedRequest]:
    signed = sign(BODY)
    verified = verify_request(as_request(signed, BODY), RECEIVER, now=NOW)
    return sign_answer(verified, status, body, KEY, now=NOW), signed


def test_answer_fits_its_request() -> None:
    headers, signed = answered()
    assert verify_answer(signed, 200, headers, b"{}", KeyRing([KEY])) is KEY
    assert verify_answer(signed, 200, list(headers.items()), b"{}", KeyRing([KEY])) is KEY


@pytest.mark.parametrize(
    ("status", "body", "headers", "reason"),
    [
        (201, b"{}", {}, "bad_signature"),
        (200, b"[]", {}, "wrong_digest"),
        (200, b"{}", {"Content-Type": "text/plain"}, "bad_signature"),
        (200, b"{}", {"Signature": ""}, "no_signature"),
    ],
)
def test_answer_that_was_changed_proves_nothing(status: int, body: bytes, headers: dict[str, str], reason: str) -> None:
    made, signed = answered()
    with pytest.raises(BadAnswer, match="the answer of b proves nothing") as caught:
        verify_answer(signed, status, made | headers, body, KeyRing([KEY]))
    assert caught.value.reason == reason


def test_answer_without_its_type_proves_nothing() -> None:
    made, signed = answered()
    del made["Content-Type"]
    with pytest.raises(BadAnswer, match="content-type is missing"):
        verify_answer(signed, 200, made, b"{}", KeyRing([KEY]))


@st.composite
def tampered(draw: st.DrawFn) -> Request:
    """A valid request with one thing changed: a character, a whole value, a header lost or doubled, the body."""
    signed = sign(BODY)
    headers, body, path, method = list(signed.headers.items()), BODY, "/v2/events", "POST"
    at = draw(st.integers(0, len(headers) - 1))
    name, value = headers[at]
    match draw(st.sampled_from(["text", "value", "lose", "double", "other", "body", "path", "method", "case"])):
        case "text":
            index = draw(st.integers(0, len(value) - 1))
            new = draw(st.characters() | st.sampled_from(list('"();:=, *')))
            headers[at] = (name, value[:index] + new + value[index + draw(st.integers(0, 2)) :])
        case "value":
            headers[at] = (name, draw(st.text(max_size=20)))
        case "lose":
            del headers[at]
        case "double":
            headers.append((name.upper(), draw(st.just(value) | st.text(max_size=5))))
        case "other":
            headers[at] = (name, draw(st.sampled_from(headers))[1])
        case "body":
            index = draw(st.integers(0, len(body)))
            body = body[:index] + draw(st.binary(max_size=3)) + body[index + draw(st.integers(0, 3)) :]
        case "path":
            path = draw(st.sampled_from(["/v2/link", "/v2/events/", "/"]) | st.text(max_size=9))
        case "method":
            method = draw(st.sampled_from(["GET", "post", ""]))
        case "case":
            headers[at] = (name.swapcase(), f" {value}\t")
    return Request(method, path, headers, body)


@given(tampered())
def test_changed_request_is_refused_or_means_the_same(request: Request) -> None:
    try:
        verified = verify_request(request, RECEIVER, now=NOW)
    except MessageError as error:
        assert (error.status >= 400, bool(error.reason), bool(error.message)) == (True, True, True)  # noqa: PT017
        return
    assert (verified.header, verified.key, verified.nonce) == (make_header(), KEY, NONCE)
    assert request.body == BODY


def test_answer_is_worthless_for_another_request() -> None:
    made, _ = answered()
    other = sign(BODY, make_header(range=Range(epoch="e", after=1, upto=2)))
    with pytest.raises(BadAnswer):
        verify_answer(other, 200, made, b"{}", KeyRing([KEY]))


def test_key_of_another_node_cannot_answer() -> None:
    own, other = Key.hmac("a", "s", owner="a"), Key.hmac("c", "t", owner="c")
    ring = KeyRing([own, other])
    signed = sign(BODY, key=own)
    verified = verify_request(as_request(signed, BODY), Receiver("b", "edge", ring), now=NOW)
    assert isinstance(verified, VerifiedRequest)
    headers = sign_answer(verified, 200, b"{}", other, now=NOW)
    with pytest.raises(BadAnswer, match="a key that is not b's") as caught:
        verify_answer(signed, 200, headers, b"{}", ring)
    assert caught.value.reason == "wrong_sender"


@pytest.mark.parametrize(
    ("receiver", "told"),
    [
        (replace(RECEIVER, node="other"), f"this is other, the request is for {RECEIVER.node!r}"),
        (replace(RECEIVER, group="other"), f"the group here is other, the request is for {RECEIVER.group!r}"),
    ],
)
def test_a_request_for_another_is_refused_with_both_names(receiver: Receiver, told: str) -> None:
    request = as_request(sign(BODY), BODY)
    with pytest.raises(Forbidden) as caught:
        verify_request(request, receiver, now=NOW)
    assert caught.value.message == told
