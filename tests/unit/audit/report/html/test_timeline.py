"""The timeline shows the hours of the events, also if one event has a time that is far from all others."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eventd.audit.report.html.timeline import LEFT, RIGHT, timeline
from eventd.audit.report.report import Hour, Period, Report
from federation.event import FIRST_TIME, LAST_TIME, format_time
from tests.support.audit_reports import mesh, report

WIDE = 100
"""Pixels that an hour of the six of the report takes at least."""


@pytest.fixture
def plain() -> Report:
    return report(["left", "right"], mesh(["left", "right"], 10_000))


def with_event_at(whole: Report, time: int) -> Report:
    """Return the report with one more expected delivery, of an event of this time (microseconds)."""
    one = replace(whole.hours[0], hour=format_time(time), expected=1, delivered=1)
    first, last = whole.period.first, whole.period.last
    period = Period(first=one.hour, last=last) if time < 0 else Period(first=first, last=one.hour)
    return replace(whole, hours=(*whole.hours, one), period=period)


def widest(whole: Report) -> float:
    data = timeline(whole)
    assert data is not None
    assert all(LEFT <= bar.x <= RIGHT for bar in data["bars"])
    return max(bar.width for bar in data["bars"])


@pytest.mark.parametrize("times", [[FIRST_TIME], [LAST_TIME], [FIRST_TIME, LAST_TIME]])
def test_an_event_far_from_all_others_is_not_drawn_and_counted(plain: Report, times: list[int]) -> None:
    assert widest(plain) > WIDE
    whole = plain
    for time in times:
        whole = with_event_at(whole, time)
    assert widest(whole) > WIDE
    words = "1 expected delivery" if len(times) == 1 else f"{len(times)} expected deliveries"
    assert f"Not drawn: {words} of events from long before or after all others." in (timeline(whole) or {})["sentence"]


def test_all_hours_are_drawn_if_none_is_far_from_the_others_or_many_events_are(plain: Report) -> None:
    late: list[Hour] = [replace(one, hour=format_time(LAST_TIME - 10**15)) for one in plain.hours]
    for whole in (plain, replace(plain, hours=(*plain.hours, *late))):
        data = timeline(whole)
        assert data is not None
        assert "Not drawn" not in data["sentence"]
        assert len(data["bars"]) == len({hour.hour for hour in whole.hours})
