from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.errors import V1Refused
from federation.event import Event, encode
from federation.keys import Key, KeyRing
from federation.peers import SECOND, V1_MAX_BODY
from federation.v1 import (
    AnswerV1,
    check_v1,
    decode_v1,
    encode_answer_v1,
    is_page,
    read_answer_v1,
    refuses_event_v1,
    sign_request_v1,
    sign_v1,
)
from tests.unit.federation.samples import NOW, events, make_event

KEY = Key.hmac("shared", "shared-key")
RING = KeyRing([Key.hmac("other", "o", owner="c"), KEY])
WINDOW = 300 * SECOND


def check(timestamp: str | None, signature: str | None, body: bytes = b"x", now: int = NOW) -> Key:
    return check_v1(timestamp, signature, body, RING, now=now, window=WINDOW)


def test_what_is_signed_is_verified() -> None:
    body = encode(make_event())
    headers = sign_request_v1(body, KEY, now=NOW + 999_999)
    assert headers["X-Routerd-Timestamp"] == "1780142400"
    assert headers["Content-Type"] == "application/json"
    assert check(headers["X-Routerd-Timestamp"], headers["X-Routerd-Signature"], body) is KEY


def test_any_usable_secret_verifies_and_the_first_is_named() -> None:
    ring = KeyRing([KEY, Key.hmac("again", "shared-key"), Key.hmac("gone", "g", state="revoked")])
    time = NOW // SECOND
    assert check_v1(str(time), sign_v1(b"shared-key", time, b""), b"", ring, now=NOW, window=WINDOW) is KEY
    with pytest.raises(V1Refused, match="bad signature"):
        check_v1(str(time), sign_v1(b"g", time, b""), b"", ring, now=NOW, window=WINDOW)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("-5", -5),
        ("-0", 0),
        ("+0", 0),
        ("000", 0),
        ("-0005", -5),
        ("+" + "0" * 10_000 + "7", 7),
        (str(2**63 - 1), 2**63 - 1),
    ],
)
def test_timestamp_is_read_and_signed_as_a_number(text: str, seconds: int) -> None:
    assert check(text, sign_v1(b"shared-key", seconds, b"x"), now=seconds * SECOND) is KEY


@pytest.mark.parametrize(
    "text", [None, "", "+", "-", "--1", "1 ", "0x1", "1e3", "٣", "9" * 20, str(-(2**63) - 1), "1\n"]
)
def test_other_texts_are_no_timestamps(text: str | None) -> None:
    with pytest.raises(V1Refused) as caught:
        check(text, "")
    assert (caught.value.status, caught.value.body) == (400, b"bad timestamp\n")


def test_signature_that_is_not_even_text_is_wrong() -> None:
    for signature in (None, "", "é", "\udcff"):
        with pytest.raises(V1Refused) as caught:
            check(str(NOW // SECOND), signature)
        assert (caught.value.status, caught.value.reason) == (401, "bad_signature")


def test_longer_body_than_a_receiver_reads_has_no_signature() -> None:
    time = NOW // SECOND
    for size, fits in ((V1_MAX_BODY, True), (V1_MAX_BODY + 1, False)):
        body = b"x" * size
        try:
            check(str(time), sign_v1(b"shared-key", time, body), body)
        except V1Refused as error:
            assert (fits, error.reason) == (False, "bad_signature")  # noqa: PT017
        else:
            assert fits


@given(st.text(max_size=20), st.text(max_size=70), st.binary(max_size=5))
def test_anything_unsigned_is_refused(timestamp: str, signature: str, body: bytes) -> None:
    with pytest.raises(V1Refused):
        check(timestamp, signature, body)


@given(events, st.sampled_from([b"", b" "]))
def test_event_is_read_the_same_whether_canonical_or_not(event: Event, more: bytes) -> None:
    assert decode_v1(encode(event) + more, now=NOW) == event


def test_detail_of_a_bad_body_stays_here() -> None:
    with pytest.raises(V1Refused) as caught:
        decode_v1(b'{"id":5}', now=NOW)
    assert caught.value.body == b"bad event body\n"
    assert str(caught.value) == 'bad event body (member "id" must be a string)'


def test_answer_escapes_like_the_nodes_that_read_it() -> None:
    assert encode_answer_v1("evt-1", duplicate=False) == b'{"accepted":true,"duplicate":false,"id":"evt-1"}\n'
    answer = encode_answer_v1('<"é&>\u2028', duplicate=True)
    assert answer.decode() == '{"accepted":true,"duplicate":true,"id":"\\u003c\\"é\\u0026\\u003e\\u2028"}\n'
    assert read_answer_v1(answer) == AnswerV1(accepted=True, duplicate=True, id='<"é&>\u2028')


@pytest.mark.parametrize("body", [b"", b"ok", b"[]", b"[" * 100_000, b'{"duplicate":"no"}'])
def test_answer_that_cannot_be_read_says_nothing(body: bytes) -> None:
    assert read_answer_v1(body) == AnswerV1()


@pytest.mark.parametrize(
    ("status", "body", "refuses"),
    [
        (400, b"bad event body\n", True),
        (400, b"invalid event: federation event id is required\n", True),
        (400, b"bad timestamp\n", False),
        (400, b"read body\n", False),
        (401, b"bad signature\n", False),
        (403, b"stale timestamp\n", False),
        (500, b"invalid event:\n", False),
    ],
)
def test_only_these_answers_are_about_the_event(status: int, body: bytes, refuses: bool) -> None:
    assert refuses_event_v1(status, body) is refuses


@pytest.mark.parametrize(
    ("content_type", "body", "page"),
    [
        ("application/json", b'{"accepted":true,"duplicate":false,"id":"x"}\n', False),
        ("", b"", False),
        ("text/plain; charset=utf-8", b"ok", False),
        ("Text/HTML; charset=utf-8", b"", True),
        ("", b"\r\n<!DOCTYPE html>", True),
    ],
)
def test_a_page_is_told_from_an_answer_of_a_receiver(content_type: str, body: bytes, page: bool) -> None:
    assert is_page(content_type, body) is page


def test_every_refusal_has_its_words() -> None:
    assert V1Refused("read_body").body == b"read body\n"
    assert (V1Refused("store_error").status, V1Refused("store_error").text) == (500, "store error")
    assert V1Refused("validation", "why").text == "invalid event: why"
