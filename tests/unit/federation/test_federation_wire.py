from __future__ import annotations

import json

import pytest

from federation.errors import BadAnswer, BadEvent, ClockSkew, Malformed, MessageError, TooLarge, Unauthorized
from federation.event import from_micros
from federation.peers import STATUS
from federation.ranges import Mark, RangeAhead
from federation.wire import (
    BatchHeader,
    ErrorAnswer,
    LinkAnswer,
    LinkQuery,
    Receipt,
    Refusal,
    answer_to,
    encode_json,
    read_error,
    read_link_answer,
    read_receipt,
)
from tests.unit.federation.samples import BATCH_ID, NOW, make_header

HEADER = make_header()
RECEIPT = Receipt(
    group="edge",
    from_node="a",
    to_node="b",
    batch=BATCH_ID,
    digest="sha-256=:AA==:",
    epoch="e",
    incarnation=0,
    upto=100,
    accepted=1,
    duplicates=2,
    refused=(Refusal(7, "evt-7", "loop"),),
    recorded_at=from_micros(NOW + 5),
)
MARK = Mark(epoch="e", incarnation=0, upto=100, base=1)


def test_receipt_is_this_text() -> None:
    assert encode_json(RECEIPT).decode() == (
        '{"group":"edge","from":"a","to":"b","batch":"019e78a1-7000-7abc-8def-0123456789ab","digest":"sha-256=:AA==:",'
        '"epoch":"e","incarnation":0,"upto":100,"accepted":1,"duplicates":2,'
        '"refused":[{"position":7,"id":"evt-7","reason":"loop"}],"recordedAt":"2026-05-30T12:00:00.000005Z"}'
    )


def test_receipt_is_read_by_the_one_who_sent_the_batch() -> None:
    assert read_receipt(encode_json(RECEIPT), HEADER, RECEIPT.digest) == RECEIPT
    with pytest.raises(BadAnswer, match="another batch"):
        read_receipt(encode_json(RECEIPT), HEADER, "sha-256=:AAA=:")


def altered(old: str, new: str) -> bytes:
    text = encode_json(RECEIPT).decode()
    assert old in text
    return text.replace(old, new).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        encode_json(RECEIPT)[:-1],
        altered('"upto":100', '"upto":-5'),
        altered('"upto":100', f'"upto":{10**15}'),
        altered('"upto":100', f'"upto":{10**40}'),
        altered('"accepted":1', '"accepted":-1'),
        altered('"duplicates":2', f'"duplicates":{10**19}'),
        altered('"position":7', '"position":-7'),
        altered(":00.000005Z", ":00.000005"),  # of no zone
        altered("2026-05-30T12:00:00.000005Z", "0001-01-01T00:00:00+23:59"),
        altered("2026-05-30T12:00:00.000005Z", "9999-12-31T23:59:59-23:59"),
    ],
)
def test_what_is_no_receipt(body: bytes) -> None:
    with pytest.raises(BadAnswer, match="not a receipt") as caught:
        read_receipt(body, HEADER, RECEIPT.digest)
    assert caught.value.reason == "no_receipt"


@pytest.mark.parametrize(
    "mark",
    [
        {"upto": -5},
        {"upto": 10**15},
        {"base": -1},
        {"incarnation": -1},
        {"epoch": ""},
        {"epoch": "e\n"},
        {"epoch": "x" * 65},
    ],
)
def test_what_is_no_mark(mark: dict[str, object]) -> None:
    answer = json.loads(encode_json(LinkAnswer(group="edge", from_node="a", to_node="b", mark=MARK)))
    answer["mark"] |= mark
    with pytest.raises(BadAnswer, match="says nothing about the link"):
        read_link_answer(json.dumps(answer).encode(), HEADER)


def test_link_answer() -> None:
    answer = LinkAnswer(group="edge", from_node="a", to_node="b", mark=MARK)
    body = encode_json(answer)
    assert json.loads(body) == {
        "group": "edge",
        "from": "a",
        "to": "b",
        "mark": {"epoch": "e", "incarnation": 0, "upto": 100, "base": 1},
    }
    assert read_link_answer(body, HEADER) == MARK
    with pytest.raises(BadAnswer, match="another link"):
        read_link_answer(body, LinkQuery(from_node="c", to_node="b", group="edge"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"from_node": ""}, "is not a node name"),
        ({"to_node": "b\n"}, "is not a node name"),
        ({"to_node": "b" * 254}, "is not a node name"),
        ({"group": "g:h"}, "is not a group name"),
        ({"group": "g" * 128}, "is not a group name"),
        ({"batch_id": "019E78A1-7000-7abc-8def-0123456789ab"}, "is not a UUID version 7"),
    ],
)
def test_header_with_a_name_that_is_none(fields: dict[str, str], message: str) -> None:
    with pytest.raises(Malformed, match=message):
        make_header(**fields)


def test_header_goes_out_as_these_fields() -> None:
    assert HEADER.to_headers() == {
        "Eventd-From": "a",
        "Eventd-To": "b",
        "Eventd-Group": "edge",
        "Eventd-Batch": BATCH_ID,
        "Eventd-Range": 'epoch="e", incarnation=0, after=0, upto=100',
    }
    assert (HEADER.path, HEADER.content_type) == ("/v2/events", "application/vnd.eventd.batch")
    assert isinstance(HEADER, BatchHeader)


@pytest.mark.parametrize(
    ("error", "more"),
    [
        (Malformed("m"), {}),
        (RangeAhead(MARK, 200), {"mark": MARK}),
        (ClockSkew("m", server_time=NOW), {"server_time": "2026-05-30T12:00:00Z"}),
        (TooLarge("m", limit=5, unit="events"), {"limit": 5, "unit": "events"}),
    ],
)
def test_error_is_answered_with_what_it_knows(error: MessageError, more: dict[str, object]) -> None:
    answer = ErrorAnswer(code=error.code, message=error.message, **more)  # type: ignore[arg-type]
    assert answer_to(error) == answer
    assert read_error(encode_json(answer)) == answer


def test_error_without_more_is_short() -> None:
    assert encode_json(ErrorAnswer(code="full", message="m")) == b'{"error":{"code":"full","message":"m"}}'


def test_outsiders_are_told_one_thing() -> None:
    told = {answer_to(Unauthorized("the key is revoked", reason=reason)) for reason in ("revoked_key", "unknown_key")}
    assert [answer.message for answer in told] == ["the request is not signed by a key of this group"]


@pytest.mark.parametrize("body", [b"", b"404 page not found\n", b'{"error":"x"}', b'{"error":{"code":"x"}}'])
def test_other_answers_are_not_ours(body: bytes) -> None:
    assert read_error(body) is None


def test_errors_know_their_status() -> None:
    assert (Malformed("m").status, Malformed("m").reason) == (400, "malformed")
    assert Unauthorized("m", reason="r").status == STATUS["unauthorized"]
    assert BadEvent.refusal == "invalid"
