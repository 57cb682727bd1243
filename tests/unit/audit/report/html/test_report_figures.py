"""Figures as the report shows them: readable, and never rounded to look better than they are."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from eventd.audit.report.figures import micros, moment, natural, percent, period, short_span, size, span
from eventd.audit.report.html.latency import merge
from eventd.audit.report.html.page import templates
from eventd.audit.report.html.scales import LogScale, TimeScale, coordinate
from eventd.audit.report.pair_status import short_count
from eventd.audit.report.report import Bin, Latency
from eventd.audit.report.time_zone import in_zone, read_zone
from eventd.errors import Invalid
from eventd.text.invisible import printable


@pytest.mark.parametrize(
    ("part", "total", "short", "exact"),
    [
        (0, 0, "–", "–"),
        (10, 10, "100 %", "100 %"),
        (0, 10, "0.00 %", "0.00 %"),
        (9_999_997, 10_000_000, "99.99 %", "99.99997 %"),
        (99_999_999_999, 100_000_000_000, "99.99 %", "99.999999999 %"),
        (1, 3, "33.33 %", "33.33 %"),
        (99_999, 100_000, "99.99 %", "99.999 %"),
    ],
)
def test_a_share_is_cut_and_never_rounded_up(part: int, total: int, short: str, exact: str) -> None:
    assert (percent(part, total), percent(part, total, exact=True)) == (short, exact)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "–"),
        (0, "0 s"),
        (0.0000004, "0 µs"),
        (0.00085, "850 µs"),
        (0.001, "1 ms"),
        (0.0123, "12.3 ms"),
        (0.9996, "1 s"),
        (1.236, "1.24 s"),
        (59.97, "1 min"),
        (125, "2 min 5 s"),
        (11_520, "3 h 12 min"),
        (187_200, "2 d 4 h"),
        (-0.04, "−40 ms"),
    ],
)
def test_a_span_has_the_digits_that_count(seconds: float | None, shown: str) -> None:
    assert span(seconds) == shown


def test_short_forms_fit_a_cell() -> None:
    assert [short_span(value) for value in (0, 59, 125, 7300, 190_000)] == ["0 s", "59 s", "2 min", "2 h", "2 d"]
    assert [short_count(value) for value in (7, 999, 1000, 1290, 99_999, 5_600_000)] == [
        "7",
        "999",
        "1k",
        "1.2k",
        "99k",
        "5.6M",
    ]
    assert [size(value) for value in (0, 812, 1_240_000, 1_288_490_188)] == ["0 B", "812 B", "1.24 MB", "1.29 GB"]


def test_times_are_utc_and_nonsense_is_shown_as_it_is() -> None:
    assert moment("2026-11-22T04:44:25.123456Z") == "2026-11-22 04:44:25 UTC"
    assert moment("2026-11-22T06:44:25+02:00") == "2026-11-22 04:44:25 UTC"
    assert (moment("soon"), micros("soon"), moment(None)) == ("soon", None, "–")
    assert period("2026-11-22T04:00:00Z", "2026-11-22T06:00:00Z") == "2026-11-22 04:00:00 to 06:00:00 UTC"
    assert period("2026-11-22T04:00:00Z", "2026-11-23T06:00:00Z") == "2026-11-22 04:00:00 to 2026-11-23 06:00:00 UTC"


def test_names_are_sorted_as_people_count() -> None:
    assert sorted(["n-10", "n-2", "", "n", "9", "n-2a", "1" * 5000], key=natural) == [
        "",
        "9",
        "1" * 5000,
        "n",
        "n-2",
        "n-2a",
        "n-10",
    ]


@pytest.mark.parametrize(
    "template",
    [
        '<b title="{{ name }}">{{ name }}</b>',
        '<b title="{{ "" ~ name }}">{{ [name]|join(", ") }}</b>',
        '{% macro of(text) %}{{ text }}{% endmacro %}<b title="{{ of(name) }}">{{ of(of(name)) }}</b>',
    ],
)
def test_a_template_escapes_every_value_once_and_spells_out_invisible_characters(template: str) -> None:
    made = templates().from_string(template).render(name='"><script>&\u202e')
    shown = r"&#34;&gt;&lt;script&gt;&amp;\u202e"
    assert made == f'<b title="{shown}">{shown}</b>'
    assert printable("\u202eabc\ud800\x1b[31m") == "\\u202eabc\\ud800\\x1b[31m"


def test_a_coordinate_has_at_most_two_decimals() -> None:
    assert [coordinate(value) for value in (0.0, 12.0, 12.345, 1e5)] == ["0", "12", "12.35", "100000"]
    assert templates().from_string("{{ x }}").render(x=1 / 3) == "0.33"


def test_a_scale_holds_what_lies_outside_at_its_edge() -> None:
    scale = LogScale(0.001, 10.0, 0.0, 400.0)
    assert [round(scale.at(value)) for value in (-1, 0, 0.001, 0.1, 10, 1e9)] == [0, 0, 0, 200, 400, 400]
    assert [round(value, 3) for value in scale.ticks()] == [0.001, 0.01, 0.1, 1, 10]
    assert [round(value, 3) for value in LogScale(0.015, 0.2, 0.0, 1.0).ticks()] == [0.02, 0.05, 0.1, 0.2]


@pytest.mark.parametrize(
    ("seconds", "labels"),
    [
        (20, ["Jan 1", "00:00:05", "00:00:10", "00:00:15", "00:00:20"]),
        (3600 * 30, ["Jan 1", "06:00", "12:00", "18:00", "Jan 2", "06:00"]),
        (86400 * 3, ["Jan 1", "12:00", "Jan 2", "12:00", "Jan 3", "12:00", "Jan 4"]),
    ],
)
def test_ticks_are_round_and_few(seconds: int, labels: list[str]) -> None:
    assert [label for _, label in TimeScale(0, seconds * 1_000_000, 0, 100).ticks()] == labels


def test_ticks_are_round_by_the_clocks_of_the_time_zone_also_when_these_are_changed() -> None:
    first = micros("2026-10-24T12:00:00Z")  # the clocks of Berlin go back at 01:00 UTC of the next day
    assert first is not None
    ticks = TimeScale(first, first + 36 * 3600 * 1_000_000, 0, 100, ZoneInfo("Europe/Berlin")).ticks()
    assert [label for _, label in ticks] == ["18:00", "Oct 25", "06:00", "12:00", "18:00", "Oct 26"]
    assert [(moment - first) // 3_600_000_000 for moment, _ in ticks] == [4, 10, 17, 23, 29, 35]


def test_times_in_a_sentence_are_converted_and_nothing_else() -> None:
    zone = ZoneInfo("Europe/Berlin")
    text = "silent since 2026-07-01 22:30:00 UTC (2 h), events of 2026-01-05 01:00:00 to 23:30:00 UTC, id 2026-01-05"
    assert in_zone(text, zone) == (
        "silent since 2026-07-02 00:30:00 CEST (2 h), events of 2026-01-05 02:00:00 to 2026-01-06 00:30:00 CET, "
        "id 2026-01-05"
    )
    assert in_zone(text, read_zone("UTC")) == text
    assert in_zone("recorded before 2026-07-01T22:30:00.25Z", zone) == "recorded before 2026-07-02 00:30:00 CEST"
    assert in_zone("9999-12-31 23:59:59 UTC", zone) == "9999-12-31 23:59:59Z"


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../etc/passwd", "x" * 5000, "a\0b", "Europe"])
def test_a_time_zone_that_does_not_exist_is_an_error_with_a_next_step(name: str) -> None:
    with pytest.raises(Invalid, match="is not a time zone") as raised:
        read_zone(name)
    assert "Europe/Berlin" in str(raised.value.hint)


def test_a_hundred_years_have_few_ticks_too() -> None:
    assert 2 <= len(TimeScale(0, 100 * 365 * 86400 * 1_000_000, 0, 100).ticks()) <= 8


def test_joined_distributions_keep_every_count_and_the_true_maximum() -> None:
    one = Latency(count=99, max=1.05, bins=(Bin(0.1, 0.2, 90), Bin(1.0, 1.125, 9)))
    other = Latency(count=1, max=7.0, bins=(Bin(6.9, 7.7, 1),))
    both = merge([one, other, Latency()])
    assert (both.count, both.p50, both.p95, both.p99, both.max) == (100, 0.2, 1.125, 1.125, 7.0)
    assert merge([]).p50 is None
