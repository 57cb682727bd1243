"""How pages write times."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from eventd.console.rendering.formats import TIMES, Times, TimeStyle, moment, prose, share, zone_named

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "zone", "shown"),
    [
        ("0001-01-01T00:00:00Z", "America/New_York", "0001-01-01 00:00"),
        ("9999-12-31T23:59:59Z", "Asia/Tokyo", "9999-12-31 23:59"),
    ],
)
def test_a_time_at_an_end_of_the_calendar_is_shown_in_utc_where_its_zone_has_none(
    text: str, zone: str, shown: str
) -> None:
    assert f">{shown}</time>" in moment(text, TimeStyle("local", zone_named(zone), NOW))


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-05:00"])
def test_a_time_that_utc_does_not_have_is_shown_as_it_is(text: str, times: Times) -> None:
    assert moment(text, TimeStyle(times, UTC, NOW)) == text


def test_a_time_with_a_quote_between_day_and_hour_ends_no_attribute() -> None:
    shown = moment('2026-01-02"03:04:05Z', TimeStyle("relative", UTC, NOW))
    assert shown == '<time datetime="2026-01-02&#34;03:04:05Z" title="2026-01-02 03:04:05.000 UTC">now</time>'


def test_what_is_to_be_typed_is_set_apart_and_nothing_else_becomes_html() -> None:
    assert prose("set `url`, <b> or `a<b`") == "set <code>url</code>, &lt;b&gt; or <code>a&lt;b</code>"
    assert prose("see `routerctl doctor`") == 'see <code class="command">routerctl doctor</code>'
    assert prose("one ` alone \u202e") == "one ` alone \\u202e"


@pytest.mark.parametrize(
    ("part", "total", "shown"),
    [(0, 9, "0 %"), (9, 9, "100 %"), (11, 183, "6.0 %"), (1, 5000, "0.1 %"), (4999, 5000, "99.9 %")],
)
def test_a_share_is_nothing_or_all_only_if_the_part_is(part: int, total: int, shown: str) -> None:
    assert share(part, total) == shown
