from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventd.text.duration import (
    DAY,
    HOUR,
    LONGEST,
    MINUTE,
    SECOND,
    BadDuration,
    brief_duration,
    format_duration,
    parse_duration,
)


@pytest.mark.parametrize(
    ("text", "microseconds", "canonical"),
    [
        ("5m", 5 * MINUTE, "5m0s"),
        ("1.5h", 90 * MINUTE, "1h30m0s"),
        ("1h30m", 90 * MINUTE, "1h30m0s"),
        ("24h", 24 * HOUR, "24h0m0s"),
        ("7d", 7 * DAY, "168h0m0s"),
        ("1.5d", 36 * HOUR, "36h0m0s"),
        ("1d12h", 36 * HOUR, "36h0m0s"),
        ("200ms", 200_000, "200ms"),
        ("1.5ms", 1500, "1.5ms"),
        ("90s", 90 * SECOND, "1m30s"),
        ("1m0.25s", 60_250_000, "1m0.25s"),
        (".5s", 500_000, "500ms"),
        ("5.s", 5 * SECOND, "5s"),
        ("7us", 7, "7µs"),
        ("7µs", 7, "7µs"),
        ("7μs", 7, "7µs"),
        ("1500ns", 1, "1µs"),
        ("0", 0, "0s"),
        ("0s", 0, "0s"),
        ("-5m", -5 * MINUTE, "-5m0s"),
        ("+5m", 5 * MINUTE, "5m0s"),
        ("1h0m0.000001s", HOUR + 1, "1h0m0.000001s"),
    ],
)
def test_a_duration_is_read_and_written(text: str, microseconds: int, canonical: str) -> None:
    assert parse_duration(text) == microseconds
    assert format_duration(microseconds) == canonical


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a duration; write 30s, 5m or 168h (units are ns, us, ms, s, m, h and d, without blanks)"),
        ("300", "'300' is not a duration; write 30s, 5m or 168h (a unit is missing: 300s?)"),
        (
            "1.2.3",
            "'1.2.3' is not a duration; write 30s, 5m or 168h (units are ns, us, ms, s, m, h and d, without blanks)",
        ),
        ("2w", "'2w' is not a duration; write 30s, 5m or 168h (weeks are not a unit; write 14d)"),
        ("5 m", "'5 m' is not a duration; write 30s, 5m or 168h (units are ns, us, ms, s, m, h and d, without blanks)"),
        ("5M", "'5M' is not a duration; write 30s, 5m or 168h (units are ns, us, ms, s, m, h and d, without blanks)"),
        ("٣s", "'٣s' is not a duration; write 30s, 5m or 168h (units are ns, us, ms, s, m, h and d, without blanks)"),
        ("100ns", "'100ns' is shorter than a microsecond (the shortest is 1us)"),
        ("2562048h", "'2562048h' is longer than 292 years"),
        (
            "9" * 80 + "h",
            "'999999999999999999999999999999999999999999999999999999999999…' is not a duration; write "
            "30s, 5m or 168h (units are ns, us, ms, s, m, h and d, without blanks)",
        ),
    ],
)
def test_what_is_no_duration_is_refused_with_its_reason(text: str, message: str) -> None:
    with pytest.raises(BadDuration) as refused:
        parse_duration(text)
    assert str(refused.value) == message


@given(st.integers(-LONGEST, LONGEST))
def test_the_canonical_text_reads_back_to_the_same_duration(microseconds: int) -> None:
    assert parse_duration(format_duration(microseconds)) == microseconds
    assert parse_duration(brief_duration(microseconds)) == microseconds


@pytest.mark.parametrize(
    ("text", "brief"),
    [("168h", "7d"), ("90m", "90m"), ("2h", "2h"), ("0.5s", "500ms"), ("0", "0s"), ("1.5ms", "1.5ms")],
)
def test_a_setting_is_shown_in_the_largest_unit_that_holds_it(text: str, brief: str) -> None:
    assert brief_duration(parse_duration(text)) == brief


@given(st.text(alphabet="0123456789.-+nuµmshd ", max_size=80))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    with contextlib.suppress(BadDuration):
        assert abs(parse_duration(text)) <= LONGEST
