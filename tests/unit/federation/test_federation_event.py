from __future__ import annotations

import os
import re
import uuid
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.errors import InvalidEvent, NotCanonical
from federation.event import (
    UNSET,
    ZERO_TIME,
    Event,
    content_digest,
    decode_canonical,
    encode,
    expiry_micros,
    format_time,
    from_micros,
    is_alive,
    micros,
    new_event_id,
    new_event_ids,
    normalise,
)
from federation.lenient import decode_lenient
from tests.unit.federation.samples import NOW, SEEN, events, make_event, times


def test_canonical_form_is_exactly_this() -> None:
    event = make_event(
        subject='<&> "é" \\ / \u2028 \x7f \t\x01',
        payload={"é": "2", "b": "\b\f\n\r", "a": ""},
        expires_at=datetime(2026, 5, 30, 12, tzinfo=UTC),
    )
    assert encode(event).decode() == (
        '{"id":"evt-1","group":"edge","sourceNode":"a","type":"t",'
        '"subject":"<&> \\"é\\" \\\\ / \u2028 \x7f \\t\\u0001","dedupeKey":"evt-1",'
        '"payload":{"a":"","b":"\\b\\f\\n\\r","é":"2"},"observedAt":"2026-05-30T11:59:58.250000Z",'
        '"expiresAt":"2026-05-30T12:00:00Z"}'
    )


def test_empty_members_are_left_out_and_times_never() -> None:
    event = Event(id="e", group="g", type="t")
    assert encode(event) == (
        b'{"id":"e","group":"g","type":"t","observedAt":"0001-01-01T00:00:00Z","expiresAt":"0001-01-01T00:00:00Z"}'
    )


def test_half_a_character_has_no_canonical_form() -> None:
    with pytest.raises(InvalidEvent, match="surrogate"):
        encode(make_event(subject="\ud800"))


@given(events)
def test_canonical_form_is_read_back_and_written_again(event: Event) -> None:
    line = encode(event)
    assert b"\n" not in line
    assert decode_canonical(line) == decode_canonical(line.decode()) == event
    assert encode(decode_canonical(line)) == line


@given(events)
def test_normalising_a_normal_event_changes_nothing(event: Event) -> None:
    assert normalise(event, now=NOW) == event
    assert normalise(decode_lenient(encode(event)), now=NOW) == event


@given(events, times, times)
def test_digest_names_the_content_whatever_the_times(event: Event, observed: datetime, expires: datetime) -> None:
    fields = {name: getattr(event, name) for name in event.__struct_fields__}
    refreshed = Event(**(fields | {"observed_at": observed, "expires_at": expires}))
    other = Event(**(fields | {"payload": event.payload | {"observedAt": "x\0"}}))
    digest = content_digest(encode(event).decode())
    assert len(digest) == 16
    assert content_digest(encode(refreshed).decode()) == digest
    assert content_digest(encode(other).decode()) != digest


def test_normalising_trims_and_fills_in() -> None:
    given_event = Event(id=" e\u2003", group="\x85g", type="t\n", subject="\x1cs ", dedupe_key=" ")
    normal = normalise(given_event, now=NOW)
    # U+001C is no white space to Unicode: Python alone would take it away.
    assert (normal.id, normal.group, normal.type, normal.subject) == ("e", "g", "t", "\x1cs")
    assert normal.dedupe_key == "e"
    assert micros(normal.observed_at) == NOW
    assert normal.expires_at is UNSET


def test_times_move_to_utc() -> None:
    tokyo = timezone(timedelta(hours=9))
    normal = normalise(make_event(expires_at=datetime(2026, 5, 30, 21, tzinfo=tokyo)), now=NOW)
    assert normal.expires_at == datetime(2026, 5, 30, 12, tzinfo=UTC)
    assert normal.expires_at.tzinfo is UTC


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (Event(id=" ", group="", type=""), "federation event id is required"),
        (Event(id="e", group="\t", type=""), "federation event group is required"),
        (Event(id="e", group="g", type=""), "federation event type is required"),
        (make_event(subject="a\0"), "federation event subject holds U+0000"),
        (make_event(source_node="\udfff"), "federation event sourceNode holds U+0000 or a lone surrogate"),
        (make_event(payload={"\ud800": ""}), "federation event payload holds"),
        (make_event(payload={"": "\0"}), "federation event payload holds"),
        (make_event(dedupe_key="d" * 513), "federation event dedupeKey is longer than 512 characters"),
        (make_event(expires_at=datetime(2026, 1, 1)), "no time zone"),
        (make_event(expires_at=datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=9)))), "outside the years 1 to 9999"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_event_that_breaks_a_rule_is_refused_by_name(event: Event, reason: str) -> None:
    with pytest.raises(InvalidEvent, match=re.escape(reason)):
        normalise(event, now=NOW)


def test_longest_texts_are_taken() -> None:
    assert normalise(make_event("é" * 512), now=NOW).id == "é" * 512


@pytest.mark.parametrize("line", [b"", b"{", b"null", b"\xff", b"[" * 100_000, "\udc80", b'{"id":1}', b"{}"])
def test_what_is_no_event_has_no_canonical_form(line: bytes | str) -> None:
    with pytest.raises((NotCanonical, InvalidEvent)):
        decode_canonical(line)


@given(times)
def test_microseconds_and_times_are_the_same(time: datetime) -> None:
    assert from_micros(micros(time)) == time
    line = encode(make_event(expires_at=time)).decode()
    assert f'"expiresAt":"{format_time(micros(time))}"' in line


def test_unset_time_is_the_zero_time() -> None:
    assert format_time(None) == ZERO_TIME == format_time(micros(UNSET))
    assert expiry_micros(make_event()) is None
    assert expiry_micros(make_event(expires_at=SEEN)) == micros(SEEN)


def test_event_is_alive_in_the_microsecond_it_expires_in() -> None:
    assert is_alive(None, NOW)
    assert is_alive(NOW, NOW)
    assert not is_alive(NOW, NOW + 1)


@given(st.integers(min_value=0, max_value=2**48 * 1000 - 1), st.binary(min_size=8, max_size=16))
def test_new_ids_are_uuids_of_version_7_at_that_time(now: int, random: bytes) -> None:
    made = uuid.UUID(new_event_id(now, random))
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == now // 1000
    assert str(made) == new_event_id(now, random)


@given(st.integers(min_value=0, max_value=2**48 * 1000 - 1), st.integers(min_value=0, max_value=20))
def test_ids_of_one_time_are_made_together_in_rising_order(now: int, count: int) -> None:
    ids = new_event_ids(now, count, os.urandom)
    made = [uuid.UUID(text) for text in ids]
    assert {(each.version, each.variant) for each in made} <= {(7, uuid.RFC_4122)}
    assert ids == sorted({str(each) for each in made})
    assert len(ids) == count
    begin = new_event_id(now, bytes(8))[:19]
    assert all(text.startswith(begin) for text in ids)


def test_later_ids_sort_later() -> None:
    ids = [new_event_id(NOW + step, random) for step in range(2_000) for random in (b"\xff" * 8, b"\0" * 8)]
    assert ids[::2] == sorted(ids[::2])
    assert max(ids[0:2]) < min(ids[2:4])
