from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation import lenient
from federation.errors import BadEvent
from federation.event import UNSET, Event, encode
from federation.lenient import decode_lenient, parse_time
from tests.unit.federation.samples import events

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(events, st.dictionaries(st.text(max_size=9).map("unknown ".__add__), json_values, max_size=3))
def test_canonical_event_reads_the_same_with_members_nobody_knows(event: Event, more: dict[str, object]) -> None:
    text = encode(event).decode()
    unknown = "".join(f",{json.dumps(name)}:{json.dumps(value)}" for name, value in more.items())
    assert decode_lenient(text.encode()) == event
    assert decode_lenient(f"{text[:-1]}{unknown}}}".encode()) == event


@given(st.binary(max_size=60) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_body_is_an_event_or_a_bad_one(body: bytes) -> None:
    with suppress(BadEvent):
        assert isinstance(decode_lenient(body), Event)


def test_bytes_that_are_no_utf8_are_replaced_one_by_one() -> None:
    body = b'{"id":"\xff \xe2\x82 \xed\xa0\x80","group":"\xc3\xa9"}'
    event = decode_lenient(body)
    assert event.id == "\ufffd \ufffd\ufffd \ufffd\ufffd\ufffd"
    assert event.group == "é"


def test_escaped_half_characters_stay_for_the_rules_to_refuse() -> None:
    assert decode_lenient(b'{"id":"\\ud800\\udc00 \\udcff"}').id == "\U00010000 \udcff"


def test_null_is_an_empty_event() -> None:
    assert decode_lenient(b" null ") == Event(id="", group="", type="")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"[" * 200_000, "too deeply nested"),
        (b"5", "an event is a JSON object"),
        (b"-Infinity", "-Infinity is not a value"),
        (b'{"id":true}', 'member "id" must be a string'),
        (b'{"id":1e5}', 'member "id" must be a string'),
        (b'{"id":{}}', 'member "id" must be a string'),
        (b'{"payload":"x"}', "must be an object of strings"),
        (b'{"payload":{"a":{}}}', 'member "payload.a" must be a string'),
        (b'{"id":"a","id":5,"id":"b"}', 'member "id" must be a string'),
        (b'{"id":"e"', "not JSON: .* at line 1 column"),
    ],
)
def test_bad_body_is_named(body: bytes, message: str) -> None:
    with pytest.raises(BadEvent, match=message):
        decode_lenient(body)


def test_numbers_of_any_length_are_passed_over() -> None:
    assert decode_lenient(b'{"x":' + b"9" * 10_000 + b',"id":"e"}').id == "e"


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-05-30T10:13:20Z", datetime(2026, 5, 30, 10, 13, 20, tzinfo=UTC)),
        ("2026-05-30T10:13:20.1Z", datetime(2026, 5, 30, 10, 13, 20, 100_000, tzinfo=UTC)),
        ("2026-05-30T10:13:20.9999999999Z", datetime(2026, 5, 30, 10, 13, 20, 999_999, tzinfo=UTC)),
        ("2026-05-30T00:00:00+23:59", datetime(2026, 5, 29, 0, 1, tzinfo=UTC)),
        ("2026-05-30T00:00:00-00:30", datetime(2026, 5, 30, 0, 30, tzinfo=UTC)),
        ("0001-01-01T09:00:00+09:00", UNSET),
    ],
)
def test_times_in_all_their_forms(text: str, time: datetime) -> None:
    assert parse_time(text) == time
    assert parse_time(text).tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-05-30",
        "2026-05-30 10:13:20Z",
        "2026-05-30t10:13:20Z",
        "2026-05-30T10:13:20z",
        "2026-05-30T10:13:20",
        "2026-05-30T10:13:20,5Z",
        "2026-05-30T10:13:20.Z",
        "2026-05-30T1:13:20Z",
        "2026-05-30T10:13:60Z",
        "2026-05-30T24:00:00Z",
        "2026-02-29T10:13:20Z",
        "2026-05-30T10:13:20+24:00",
        "2026-05-30T10:13:20+09:60",
        "2026-05-30T10:13:20+0900",
        "0000-05-30T10:13:20Z",
        "0001-01-01T00:00:00+09:00",
        "9999-12-31T23:59:59-01:00",
        "٢٠٢٦-05-30T10:13:20Z",
        "2026-05-30T10:13:20Z\n",
    ],
)
def test_no_other_form_of_a_time_is_read(text: str) -> None:
    with pytest.raises(BadEvent):
        parse_time(text)


@given(
    st.tuples(st.sampled_from(["0000", "0001", "1970", "2026", "9999"]), st.integers(0, 13), st.integers(0, 32)),
    st.tuples(st.integers(0, 25), st.integers(0, 61), st.integers(0, 61)),
    st.sampled_from(["", ".0", ".1", ".123456", ".1234567", "."]),
    st.sampled_from(["Z", "z", "+00:00", ""]),
)
def test_a_time_is_read_the_same_by_the_short_way_and_the_long_one(
    day: tuple[str, int, int], time: tuple[int, int, int], fraction: str, zone: str
) -> None:
    text = f"{day[0]}-{day[1]:02}-{day[2]:02}T{time[0]:02}:{time[1]:02}:{time[2]:02}{fraction}{zone}"
    short = _told(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lenient, "_USUAL", re.compile("(?!)"))
        assert _told(text) == short


def _told(text: str) -> object:
    try:
        time = parse_time(text)
    except BadEvent as error:
        return str(error)
    return time, time.tzinfo is UTC
