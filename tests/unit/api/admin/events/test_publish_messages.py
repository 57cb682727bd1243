"""Messages of publishing clients: what is read, what is refused under its number, and what ends the connection."""

from __future__ import annotations

import json

import msgspec
import pytest

from eventd.api.admin.events.event_columns import MOST, MOST_VALUES, PlainEvent, is_bounded, read_events
from eventd.api.admin.events.publish_messages import (
    UnnumberedMessage,
    estimate_events,
    read_message,
    refusal,
    write_answers,
    write_end,
)
from eventd.errors import Invalid, TooLarge, Unavailable


def test_the_usual_events_are_decoded_at_once_and_others_later() -> None:
    plain = read_message(b'{"seq":7,"events":[{"type":"t"},{"type":"u","payload":{"k":"v"}}]}')
    assert (plain.seq, plain.problem) == (7, None)
    assert plain.events == [PlainEvent(type="t"), PlainEvent(type="u", payload={"k": "v"})]
    other = read_message(b'{"events":[{"type":"t","ttl":"1h"},7],"seq":0}')
    assert other == (0, [{"type": "t", "ttl": "1h"}, 7], None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"seq":1,"events":["\xff"]}', "utf-8"),
        (b'{"seq":1}', "events"),
        (b'{"seq":1,"events":7}', "array"),
        (b'{"seq":1,"events":[]}', ">= 1"),
        (b'{"seq":1,"events":[{}],"brief":true}', "brief"),
        (b'{"seq":1,"events":[{"type":"t","subject":"\\ud800"}]}', "not valid"),
        (b' { "seq" : 1 , "events":' + b"[" * 60_000 + b"]" * 60_000 + b"}", "the message is nested"),
        (b'{"seq":1,"events":' + b"[" * 100 + b"]" * 100 + b"}", "the message is nested"),
    ],
)
def test_a_message_with_a_number_is_refused_under_it(text: bytes, words: str) -> None:
    message = read_message(text)
    assert (message.seq, message.events) == (1, [])
    assert isinstance(message.problem, Invalid)
    assert words in message.problem.message


def test_a_message_with_too_many_values_is_refused_before_it_is_decoded() -> None:
    message = read_message(b'{"seq":3,"events":[' + b"{}," * MOST_VALUES + b"{}]}")
    assert message.seq == 3
    assert isinstance(message.problem, TooLarge)


def test_a_message_for_which_there_is_no_memory_is_refused_under_its_number_and_not_decoded() -> None:
    shortage = Unavailable("later")
    assert read_message(b'{"seq":4,"events":[{"type":"t"}]}', shortage) == (4, [], shortage)
    with pytest.raises(UnnumberedMessage):
        read_message(b'{"events":[{"type":"t"}]}', shortage)


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (b'{"seq":1,"events":[' + b'{"type":"t"},' * 99 + b'{"type":"t"}]}', 100),
        (b'{"seq":1,"events":[' + b'{"type":"t","payload":{"k":"v"}},' * 99 + b'{"type":"t"}]}', 100),
        (b'{"seq":1,"events":[' + b'{"t\\u0079pe":"t"},' * 99 + b"]}", 50),
        (b'{"seq":1,"events":[' + b'{"type":"t"},' * 2 * MOST + b"]}", MOST),
        (b"x", 1),
    ],
)
def test_the_events_of_a_message_are_estimated_before_it_is_decoded(text: bytes, events: int) -> None:
    assert estimate_events(text) == events


def test_a_large_body_is_decoded_at_once_only_if_its_values_are_surely_few() -> None:
    whole = b'{"events":[' + b'{"type":"t","payload":{"k":"vvvvvvvvvv"}},' * (MOST - 1) + b'{"type":"t"}]}'
    assert is_bounded(whole)
    assert read_events(whole) is not None
    for many in (b"{}," * 3 * MOST, b'{"payload":{' + b'"":"",' * MOST_VALUES + b'"":""}},'):
        body = b'{"events":[' + many + b"{}]}"
        assert not is_bounded(body)
        assert read_events(body) is None


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"{", b"7", b"[]", b"null", b'{"events":[]}', b'{"seq":-1}', b'{"seq":1.5}', b'{"seq":"1"}'),
        *(b'{"seq":9007199254740992}', b'{"seq":1' + b"[" * 5000, b"\xff\xfe"),
        *(b'{"seq":9007199254740992,"events":["\\ud800"]}', b'{"events":["\\ud800"],"seq":1}'),
    ],
)
def test_what_has_no_number_or_is_no_json_cannot_be_answered(text: bytes) -> None:
    with pytest.raises(UnnumberedMessage):
        read_message(text)


def test_an_error_has_the_form_of_a_requests_answer() -> None:
    error = {"code": "invalid_request", "message": "no", "hint": "yes"}
    assert json.loads(write_answers([refusal(5, Invalid("no", hint="yes"))])) == {
        "answers": [{"seq": 5, "status": 400, "error": error}]
    }
    assert msgspec.json.decode(write_end(Unavailable("later"))) == {
        "status": 503,
        "error": {"code": "unavailable", "message": "later"},
    }
