"""The offset of a peer's clock is that of the nearest hour of which it is known."""

from __future__ import annotations

import pytest

from eventd.audit.segments.plan import ClockOffset, LakePlan

HOURS = [ClockOffset(10, 1, 2), ClockOffset(14, 3, 4), ClockOffset(15, 5, 6)]


@pytest.mark.parametrize(("hour", "nearest"), [(0, 10), (10, 10), (12, 10), (13, 14), (15, 15), (99, 15)])
def test_the_nearest_hour_counts_and_of_two_the_earlier(hour: int, nearest: int) -> None:
    assert LakePlan(clocks={("a", "b"): HOURS}).skew_between("a", "b", hour).hour == nearest


def test_of_an_unknown_clock_no_offset_is_known() -> None:
    assert LakePlan(clocks={("a", "b"): HOURS}).skew_between("b", "a", 12) == ClockOffset(12, 0, 0)
